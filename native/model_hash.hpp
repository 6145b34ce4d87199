// Perfect hashing: keys known beforehand -> places of their own in an array little larger than their number.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

// Each bucket of keys has a number, found when the table is built, that sends its keys to free places, and beside it eight
// bits, of which each key has one. A look-up reads both, of a table that fits L2, and branches on nothing. Keys that were not
// given get some place as well: most of them the first, as no key has their bit.
class PerfectHash {
public:
    // False when no such places were found (two keys are equal, say).
    bool build(std::span<const uint64_t> keys);
    uint32_t place(uint64_t key) const {
        uint64_t h = key * factor_;
        uint32_t bucket = buckets_[h >> shift_];
        uint32_t may_be = bucket >> bit_of(h) & 1;
        return place_by(h, bucket) & -may_be;
    }
    size_t num_places() const { return num_places_; }

    // What `build` found out, and the same places again for as many keys without the search. False when it is not of so many;
    // of other keys it is no perfect hash.
    struct Found {
        uint64_t factor = 0;
        std::vector<uint16_t> buckets;
    };
    Found found() const { return {factor_, buckets_}; }
    bool take(size_t num_keys, const Found& found);

private:
    void make_buckets(size_t num_keys);
    static constexpr uint32_t kSpread = 0x9E3779B1u;
    bool place_all(std::span<const uint64_t> keys);
    // In a bucket: the next bits of the hash.
    unsigned bit_of(uint64_t h) const { return 8 + (h >> (shift_ - 3) & 7); }
    uint32_t place_by(uint64_t h, uint32_t bucket) const {
        // Keys of one bucket are alike in the uppermost bits; two whose upper halves differ by a multiple of 4096, in the middle ones.
        uint32_t moved = (static_cast<uint32_t>(h >> 12 ^ h >> 44) ^ (bucket & 0xFF)) * kSpread;
        return static_cast<uint32_t>(uint64_t{moved} * num_places_ >> 32);
    }

    std::vector<uint16_t> buckets_ = std::vector<uint16_t>(2);  // the number in the lower byte
    uint64_t num_places_ = 1, factor_ = 0x9E3779B97F4A7C15ull;
    unsigned shift_ = 63;
};

}  // namespace gristmill
