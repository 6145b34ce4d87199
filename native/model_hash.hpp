// Perfect hashing: keys known beforehand -> places of their own in an array little larger than their number.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace gristmill {

// Each bucket of keys has a number, found when the table is built, that sends its keys to free places. A look-up reads one
// such number, of a table that fits L2, and branches on nothing. Keys that were not given get some place as well.
class PerfectHash {
public:
    // False when no such places were found (two keys are equal, say).
    bool build(std::span<const uint64_t> keys);
    uint32_t place(uint64_t key) const {
        uint64_t h = key * factor_;
        uint32_t moved = (static_cast<uint32_t>(h >> 12) ^ seeds_[h >> shift_]) * kSpread;  // keys alike in upper bits part, too
        return static_cast<uint32_t>(uint64_t{moved} * num_places_ >> 32);
    }
    size_t num_places() const { return num_places_; }

    // What `build` found out, and the same places again for as many keys without the search. False when it is not of so many;
    // of other keys it is no perfect hash.
    struct Found {
        uint64_t factor = 0;
        std::vector<uint16_t> seeds;
    };
    Found found() const { return {factor_, seeds_}; }
    bool take(size_t num_keys, const Found& found);

private:
    void make_buckets(size_t num_keys);
    static constexpr uint32_t kSpread = 0x9E3779B1u;
    bool place_all(std::span<const uint64_t> keys);

    std::vector<uint16_t> seeds_ = std::vector<uint16_t>(2);
    uint64_t num_places_ = 1, factor_ = 0x9E3779B97F4A7C15ull;
    unsigned shift_ = 63;
};

}  // namespace gristmill
