#include "model_hash.hpp"

#include <algorithm>
#include <bit>

namespace gristmill {

bool PerfectHash::build(std::span<const uint64_t> keys) {
    for (int tries = 0; tries < 8; ++tries, factor_ *= 0xD1342543DE82EF95ull) {
        if (place_all(keys)) return true;
    }
    return false;
}

bool PerfectHash::take(size_t num_keys, const Found& found) {
    make_buckets(num_keys);
    if (found.seeds.size() != seeds_.size()) return false;
    factor_ = found.factor;
    seeds_ = found.seeds;
    return true;
}

void PerfectHash::make_buckets(size_t num_keys) {
    size_t buckets = std::bit_ceil(std::max<size_t>(num_keys / 4, 2));
    num_places_ = num_keys + num_keys / 4 + 1;
    shift_ = 64 - static_cast<unsigned>(std::countr_zero(buckets));
    seeds_.assign(buckets, 0);
}

// Buckets of many keys choose their places first, those of one or two fill the gaps.
bool PerfectHash::place_all(std::span<const uint64_t> keys) {
    make_buckets(keys.size());
    size_t buckets = seeds_.size();
    std::vector<uint32_t> begin(buckets + 1), order(buckets);
    for (uint64_t key : keys) ++begin[(key * factor_ >> shift_) + 1];
    for (size_t b = 0; b < buckets; ++b) order[b] = static_cast<uint32_t>(b);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return std::pair(begin[b + 1], a) < std::pair(begin[a + 1], b); });
    for (size_t b = 0; b < buckets; ++b) begin[b + 1] += begin[b];
    std::vector<uint64_t> members(keys.size());
    std::vector<uint32_t> filled(begin.begin(), begin.end() - 1);
    for (uint64_t key : keys) members[filled[key * factor_ >> shift_]++] = key;
    std::vector<uint8_t> is_taken(num_places_);
    for (uint32_t b : order) {
        std::span<const uint64_t> bucket(members.data() + begin[b], begin[b + 1] - begin[b]);
        size_t placed = 0;
        for (unsigned seed = 0; seed < 0x10000 && placed < bucket.size(); ++seed) {
            seeds_[b] = static_cast<uint16_t>(seed);
            for (placed = 0; placed < bucket.size() && !is_taken[place(bucket[placed])]; ++placed) is_taken[place(bucket[placed])] = 1;
            for (size_t i = 0; i < placed && placed < bucket.size(); ++i) is_taken[place(bucket[i])] = 0;  // taken back
        }
        if (placed < bucket.size()) return false;
    }
    return true;
}

}  // namespace gristmill
