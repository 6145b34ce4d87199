// A few symbols side by side, merged where they lie. `places` are those of the pairs of neighbours in the table of pairs,
// asked for earlier, so that they are at hand.
#pragma once
#include <cstddef>
#include <cstdint>

#include "model.hpp"
#include "unguessed.hpp"

namespace gristmill {

constexpr size_t kFewAtOnce = 16;  // symbols that merge_few takes

// All return the end of what they wrote, which may be followed by what was one symbol more.
inline uint32_t* merge_two(const PairTable& pairs, const uint32_t* symbols, uint32_t place, uint32_t* out) {
    const Merge& merge = pairs.at(place);
    uint32_t is_merged = unguessed(PairTable::rank_for(merge, PairTable::pair(symbols[0], symbols[1])) < kNoRank);
    out[0] = chosen(is_merged, merge.result, symbols[0]);
    out[1] = symbols[1];
    return out + 2 - is_merged;
}
uint32_t* merge_three(const PairTable& pairs, const uint32_t* symbols, const uint32_t* places, uint32_t* out);
uint32_t* merge_few(const PairTable& pairs, const uint32_t* symbols, const uint32_t* places, size_t count, uint32_t* out);

}  // namespace gristmill
