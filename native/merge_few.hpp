// A few symbols side by side, merged where they lie. `places` are those of the pairs of neighbours in the table of pairs,
// asked for earlier, so that they are at hand.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "model.hpp"
#include "unguessed.hpp"

namespace gristmill {

constexpr size_t kFewAtOnce = 16;  // symbols that merge_few takes

// Copies symbols where they are mostly no more than kMostly, so many of which may be read and written in any case: a call, and a guess
// how many there are, would take longer. Returns the end of what was written.
template <size_t kMostly>
uint32_t* copy_few(const uint32_t* symbols, size_t count, uint32_t* out) {
    std::memcpy(out, symbols, kMostly * sizeof(uint32_t));
    if (count > kMostly) [[unlikely]] std::memcpy(out + kMostly, symbols + kMostly, (count - kMostly) * sizeof(uint32_t));
    return out + count;
}

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
