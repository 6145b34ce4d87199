// Text -> pieces. Tables come compiled from src/gristmill/pattern; nothing here knows a regex.
//
// Two runners of the same split: `Transducer` (fast, branch-free, several places of the text at once) and
// `PlainSplitter` (the slow twin: a DFA that goes back to its last match). Boundaries are piece ENDS.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "split_windows.hpp"

namespace gristmill {

// Code point -> character class by a two-stage table.
struct ClassTable {
    std::vector<uint16_t> stage1;  // 0x1100 entries
    std::vector<uint8_t> stage2;   // 256 a block

    uint8_t of(uint32_t code_point) const { return stage2[stage1[code_point >> 8] * 256u + (code_point & 255)]; }
};

// An online machine over (config, column): pop tentative ends, push this position, go on. See docs/design.md.
class Transducer {
public:
    // table: num_configs x 256; column = ASCII byte, or 128 + class, or 128 + num_classes for end of text.
    // Entry: next config << 8 | pops << 1 | push.
    Transducer(ClassTable classes, std::vector<uint16_t> table, unsigned num_classes);

    static constexpr size_t kLanes = 3;
    // Piece ends as offsets into a text, in up to kLanes + 1 runs that follow one another.
    struct Run {
        const uint32_t* ends;
        size_t count;
    };
    struct Pieces {
        Run runs[kLanes + 1];
        size_t num_runs;
    };
    // The pieces of text[begin, end), their ends written to `ends`, which needs room for end - begin of them. `begin` is
    // the start of the text or a safe cut; `end` is the end of the text (to_text_end) or a safe cut.
    Pieces split(const uint8_t* text, size_t begin, size_t end, bool to_text_end, uint32_t* ends) const;

    // A position q in (begin, end] such that a piece certainly ends there and splitting may start afresh at q,
    // the first one at or after `from`; `end` if there is none before.
    size_t safe_cut(const uint8_t* text, size_t from, size_t end) const;

private:
    struct Lane;
    // What two ASCII characters do: take back ends and put up to two, of which the first may be that before the second.
    struct PairEntry {
        uint16_t row;       // of the next config in pairs_
        int16_t back, net;  // bytes in the output: to go back before writing, and in all
        uint16_t is_second;  // 1: the first end written is that before the second character
        auto operator<=>(const PairEntry&) const = default;
    };
    void build_neighbours();
    void build_pairs();
    std::vector<PairEntry> effect_of(unsigned a, unsigned b) const;
    void step(const uint8_t* text, Lane& lane) const;
    unsigned column(const uint8_t* p, unsigned& length) const;
    size_t run_windows(const uint8_t* text, size_t begin, size_t end, bool to_text_end, Run& run, uint32_t* ends) const;
    void run_neighbours(const uint8_t* text, Lane& lane) const;
    template <size_t kCount>
    size_t run_ascii(const uint8_t* text, Lane* lanes, size_t steps) const;
    template <size_t kCount>
    size_t run_pairs(const uint8_t* text, Lane* lanes, size_t steps) const;
    template <size_t kCount>
    void run_lanes(const uint8_t* text, Lane* lanes) const;
    void finish(const uint8_t* text, Lane& lane, bool to_text_end) const;

    ClassTable classes_;
    std::vector<uint16_t> table_;
    unsigned end_column_;
    SplitWindows windows_;
    // By two ASCII characters as they lie in memory: 1 where a piece ends between them. Empty: more than those two decide.
    std::vector<uint8_t> neighbours_;
    std::vector<PairEntry> pairs_;        // [config << pair_shift_ | class of the pair]; empty: too many, one character a step then
    std::vector<uint16_t> pair_classes_;  // where their entries lie in a row, in bytes, by two bytes as they lie in memory
    unsigned pair_shift_ = 0;
    std::vector<uint8_t> is_safe_pair_;  // [previous column][column]: a fresh start before the second
};

struct PlainSplitter {
    ClassTable classes;
    unsigned num_classes;
    std::vector<uint16_t> next_state;  // num_states x (num_classes + 1); 0xFFFF is dead
    std::vector<uint8_t> match;        // same shape: a match ends before this character
    bool keep_matches = true;
    bool keep_gaps = true;

    struct Piece {
        uint32_t begin, end;
    };
    // Appends the pieces of text[begin, end).
    void split(const uint8_t* text, size_t begin, size_t end, std::vector<Piece>& pieces) const;
};

// Splits text by each stage in turn, the pieces of one being cut by the next; they are in `pieces` at the end.
void split_by_chain(const std::vector<PlainSplitter>& chain, const uint8_t* text, size_t size,
                    std::vector<PlainSplitter::Piece>& pieces, std::vector<PlainSplitter::Piece>& scratch);

}  // namespace gristmill
