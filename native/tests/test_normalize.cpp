// Known cases, then random texts against a slow twin that does what the standard says, on the same tables.
#include "normalize.hpp"

#include <cstdio>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "utf8.hpp"

namespace {

#include "normalize_tables.inc"

using gristmill::Form;
using Text = std::u32string;

int num_failures = 0;

void check(bool is_right, const char* claim) {
    if (is_right) return;
    std::fprintf(stderr, "failed: %s\n", claim);
    ++num_failures;
}

std::string encode(const Text& text) {
    std::string out;
    for (char32_t c : text) {
        uint8_t bytes[4];
        out.append(reinterpret_cast<char*>(bytes), gristmill::utf8_encode(c, bytes));
    }
    return out;
}

const uint8_t* bytes_of(const std::string& text) { return reinterpret_cast<const uint8_t*>(text.data()); }

std::string fast(Form form, const std::string& text) {
    std::string out = "kept";  // normalize appends
    gristmill::normalize(form, bytes_of(text), text.size(), out);
    check(out.starts_with("kept"), "what stands in the output stays");
    return out.substr(4);
}

bool is_normalized(Form form, const std::string& text) {
    return gristmill::is_normalized(form, bytes_of(text), text.size());
}

struct Twin {
    std::map<char32_t, Text> canonical, compatible;
    std::map<std::pair<char32_t, char32_t>, char32_t> pairs;

    Twin() {
        read(kCanonicalStream, std::size(kCanonicalStream), canonical);
        read(kCompatibleStream, std::size(kCompatibleStream), compatible);
        for (size_t i = 0; i < std::size(kCompositions); i += 3) {
            pairs[{kCompositions[i], kCompositions[i + 1]}] = kCompositions[i + 2];
        }
        for (char32_t s = 0xAC00; s < 0xD7A4; ++s) {
            char32_t index = s - 0xAC00, rest = index % 28, plain = s - rest;
            char32_t lead = 0x1100 + index / 588, vowel = 0x1161 + index / 28 % 21, tail = 0x11A7 + rest;
            canonical[s] = rest ? Text{lead, vowel, tail} : Text{lead, vowel};
            pairs[rest ? std::pair{plain, tail} : std::pair{lead, vowel}] = s;
        }
    }

    static void read(const uint32_t* stream, size_t size, std::map<char32_t, Text>& into) {
        char32_t last = 0;
        for (size_t i = 0; i < size; i += 2 + stream[i + 1]) {
            into[last += stream[i]] = Text(stream + i + 2, stream + i + 2 + stream[i + 1]);
        }
    }

    static unsigned rank(char32_t c) {
        return c / 64 < std::size(kPropertyIndex) ? kPropertyBlocks[kPropertyIndex[c / 64] * 64 + c % 64] & 0x3F : 0;
    }

    Text normalize(Form form, const Text& text) const {
        Text parts;
        for (char32_t c : text) {
            if (form == Form::nfkc && compatible.contains(c)) {
                parts += compatible.at(c);
            } else {
                parts += canonical.contains(c) ? canonical.at(c) : Text{c};
            }
        }
        for (bool is_swapped = true; std::exchange(is_swapped, false);) {
            for (size_t i = 1; i < parts.size(); ++i) {
                if (rank(parts[i]) == 0 || rank(parts[i - 1]) <= rank(parts[i])) continue;
                std::swap(parts[i - 1], parts[i]);
                is_swapped = true;
            }
        }
        for (size_t i = 1; i < parts.size();) i = compose_at(parts, i) ? i : i + 1;
        return parts;
    }

    // Joins part i to the last starter before it unless a part between has no lower class.
    bool compose_at(Text& parts, size_t i) const {
        size_t starter = i;
        do {
            if (starter < i && rank(parts[starter]) >= rank(parts[i])) return false;
            if (starter == 0) return false;
        } while (rank(parts[--starter]) != 0);
        auto found = pairs.find({parts[starter], parts[i]});
        if (found == pairs.end()) return false;
        parts[starter] = found->second;
        parts.erase(i, 1);
        return true;
    }
};

struct Case {
    const char* claim;
    Form form;
    Text text, expected;
};

void test_known_cases() {
    const Case cases[] = {
        {"none leaves all", Form::none, U"e\u0301", U"e\u0301"},
        {"empty text", Form::nfc, U"", U""},
        {"NUL passes", Form::nfc, Text(U"e\0\u0301", 3), Text(U"e\0\u0301", 3)},
        {"letter and mark join", Form::nfc, U"xe\u0301x", U"x\u00E9x"},
        {"two marks join in canonical order", Form::nfc, U"e\u0302\u0323", U"\u1EC7"},
        {"composite is opened for a mark below", Form::nfc, U"\u00EA\u0323", U"\u1EC7"},
        {"mark of the same class blocks", Form::nfc, U"a\u0315\u0300\u05AE\u0308b", U"\u00E0\u05AE\u0308\u0315b"},
        {"starter blocks", Form::nfc, U"\u09C7\u0301\u09BE", U"\u09C7\u0301\u09BE"},
        {"spacing mark of class 0 joins", Form::nfc, U"\u09C7\u09BE", U"\u09CB"},
        {"three parts of class 0 and 9", Form::nfc, U"\u0DD9\u0DCF\u0DCA", U"\u0DDD"},
        {"composition exclusion stays apart", Form::nfc, U"\u0958", U"\u0915\u093C"},
        {"singleton", Form::nfc, U"\u212B\u2126", U"\u00C5\u03A9"},
        {"non-starter decomposition", Form::nfc, U"\u0344", U"\u0308\u0301"},
        {"leading marks are ordered", Form::nfc, U"\u0301\u0316", U"\u0316\u0301"},
        {"jamo make a syllable", Form::nfc, U"\u1112\u1161\u11AB", U"\uD55C"},
        {"syllable takes a tail", Form::nfc, U"\uD558\u11AB", U"\uD55C"},
        {"tail zero does not join", Form::nfc, U"\uAC00\u11A7", U"\uAC00\u11A7"},
        {"syllable with tail takes no other", Form::nfc, U"\uAC01\u11A8", U"\uAC01\u11A8"},
        {"astral pair", Form::nfc, U"\U00011099\U000110BA", U"\U0001109A"},
        {"compatibility stays in NFC", Form::nfc, U"\uFB01\uFF21", U"\uFB01\uFF21"},
        {"compatibility goes in NFKC", Form::nfkc, U"\uFB01\uFF21\u2460", U"fiA1"},
        {"half-width kana takes its voice mark", Form::nfkc, U"\uFF76\uFF9E", U"\u30AC"},
        {"compatibility differs from canonical", Form::nfkc, U"\u1E9B\u0323", U"\u1E69"},
        {"unknown to Unicode 9 is left alone", Form::nfkc, U"\u32FF\U0001F16C", U"\u32FF\U0001F16C"},
        {"mark unknown to Unicode 9 is a starter", Form::nfc, U"a\u08CA\u0316", U"a\u08CA\u0316"},
    };
    for (const Case& c : cases) {
        check(fast(c.form, encode(c.text)) == encode(c.expected), c.claim);
        // Far from the start as well, where whole windows are skipped.
        Text before(200, U'\u4E2D'), after(100, U'z');
        check(fast(c.form, encode(before + c.text + after)) == encode(before + c.expected + after), c.claim);
    }
    check(is_normalized(Form::nfc, encode(U"r\u00E9sum\u00E9 \u4E2D\u6587 \uD55C")), "composed text is normalised");
    check(is_normalized(Form::nfc, encode(U"\u05D0\u05B7\u05BC\u0591")), "marks in order are normalised");
    check(!is_normalized(Form::nfc, encode(U"\u05D0\u05BC\u05B7")), "marks out of order are work");
    check(!is_normalized(Form::nfc, encode(U"e\u0301")), "a mark that may join is work");
    check(!is_normalized(Form::nfkc, encode(U"\uFF21")), "full-width is work in NFKC");
    check(is_normalized(Form::none, encode(U"e\u0301")), "without a form all is normal");
}

void test_random_texts_equal_the_twin() {
    const Twin twin;
    std::vector<char32_t> odd;
    for (char32_t c = 0; c < std::size(kPropertyIndex) * 64; ++c) {
        if (kPropertyBlocks[kPropertyIndex[c / 64] * 64 + c % 64]) odd.push_back(c);
    }
    for (const auto& [pair, composite] : twin.pairs) {
        if (composite < 0xAC00 || composite > 0xD7A3) odd.insert(odd.end(), {pair.first, pair.second, composite});
    }
    std::mt19937 random(1);
    auto below = [&](size_t n) { return random() % n; };
    const std::pair<char32_t, char32_t> ranges[] = {{0x20, 0x7F},     {0x300, 0x370},   {0x1100, 0x1200},
                                                    {0xAC00, 0xAC80}, {0x4E00, 0x9FFF}, {0x3040, 0x3100}};
    for (int round = 0; round < 20000; ++round) {
        Text text;
        size_t size = 1 + below(round % 10 ? 12 : 120);
        while (text.size() < size) {
            auto [low, high] = ranges[below(std::size(ranges))];
            size_t run = below(20) ? 1 : below(60);  // now and then enough to fill windows
            if (below(2)) text += odd[below(odd.size())];
            for (; run > 0; --run) text += low + below(high - low);
        }
        std::string bytes = encode(text);
        for (Form form : {Form::nfc, Form::nfkc}) {
            std::string expected = encode(twin.normalize(form, text));
            check(fast(form, bytes) == expected, "a random text equals the twin");
            check(!is_normalized(form, bytes) || bytes == expected, "the quick check is never wrong");
            check(fast(form, expected) == expected, "a normal form is its own normal form");
        }
    }
}

void test_long_runs_of_marks_take_linear_time() {
    Text text = U"a" + Text(500000, U'\u0301') + Text(500000, U'\u0316');
    Text expected = U"\u00E1" + Text(500000, U'\u0316') + Text(499999, U'\u0301');
    check(fast(Form::nfc, encode(text)) == encode(expected), "a million marks are put in order");
    Text wide(100000, U'\uFF21'), narrow(100000, U'A');
    check(fast(Form::nfkc, encode(wide)) == encode(narrow), "a long stretch passes in parts");
}

}  // namespace

int main() {
    test_known_cases();
    test_random_texts_equal_the_twin();
    test_long_runs_of_marks_take_linear_time();
    return num_failures ? 1 : 0;
}
