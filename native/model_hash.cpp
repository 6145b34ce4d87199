#include "model_hash.hpp"

#include <algorithm>
#include <bit>

namespace gristmill {

namespace {
bool has_equal(std::vector<uint64_t> keys) {
    std::sort(keys.begin(), keys.end());
    return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}
}  // namespace

// One try does as a rule; a million and a half keys have needed three.
bool PerfectHash::build(std::span<const uint64_t> keys) {
    for (int tries = 0; tries < 32; ++tries, factor_ *= 0xD1342543DE82EF95ull) {
        if (place_all(keys)) return true;
        if (tries == 0 && has_equal({keys.begin(), keys.end()})) return false;
    }
    return false;
}

bool PerfectHash::take(size_t num_keys, const Found& found) {
    make_buckets(num_keys);
    if (found.buckets.size() != buckets_.size()) return false;
    factor_ = found.factor;
    buckets_ = found.buckets;
    return true;
}

void PerfectHash::make_buckets(size_t num_keys) {
    size_t buckets = std::bit_ceil(std::max<size_t>(num_keys / 3, 2));
    num_places_ = num_keys + num_keys / 4 + 1;
    shift_ = 64 - static_cast<unsigned>(std::countr_zero(buckets));
    buckets_.assign(buckets, 0);
}

// Buckets of many keys choose their places first, those of one or two fill the gaps. With two or three keys to a
// bucket, one of 256 numbers does for each as a rule.
bool PerfectHash::place_all(std::span<const uint64_t> keys) {
    make_buckets(keys.size());
    size_t buckets = buckets_.size();
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
        uint32_t bits = 0;
        for (uint64_t key : bucket) bits |= 1u << bit_of(key * factor_);
        size_t placed = 0;
        for (uint32_t seed = 0; seed <= 0xFF && placed < bucket.size(); ++seed) {
            buckets_[b] = static_cast<uint16_t>(bits | seed);
            for (placed = 0; placed < bucket.size() && !is_taken[place(bucket[placed])]; ++placed) is_taken[place(bucket[placed])] = 1;
            for (size_t i = 0; i < placed && placed < bucket.size(); ++i) is_taken[place(bucket[i])] = 0;  // taken back
        }
        if (placed < bucket.size()) return false;
    }
    return true;
}

}  // namespace gristmill
