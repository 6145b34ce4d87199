// Sets of numbers that may say "yes" wrongly.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "memory.hpp"

namespace gristmill {

// A set of numbers; "has" may be wrong. Both bits of a number lie in one word.
struct Bloom {
    HugeVector<uint64_t> words{0, 0};
    unsigned shift = 63;

    static constexpr size_t kFewestWords = 64;

    void make_room(size_t count) { resize(std::bit_ceil(std::max(count / 4, kFewestWords))); }  // 16 bits for each
    static bool has_size(size_t num_words) { return num_words >= kFewestWords && std::has_single_bit(num_words); }
    // Nothing is in it then.
    void resize(size_t num_words) {
        words.assign(num_words, 0);
        shift = 64 - static_cast<unsigned>(std::countr_zero(num_words));
    }
    static uint64_t hash(uint64_t key) { return key * 0x9E3779B97F4A7C15ull; }
    static uint64_t bits(uint64_t h) { return 1ull << (h >> 20 & 63) | 1ull << (h >> 26 & 63); }
    void add(uint64_t key) { words[hash(key) >> shift] |= bits(hash(key)); }
    bool has(uint64_t key) const {
        uint64_t h = hash(key);
        return (words[h >> shift] & bits(h)) == bits(h);
    }
};

}  // namespace gristmill
