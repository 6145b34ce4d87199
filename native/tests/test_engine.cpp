// The whole engine against its slow twins (small_tokenizer.hpp); threads, callers, memory, broken text.
#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "tests/chance.hpp"
#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;
using Ids = std::vector<uint32_t>;

BatchResult encode(Engine& engine, const std::vector<std::vector<uint8_t>>& texts, const BatchOptions& options) {
    std::vector<Document> documents;
    for (const auto& text : texts) documents.push_back({text.data(), text.size(), false});
    return engine.encode(documents, options);
}

std::vector<std::vector<uint8_t>> some_texts(uint32_t seed, size_t count) {
    Chance chance(seed);
    std::vector<std::vector<uint8_t>> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(exact(chance.text(kParts, chance.below(i % 40 ? 30 : 3000))));
    // Words that never come back, short ones of other scripts among them: tables grow and are forgotten.
    std::string words;
    for (uint32_t i = 0; i < 30000; ++i) {
        words += i % 3 ? '\n' : ' ';
        for (uint32_t code : {0x4E00 + i % 5000, 0x3041 + i / 5000, 0xE0 + i % 30, uint32_t{'a'} + i % 26}) {
            uint8_t bytes[4];
            words.append(reinterpret_cast<char*>(bytes), utf8_encode(code, bytes));
        }
    }
    texts.push_back(exact(words));
    for (char run : {'a', ' ', '\n', '1', 'z'}) texts.push_back(exact(std::string(20000, run)));
    return texts;
}

bool are_equal(const BatchResult& a, const BatchResult& b) {
    return a.offsets == b.offsets && a.ids.size() == b.ids.size() &&
           std::equal(a.ids.data(), a.ids.data() + a.ids.size(), b.ids.data());
}

void test_the_engine_is_its_slow_twins() {
    for (small::Kind kind : small::kKinds) {
        Engine engine(small::program(kind, {}), 1 << 20), forgetful(small::program(kind, {}), 1);
        Chance chance(7);
        for (int round = 0; round < 2000; ++round) {
            std::string text = chance.text(kParts, chance.below(25));
            Ids expected;
            small::encode_slowly(engine.program(), kind, text, expected);
            for (Engine* one : {&engine, &forgetful}) {
                BatchResult result = encode(*one, {exact(text)}, {});
                check(Ids(result.ids.data(), result.ids.data() + result.ids.size()) == expected, "ids are right", text);
            }
        }
    }
}

// Enough long words that none shares with another for the table to forget all of them in the middle of a batch.
void test_a_long_piece_found_and_then_forgotten_keeps_its_ids() {
    Chance chance(13);
    auto long_word = [&] {
        std::string word = " ";
        for (int i = 0; i < 200; ++i) word += static_cast<char>('a' + chance.below(26));
        return word;
    };
    for (small::Kind kind : small::kKinds) {
        Engine forgetful(small::program(kind, {}), 1);
        std::string known = long_word();
        for (int round = 0; round < 3; ++round) {
            std::string text;
            for (int i = 0; i < 900; ++i) text += i % 100 ? long_word() : known;
            Ids expected;
            if (!small::is_characters(kind)) small::encode_slowly(forgetful.program(), kind, text, expected);
            BatchResult result = encode(forgetful, {exact(text)}, {}), fresh;
            Engine other(small::program(kind, {}), 64 << 20);
            fresh = encode(other, {exact(text)}, {});
            check(are_equal(result, fresh), "a table that forgets gives the same ids");
            if (expected.empty()) continue;
            check(Ids(result.ids.data(), result.ids.data() + result.ids.size()) == expected, "and the right ones");
        }
    }
}

void test_ids_do_not_depend_on_threads_or_memory() {
    const auto texts = some_texts(8, 300);
    for (small::Kind kind : small::kKinds) {
        for (SpecialPolicy policy : {SpecialPolicy::text, SpecialPolicy::parse}) {
            Engine engine(small::program(kind, small::added_tokens()), 4 << 20);
            Engine forgetful(small::program(kind, small::added_tokens()), 1);
            BatchOptions options{policy, false, false, 1};
            const BatchResult expected = encode(engine, texts, options);
            check(expected.error.kind == DocumentError::Kind::none, "valid text has no error");
            for (unsigned num_threads : {1u, 2u, 3u, 8u}) {
                options.num_threads = num_threads;
                check(are_equal(encode(engine, texts, options), expected), "any threads, the same ids");
                check(are_equal(encode(forgetful, texts, options), expected), "any memory, the same ids");
            }
            options.count_only = true;
            check(encode(engine, texts, options).offsets == expected.offsets, "counts are the ids' counts");
            check(forgetful.state_bytes() < 9 * (size_t{4} << 20), "little is held when little is allowed");
        }
    }
}

void test_callers_at_once_do_not_disturb_one_another() {
    const auto texts = some_texts(9, 60);
    Engine engine(small::program(small::Kind::whole_first, small::added_tokens()), 1);
    const BatchResult expected = encode(engine, texts, {});
    std::vector<int> is_equal(4);
    {
        std::vector<std::jthread> callers;
        for (size_t i = 0; i < is_equal.size(); ++i) {
            callers.emplace_back([&, i] { is_equal[i] = are_equal(encode(engine, texts, {}), expected); });
        }
    }
    check(std::count(is_equal.begin(), is_equal.end(), 1) == 4, "every caller gets the same");
}

void test_the_first_broken_document_is_reported() {
    Engine engine(small::program(small::Kind::bytes, {}), 1 << 20);
    std::vector<std::vector<uint8_t>> texts(500, exact("fine text, more than once"));
    texts[300] = exact("ab\xFF");
    texts[400] = exact("\xC3");
    for (unsigned num_threads : {1u, 2u, 8u}) {
        BatchResult result = encode(engine, texts, {SpecialPolicy::text, false, false, num_threads});
        check(result.error.kind == DocumentError::Kind::invalid_utf8, "broken text is an error");
        check(result.error.document == 300 && result.error.offset == 2, "the first one, and where");
        BatchResult replaced = encode(engine, texts, {SpecialPolicy::text, true, false, num_threads});
        check(replaced.error.kind == DocumentError::Kind::none, "or it is replaced");
        check(replaced.offsets[301] - replaced.offsets[300] == 4, "by U+FFFD, three bytes here");
    }
}

}  // namespace

int main() {
    test_the_engine_is_its_slow_twins();
    test_a_long_piece_found_and_then_forgotten_keeps_its_ids();
    test_ids_do_not_depend_on_threads_or_memory();
    test_callers_at_once_do_not_disturb_one_another();
    test_the_first_broken_document_is_reported();
    return num_failures ? 1 : 0;
}
