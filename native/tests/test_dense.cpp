// Chinese and Japanese character by character, against splitting and merging slowly: vocabularies of chance.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/chance.hpp"
#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;
using Ids = std::vector<uint32_t>;

// Few, so that their tokens are met; some share bytes with others. The first are what text is made of mostly.
const std::vector<std::string> kCharacters = {
    "水", "車", "永", "の", "は", "日", "本", "氷", "。", "、", "한", "\xE0\xA4\x95", "\xEF\xBF\xBF", "\xE2\x80\x8D",
    "a", "b", " ", "1", "\n", "é", "д", "\xF0\x9F\x99\x82", "\xF0\xA0\x80\x80"};
constexpr size_t kNumMain = 10;

std::string dense_text(Chance& chance, size_t count) {
    std::string out;
    for (; count > 0; --count) out += kCharacters[chance.below(chance.below(6) ? kNumMain : kCharacters.size())];
    return out;
}

struct Vocabulary {
    std::vector<std::string> tokens;
    std::vector<uint32_t> ranks;
};

struct Kind {
    bool is_of_characters;  // the main ones are tokens, and no token begins or ends inside one
    bool do_ranks_rise;
};
constexpr Kind kinds_of(int round) { return {round % 2 == 0, round % 3 != 0}; }

// Learned as such vocabularies are, but of pairs of chance, so that tokens may begin and end inside characters; then some that
// merging may not reach.
Vocabulary vocabulary_of_chance(Chance& chance, size_t num_merges, Kind kind) {
    Vocabulary made;
    auto add = [&](const std::string& token) {
        bool is_new = token.size() <= 24 && std::find(made.tokens.begin(), made.tokens.end(), token) == made.tokens.end();
        if (is_new) made.tokens.push_back(token);
        return is_new;
    };
    for (int b = 0; b < 256; ++b) add(std::string(1, static_cast<char>(b)));
    std::vector<std::string> text;
    if (kind.is_of_characters) {
        for (size_t i = 0; i < kNumMain; ++i) {
            if (i < 6 || chance.below(2)) add(kCharacters[i].substr(0, 2)), add(kCharacters[i]);
        }
        for (size_t i = 0; i < 300; ++i) text.push_back(kCharacters[chance.below(6)]);
    } else {
        for (char c : dense_text(chance, 300)) text.push_back(std::string(1, c));
    }
    for (size_t i = 0; i < num_merges; ++i) {
        size_t at = chance.below(text.size() - 1);
        std::string left = text[at], right = text[at + 1], whole = left + right;
        if (!add(whole)) continue;
        std::vector<std::string> merged;
        for (size_t k = 0; k < text.size(); ++k) {
            bool is_pair = k + 1 < text.size() && text[k] == left && text[k + 1] == right;
            merged.push_back(is_pair ? whole : text[k]);
            k += is_pair;
        }
        text = merged;
    }
    for (size_t i = 0, count = chance.below(8); i < count; ++i) add(dense_text(chance, 1 + chance.below(4)));
    for (uint32_t i = 0; i < made.tokens.size(); ++i) made.ranks.push_back(i);
    for (size_t i = made.ranks.size(); !kind.do_ranks_rise && i > 257; --i) std::swap(made.ranks[i - 1], made.ranks[256 + chance.below(i - 256)]);
    return made;
}

std::shared_ptr<const Model> model_of(const Vocabulary& vocabulary, bool whole_piece_first) {
    VocabularyInput input;
    input.whole_piece_first = whole_piece_first;
    for (uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
        input.tokens.push_back(vocabulary.tokens[id]);
        input.ids.push_back(id);
    }
    return std::make_shared<const Model>(from_ranks(input, vocabulary.ranks));
}

Program program_of(std::shared_ptr<const Model> model) {
    Program program = small::program(small::Kind::bytes, {});
    program.model = std::move(model);
    return program;
}

Ids ids_of(Engine& engine, std::string_view text) {
    std::vector<uint8_t> bytes = exact(text);
    BatchResult result = engine.encode({{bytes.data(), bytes.size(), false}}, {});
    return {result.ids.data(), result.ids.data() + result.ids.size()};
}

void test_dense_text_is_its_slow_twins() {
    Chance chance(31);
    size_t num_dense = 0, num_in_order = 0, num_odd = 0;
    for (int round = 0; round < 200; ++round) {
        Vocabulary vocabulary = vocabulary_of_chance(chance, chance.below(round % 4 ? 120 : 12), kinds_of(round));
        auto model = model_of(vocabulary, round % 5 < 2);
        num_in_order += model->are_characters_first();
        num_odd += model->has_unreachable_wholes();
        Engine engine(program_of(model), 1 << 20), forgetful(program_of(model), 1);
        for (size_t count : {1, 2, 3, 4, 5, 8, 13, 21, 34, 200}) {
            std::string text = dense_text(chance, count);
            for (size_t i = 0; i < count && count < 9; ++i) text += "1" + vocabulary.tokens[vocabulary.tokens.size() - 1 - i] + "1";
            text = small::valid_text(bytes_of(text), text.size());
            Ids expected;
            small::encode_slowly(engine.program(), small::Kind::bytes, text, expected);
            num_dense += DenseEncoder::is_dense(bytes_of(text), text.size());
            check(ids_of(engine, text) == expected && ids_of(forgetful, text) == expected, "ids of a text", text);
        }
    }
    Engine engine(program_of(model_of(vocabulary_of_chance(chance, 10, kinds_of(0)), false)), 1);
    ids_of(engine, "and so on");
    size_t before = engine.state_bytes();
    ids_of(engine, "水車。");
    check(engine.state_bytes() > before + (size_t{1} << 20), "the table of characters is there once it is needed");
    check(num_dense > 1000, "most texts are dense");
    check(num_in_order > 20 && num_in_order < 180, "characters come first, or do not", std::to_string(num_in_order));
    check(num_odd > 20, "some tokens are for whole pieces alone");
}

// Several blocks, other text between them, a piece longer than a block, and many documents whose ids follow one another.
void test_dense_blocks_and_others_keep_their_order() {
    Chance chance(32);
    for (int round = 0; round < 6; ++round) {
        auto model = model_of(vocabulary_of_chance(chance, 100, kinds_of(round)), round % 2 != 0);
        Engine engine(program_of(model), 1 << 20);
        std::vector<std::vector<uint8_t>> texts;
        Ids expected;
        for (int i = 0; i < 40; ++i) {
            std::string text = dense_text(chance, i % 10 ? chance.below(40) : 5000);
            if (i % 4 == 1) text += small::grown_tokens()[chance.below(40)] + " and so on, in other words ";
            if (i == 20) text.append(9000, 'a');
            if (i == 30 && round < 2) {
                for (int k = 0; k < 6000; ++k) text += kCharacters[chance.below(4)];  // one piece
            }
            small::encode_slowly(engine.program(), small::Kind::bytes, text, expected);
            texts.push_back(exact(text));
        }
        std::vector<Document> documents;
        for (const auto& text : texts) documents.push_back({text.data(), text.size(), false});
        for (unsigned num_threads : {1u, 3u}) {
            BatchResult result = engine.encode(documents, {SpecialPolicy::text, false, false, num_threads});
            check(Ids(result.ids.data(), result.ids.data() + result.ids.size()) == expected, "ids of all documents");
        }
    }
}

// The last character is made after the merge of the other two, though its own merge ranks before: its first two bytes come late.
void test_characters_that_come_late_are_waited_for() {
    Vocabulary vocabulary;
    for (int b = 0; b < 256; ++b) vocabulary.tokens.push_back(std::string(1, static_cast<char>(b)));
    for (const char* token : {"\xE3\x81", "の", "\xE6\xB0", "水", "車", "水車", "の水", "\xE8\xBB"}) vocabulary.tokens.push_back(token);
    for (uint32_t i = 0; i < vocabulary.tokens.size(); ++i) vocabulary.ranks.push_back(i);
    auto model = model_of(vocabulary, false);
    Engine engine(program_of(model), 1);
    Ids expected;
    merge_slowly(*model, "の水車", expected);
    check(expected.size() == 2 && model->token(expected[0]) == "の水", "the first two are merged first");
    check(!model->are_characters_first() && ids_of(engine, "の水車") == expected, "ids of a character that comes late");
}

// Where the filter says no, no token that merges make lies across.
void test_a_filter_of_no_is_never_wrong() {
    Chance chance(33);
    size_t num_apart = 0, num_kept = 0;
    for (int round = 0; round < 60; ++round) {
        Vocabulary vocabulary = vocabulary_of_chance(chance, 150, kinds_of(round));
        auto model = model_of(vocabulary, false);
        const JoinFilter& joins = model->joins();
        auto number = [](std::string_view bytes) {
            uint32_t value = 0;
            for (size_t i = 0; i < bytes.size(); ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << 8 * i;
            return value;
        };
        for (const std::string& left : kCharacters) {
            for (const std::string& right : kCharacters) {
                bool is_known = left.size() % 2 == 1 && right.size() % 2 == 1 && left.size() + right.size() > 2;
                if (!is_known) continue;
                bool may_join = joins.pairs().has(number(left), number(right)) ||
                                (joins.sides_of(bytes_of(left), left.size()).before & joins.sides_of(bytes_of(right), right.size()).behind);
                num_kept += may_join;
                if (may_join) continue;
                ++num_apart;
                std::string text = dense_text(chance, 4) + left + right + dense_text(chance, 4);
                size_t at = text.find(left + right) + left.size();
                Ids whole, apart;
                merge_slowly(*model, text, whole);
                merge_slowly(*model, text.substr(0, at), apart);
                merge_slowly(*model, text.substr(at), apart);
                check(whole == apart, "apart is the same as together", text);
            }
        }
    }
    check(num_apart > 5000 && num_kept > 500, "some may join, most may not");
}

}  // namespace

int main() {
    test_dense_text_is_its_slow_twins();
    test_dense_blocks_and_others_keep_their_order();
    test_characters_that_come_late_are_waited_for();
    test_a_filter_of_no_is_never_wrong();
    return num_failures ? 1 : 0;
}
