// Where a merge could cross a place in a text.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bloom.hpp"

namespace gristmill {

// Says of a position in a text whether some token could cover it. "Yes" may be wrong, "no" never is, so where it
// says no, merging the two sides apart gives the same tokens (docs/design.md, coverage cuts).
//
// A token that covers a position starts 1, 2, or 3 and more bytes before it and ends as many after it: nine cases,
// each a set of (bytes before, bytes after) in one Bloom filter. Four small exact tables of byte pairs tell first
// whether any token starts or ends so close; inside running Chinese, say, few do, and one probe decides.
class CoverFilter {
public:
    void build(std::span<const std::string_view> tokens, std::span<const uint32_t> ids);
    // As bytes, and made of them again; ModelError for bytes that are none.
    void pack(std::string& out) const;
    static CoverFilter unpack(std::string_view packed);
    // Do these two bytes stand side by side in some token?
    bool are_neighbours(uint8_t a, uint8_t b) const { return neighbours_.has(a, b); }
    // May a token lie across `at` in text[0, size)? 0 < at < size.
    bool may_cover(const uint8_t* text, size_t size, size_t at) const {
        const uint8_t* p = text + at;
        if (!neighbours_.has(p[-1], p[0])) return false;
        if (at < 3 || size - at < 3) return may_cover_near_edge(text, size, at);
        uint32_t before = uint32_t{p[-3]} | uint32_t{p[-2]} << 8 | uint32_t{p[-1]} << 16;
        uint32_t after = uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16;
        if (has(context_key(before, after, 3, 3))) return true;
        unsigned lefts = 4 | starts_1_.has(p[-1], p[0]) | starts_2_.has(p[-2], p[-1]) << 1;
        unsigned rights = 4 | ends_1_.has(p[-1], p[0]) | ends_2_.has(p[0], p[1]) << 1;
        return (lefts | rights) != 4 && may_cover_closely(before, after, lefts, rights);
    }

    // The same with six bytes of text around the place, most of all for places between characters of three bytes or more. There
    // a token starts or ends closer than three bytes only if it begins or ends inside a character, and those few are known
    // by the two or three bytes they begin or end with.
    bool may_cover_between(const uint8_t* p) const {
        uint32_t low, high;
        std::memcpy(&low, p - 3, 4);
        std::memcpy(&high, p - 1, 4);
        bool is_between = is_between_characters(low);
        bool is_close = across_2_1_.has(low >> 8) | across_1_2_.has(high & 0xFFFFFF) | across_1_1_.has(p[-1], p[0]);
        if (!is_between | is_close) [[unlikely]] return may_cover(p - 3, 6, 3);
        return between_.has(low | uint64_t{high >> 16} << 32);
    }

private:
    // Sets of three bytes; "has" may be wrong.
    struct TripleSet {
        std::vector<uint64_t> bits = std::vector<uint64_t>(1024);
        static uint32_t place(uint32_t triple) { return triple * 0x9E3779B1u >> 16; }
        void add(uint32_t triple) { bits[place(triple) >> 6] |= 1ull << (place(triple) & 63); }
        bool has(uint32_t triple) const { return bits[place(triple) >> 6] >> (place(triple) & 63) & 1; }
    };
    // 256 x 256 bits.
    struct PairSet {
        std::vector<uint64_t> bits = std::vector<uint64_t>(1024);
        void add(uint8_t a, uint8_t b) { bits[(a << 8 | b) >> 6] |= 1ull << (b & 63); }
        unsigned has(uint8_t a, uint8_t b) const { return bits[(a << 8 | b) >> 6] >> (b & 63) & 1; }
    };
    // Bytes around a position: the last `left` before it, the first `right` after it, and both counts, as one number.
    // before/after hold three bytes each, the nearest to the position highest/lowest.
    static uint64_t context_key(uint32_t before, uint32_t after, unsigned left, unsigned right) {
        uint64_t kept = before >> 8 * (3 - left);
        uint64_t first = after & ((1u << 8 * right) - 1);
        return kept | first << 24 | uint64_t{left} << 48 | uint64_t{right} << 50;
    }
    // The last of four bytes begins a character of three bytes or more, and the two before it do not begin one: the one before has
    // as many.
    static bool is_between_characters(uint32_t four) { return (four & 0xE0C0C000u) == 0xE0808000u; }
    void add_across(const uint8_t* token, size_t size);
    bool has(uint64_t key) const { return around_.has(key); }
    // Those of one size.
    template <typename Self>
    static auto small_sets(Self& self) {
        return std::array{&self.neighbours_.bits, &self.starts_1_.bits, &self.starts_2_.bits, &self.ends_1_.bits, &self.ends_2_.bits,
                          &self.across_1_1_.bits, &self.across_2_1_.bits, &self.across_1_2_.bits};
    }
    bool may_cover_near_edge(const uint8_t* text, size_t size, size_t at) const;
    // lefts, rights: bit l - 1 set when a token may start (end) l bytes away.
    bool may_cover_closely(uint32_t before, uint32_t after, unsigned lefts, unsigned rights) const;

    Bloom around_;
    Bloom between_;  // of (six bytes) between characters of three bytes or more: small, and running Chinese asks it alone
    PairSet neighbours_, starts_1_, starts_2_, ends_1_, ends_2_;
    // First or last bytes of tokens that begin or end inside a character, so many before and after the place between it and another.
    PairSet across_1_1_;
    TripleSet across_2_1_, across_1_2_;
};

}  // namespace gristmill
