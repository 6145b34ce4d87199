// The transducer and the plain splitter, on tables small enough to be written by hand or by chance.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "tests/chance.hpp"
#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;
using Ids = std::vector<uint32_t>;

Ids ends_slowly(const PlainSplitter& splitter, std::string_view text) {
    std::vector<PlainSplitter::Piece> pieces;
    splitter.split(bytes_of(text), 0, text.size(), pieces);
    Ids ends;
    uint32_t at = 0;
    for (auto piece : pieces) {
        check(piece.begin == at && piece.end > piece.begin, "pieces follow one another", text);
        ends.push_back(at = piece.end);
    }
    return ends;
}

Ids ends_fast(const Transducer& transducer, const std::vector<uint8_t>& text, size_t begin, size_t end) {
    Ids room(end - begin), ends;
    auto pieces = transducer.split(text.data(), begin, end, end == text.size(), room.data());
    for (size_t i = 0; i < pieces.num_runs; ++i) {
        ends.insert(ends.end(), pieces.runs[i].ends, pieces.runs[i].ends + pieces.runs[i].count);
    }
    return ends;
}

void test_the_transducer_splits_as_the_plain_splitter() {
    const small::Split splits[] = {small::word_split(), small::backtracking_split()};
    std::vector<std::string> words;  // what windows of ASCII are for, and now and then what is not
    for (int i = 0; i < 20; ++i) {
        std::ranges::copy_if(kParts, std::back_inserter(words), [&](const std::string& part) { return i == 0 || static_cast<uint8_t>(part[0]) < 0x80; });
    }
    Chance chance(2);
    for (int round = 0; round < 6000; ++round) {
        const small::Split& split = splits[round % 2];
        size_t count = round % 50 < 2 ? 400 + chance.below(2000) : chance.below(12);  // long ones run in lanes
        std::string text = chance.text(round % 100 < 50 ? kParts : words, count);
        Ids expected = ends_slowly(split.slow, text);
        auto copy = exact(text);
        check(ends_fast(split.fast, copy, 0, copy.size()) == expected, "one run gives the pieces", text);
        if (text.empty()) continue;
        size_t cut = split.fast.safe_cut(copy.data(), chance.below(copy.size()), copy.size());
        Ids parts = ends_fast(split.fast, copy, 0, cut), rest = ends_fast(split.fast, copy, cut, copy.size());
        parts.insert(parts.end(), rest.begin(), rest.end());
        check(parts == expected, "two runs from a safe cut give the same", text);
    }
}

// A table of chance: `kinds` kinds of ASCII characters, and one or two ends may be taken back by what is behind them.
// Before the first kind a piece always ends, so that there are safe cuts and several lanes.
std::vector<uint16_t> table_by_chance(Chance& chance, unsigned kinds, unsigned num_states) {
    constexpr unsigned kDepths = 3;  // config 0, then one a state and number of ends that may be taken back
    std::vector<uint16_t> table((1 + kDepths * num_states) * 256);
    for (unsigned q = 0; q < 1 + kDepths * num_states; ++q) {
        uint16_t* row = table.data() + q * 256;
        auto depth = q ? (q - 1) % kDepths : 0;
        for (unsigned column = 0; column <= 128; ++column) {
            bool is_put = q && (column == 0 || chance.below(2));
            auto taken = chance.below(3) ? 0 : static_cast<unsigned>(chance.below(depth + 1));
            auto left = static_cast<unsigned>(chance.below(std::min(kDepths, depth - taken + is_put + 1)));
            unsigned next = column == 0 ? 1 : 1 + kDepths * static_cast<unsigned>(chance.below(num_states)) + left;
            row[column] = column < 128 && column >= kinds ? row[column % kinds] : small::entry(next, taken, is_put);
        }
        row[129] = small::entry(0, 0, q != 0);
    }
    return table;
}

// Where a piece ends between two characters, whatever else there is: the config is the kind of the last one.
std::vector<uint16_t> table_of_neighbours(Chance& chance, unsigned kinds) {
    std::vector<uint16_t> table((kinds + 2) * 256);
    for (unsigned q = 0; q < kinds + 2; ++q) {
        uint16_t* row = table.data() + q * 256;
        for (unsigned column = 0; column <= 128; ++column) {
            unsigned kind = column == 128 ? kinds : column % kinds;
            row[column] = column < 128 && column >= kinds ? row[kind] : small::entry(1 + kind, 0, q && chance.below(3) == 0);
        }
        row[129] = small::entry(0, 0, q != 0);
    }
    return table;
}

Ids ends_by_table(const std::vector<uint16_t>& table, const std::vector<uint8_t>& text) {
    Ids ends;
    unsigned config = 0;
    auto step = [&](unsigned column, size_t at) {
        uint16_t entry = table[config * 256 + column];
        ends.resize(ends.size() - (entry >> 1 & 0x7F));
        if (entry & 1) ends.push_back(static_cast<uint32_t>(at));
        config = entry >> 8;
    };
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) step(text[at] < 128 ? text[at] : 128, at);
    if (!text.empty()) step(129, text.size());
    return ends;
}

void test_a_transducer_does_what_its_table_says() {
    Chance chance(12);
    for (int round = 0; round < 300; ++round) {
        bool has_too_many_pairs = round % 6 == 0;  // then it goes one character a step
        auto kinds = has_too_many_pairs ? 128u : 1 + static_cast<unsigned>(chance.below(6));
        bool is_of_neighbours = round % 6 == 1;
        auto table = is_of_neighbours ? table_of_neighbours(chance, 1 + static_cast<unsigned>(chance.below(90)))
                                      : table_by_chance(chance, kinds, has_too_many_pairs ? 40 : 1 + static_cast<unsigned>(chance.below(3)));
        Transducer transducer({std::vector<uint16_t>(0x1100), std::vector<uint8_t>(256)}, table, 1);
        for (int i = 0; i < 40; ++i) {
            std::string text;
            for (size_t size = chance.below(600); text.size() < size;) {
                bool is_wide = i % 2 && chance.below(60) == 0;
                text += is_wide ? "\xC3\xA9" : std::string(1, static_cast<char>(chance.below(128)));
            }
            auto copy = exact(text);
            check(ends_fast(transducer, copy, 0, copy.size()) == ends_by_table(table, copy), "ends are those of the table", text);
        }
    }
}

void test_what_a_split_leaves_out_is_left_out() {
    PlainSplitter splitter = small::backtracking_split().slow;
    splitter.next_state[3] = kNoId & 0xFFFF;  // other characters match nothing now
    auto kept = [&](bool keep_matches, bool keep_gaps) {
        splitter.keep_matches = keep_matches;
        splitter.keep_gaps = keep_gaps;
        std::vector<PlainSplitter::Piece> pieces;
        splitter.split(bytes_of("xyabcaz"), 0, 7, pieces);
        std::string out;
        for (auto piece : pieces) out += std::string("xyabcaz").substr(piece.begin, piece.end - piece.begin) + "|";
        return out;
    };
    check(kept(true, true) == "xy|abc|a|z|", "both are kept");
    check(kept(true, false) == "abc|a|", "gaps are dropped");
    check(kept(false, true) == "xy|z|", "matches are dropped");
}

}  // namespace

int main() {
    test_the_transducer_splits_as_the_plain_splitter();
    test_a_transducer_does_what_its_table_says();
    test_what_a_split_leaves_out_is_left_out();
    return num_failures ? 1 : 0;
}
