// Text of many characters of three bytes, character by character, against merging it whole: vocabularies of chance.
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;
using Ids = std::vector<uint32_t>;

// Han, kana and their marks, Hangul whole and in parts, half width, unassigned, ASCII, accents, emoji and what joins them.
const std::vector<std::string> kCharacters = {
    "水", "車", "日", "本", "の", "か", "ー", "゙", "한", "국", "ᄒ", "ᅡ", "ｶ", "ﾞ", "。", "\xE2\x80\x8D", "\xEF\xBF\xBF", "\xE0\xA4\x95",
    "\xE0\xA4\xBE", "a", "b", "1", " ", "\n", "é", "\xCC\x81", "\xF0\x9F\x99\x82", "\xF0\xA0\x80\x80"};

struct Chance {
    std::mt19937 random;
    size_t below(size_t limit) { return random() % limit; }
    const std::string& one() { return kCharacters[below(kCharacters.size())]; }
    // Mostly a few of them, so that tokens are met.
    std::string text(size_t count) {
        std::string out, first = one(), second = one();
        for (; count > 0; --count) {
            size_t kind = below(4);
            out += kind == 0 ? one() : kind == 1 ? first : kind == 2 ? second : kCharacters[below(10)];
        }
        return out;
    }
};

// Some characters are tokens, and some strings of two to nine characters, which merging may reach or not.
Model model_of_chance(Chance& chance, size_t num_long) {
    std::vector<std::string> pieces;
    auto add = [&](const std::string& piece) {
        if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.push_back(piece);
    };
    for (const std::string& character : kCharacters) {
        if (chance.below(4)) add(character);
    }
    size_t num_characters = pieces.size();
    for (size_t i = 0; i < num_long; ++i) {
        const std::string &left = pieces[chance.below(pieces.size())], &right = pieces[chance.below(chance.below(2) ? num_characters : pieces.size())];
        if (left.size() + right.size() <= 27) add(left + right);
    }
    VocabularyInput input;
    input.text = TokenText::plain;
    std::vector<uint32_t> ranks, byte_ids;
    size_t num_ranks = 1 + chance.below(pieces.size() * 2);  // few: several tokens share one
    for (uint32_t i = 0; i < pieces.size(); ++i) {
        input.tokens.push_back(pieces[i]);
        input.ids.push_back(256 + i);
        ranks.push_back(static_cast<uint32_t>(chance.below(num_ranks)));
    }
    for (uint32_t b = 0; b < 256; ++b) byte_ids.push_back(b);
    return Model(from_ranks(input, ranks, byte_ids));
}

Program program_of(std::shared_ptr<const Model> model) {
    Program program;
    program.model = model;
    program.transducer = word_transducer(*model);
    program.is_cut_freely = true;
    program.raw_tokens = std::make_unique<AddedTokens>(std::vector<AddedToken>{}, small::word_classes());
    program.normalized_tokens = std::make_unique<AddedTokens>(std::vector<AddedToken>{}, small::word_classes());
    return program;
}

Ids ids_of(Engine& engine, std::string_view text) {
    std::vector<uint8_t> exact(text.begin(), text.end());  // on the heap and of exact size
    BatchResult result = engine.encode({{exact.data(), exact.size(), false}}, {});
    return {result.ids.data(), result.ids.data() + result.ids.size()};
}

void test_characters_one_by_one_are_the_whole_text_merged() {
    Chance chance{std::mt19937(21)};
    size_t num_joining = 0;
    for (int round = 0; round < 150; ++round) {
        auto model = std::make_shared<const Model>(model_of_chance(chance, chance.below(round % 3 ? 60 : 4)));
        check(model->characters().is_built(), "every such model goes character by character");
        num_joining += model->characters().joins_often();
        Engine engine(program_of(model), 1 << 20), forgetful(program_of(model), 1);
        for (size_t size : {1, 2, 3, 5, 8, 13, 21, 34, 55, 144}) {
            std::string text = chance.text(size);
            Ids expected;
            merge_slowly(*model, text, expected);
            check(ids_of(engine, text) == expected && ids_of(forgetful, text) == expected, "ids of a short text", text);
        }
        MergeScratch scratch;
        std::string text = chance.text(3000);  // several blocks
        for (size_t i = 0; i < 3; ++i) text += chance.text(200) + std::string(1500, 'a') + chance.text(1500);  // and words between
        Ids expected;
        merge_long(*model, text, scratch, expected);
        check(ids_of(engine, text) == expected, "ids of a long text", text);
    }
    check(num_joining > 20 && num_joining < 130, "characters join often, or seldom", std::to_string(num_joining));
}

void test_a_part_longer_than_a_block_is_merged_whole() {
    VocabularyInput input;
    input.text = TokenText::plain;
    std::vector<std::string> pieces = {"水", "車", "水水", "水水水水", "水車"};
    std::vector<uint32_t> ranks = {0, 0, 1, 2, 3}, byte_ids;
    for (uint32_t i = 0; i < pieces.size(); ++i) input.tokens.push_back(pieces[i]), input.ids.push_back(256 + i);
    for (uint32_t b = 0; b < 256; ++b) byte_ids.push_back(b);
    auto model = std::make_shared<const Model>(from_ranks(input, ranks, byte_ids));
    Engine engine(program_of(model), 1 << 20);
    for (size_t before : {0, 1, 2, 200, 340, 341, 342, 343}) {
        for (size_t run : {1, 2, 15, 16, 17, 18, 330, 340, 341, 342, 343, 1000, 5000}) {
            std::string text;
            for (size_t i = 0; i < before; ++i) text += "車";
            for (size_t i = 0; i < run; ++i) text += "水";
            text += "車車本";
            Ids expected;
            merge_slowly(*model, text, expected);
            check(ids_of(engine, text) == expected, "ids of a run", text);
        }
    }
}

void test_models_of_other_kinds_have_no_such_table() {
    VocabularyInput input;
    input.text = TokenText::plain;
    input.tokens = {"水", "車", "水車"};
    input.ids = {256, 257, 258};
    std::vector<uint32_t> ranks = {0, 1, 2}, byte_ids;
    for (uint32_t b = 0; b < 256; ++b) byte_ids.push_back(b);
    check(Model(from_ranks(input, ranks, byte_ids)).characters().is_built(), "a plain one has it");
    input.whole_piece_first = true;
    check(!Model(from_ranks(input, ranks, byte_ids)).characters().is_built(), "whole pieces come first");
    input.whole_piece_first = false;
    byte_ids[0xE6] = 256;  // what is a byte may be joined then
    check(!Model(from_ranks(input, ranks, byte_ids)).characters().is_built(), "a byte is a character");
    check(!small::byte_model(false).characters().is_built(), "symbols are bytes");
}

}  // namespace

int main() {
    test_characters_one_by_one_are_the_whole_text_merged();
    test_a_part_longer_than_a_block_is_merged_whole();
    test_models_of_other_kinds_have_no_such_table();
    return num_failures ? 1 : 0;
}
