#include "merge_few.hpp"

#include <algorithm>

namespace gristmill {

// The best of two pairs, then what it gives with the third symbol, without a branch.
uint32_t* merge_three(const PairTable& pairs, const uint32_t* symbols, const uint32_t* places, uint32_t* out) {
    const Merge &left = pairs.at(places[0]), &right = pairs.at(places[1]);
    uint32_t left_rank = PairTable::rank_for(left, PairTable::pair(symbols[0], symbols[1]));
    uint32_t right_rank = PairTable::rank_for(right, PairTable::pair(symbols[1], symbols[2]));
    uint32_t is_left = unguessed(left_rank <= right_rank), is_some = unguessed(std::min(left_rank, right_rank) < kNoRank);
    uint32_t first = chosen(is_left, left.result, symbols[0]), second = chosen(is_left, symbols[2], right.result);
    uint64_t both = PairTable::pair(first, second);
    const Merge& whole = pairs.at(pairs.place(both));
    uint32_t is_whole = unguessed(PairTable::rank_for(whole, both) < kNoRank) & is_some;
    out[0] = chosen(is_whole, whole.result, chosen(is_some, first, symbols[0]));
    out[1] = chosen(is_some, second, symbols[1]);
    out[2] = symbols[2];
    return out + 3 - is_some - is_whole;
}

uint32_t* merge_few(const PairTable& pairs, const uint32_t* symbols, const uint32_t* places, size_t count, uint32_t* out) {
    uint32_t ids[kFewAtOnce + 2], ranks[kFewAtOnce + 2], results[kFewAtOnce + 2];  // of the pair that begins there
    auto renew = [&](size_t i, uint32_t place) {
        const Merge& merge = pairs.at(place);
        ranks[i] = PairTable::rank_for(merge, PairTable::pair(ids[i], ids[i + 1]));
        results[i] = merge.result;
    };
    ids[0] = ids[count + 1] = PairTable::kNothing;
    std::copy(symbols, symbols + count, ids + 1);
    for (size_t i = 1; i < count; ++i) renew(i, places[i - 1]);
    for (;;) {
        size_t best = 1;
        for (size_t i = 2; i < count; ++i) best = ranks[i] < ranks[best] ? i : best;
        if (count == 1 || ranks[best] == kNoRank) break;
        ids[best] = results[best];
        uint32_t before = pairs.place(PairTable::pair(ids[best - 1], ids[best]));
        uint32_t after = pairs.place(PairTable::pair(ids[best], ids[best + 2]));
        for (size_t i = best + 1; i <= count; ++i) ids[i] = ids[i + 1];
        for (size_t i = best + 1; i + 1 < count; ++i) ranks[i] = ranks[i + 1], results[i] = results[i + 1];
        --count;
        renew(best - 1, before);
        renew(best, after);
    }
    return std::copy(ids + 1, ids + 1 + count, out);
}

}  // namespace gristmill
