// Which characters some token joins with a neighbour, for scripts of three bytes a character: few do, and all others are
// encoded by themselves.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "bloom.hpp"

namespace gristmill {

// Says of two characters side by side, each of one byte or three, whether some token may lie across the place between them.
// "Yes" may be wrong, "no" never is (docs/design.md, coverage cuts).
//
// A token that lies there shows the whole of both characters, or it begins or ends inside one. The first are a set of pairs;
// of the second there are few, told apart by bits that both characters have.
class JoinFilter {
public:
    // index = id; `made` are those that merges make, `whole` those that merging does not reach and whole pieces may be.
    void build(std::span<const std::string_view> tokens, std::span<const uint32_t> made, std::span<const uint32_t> whole);

    // The bits a character has in front of a place, and those it has behind one.
    struct Sides {
        uint32_t before, behind;
    };
    static constexpr unsigned kNumBits = 14;
    Sides sides_of(const uint8_t* character, size_t length) const;
    // Is the token of this character alone, which merging does not reach, for whole pieces?
    bool is_odd(const uint8_t* character, size_t length) const;

    // Where the pairs lie: a copy for loops that write elsewhere, which keep it in registers.
    struct Pairs {
        const uint64_t* words;
        unsigned shift;

        // 1 if some token may show the whole of both, given as numbers of up to three bytes, or 0. Without a branch: it cannot be guessed.
        unsigned has(uint32_t before, uint32_t behind) const {
            uint64_t h = Bloom::hash(pair(before, behind)), bits = Bloom::bits(h);
            return (words[h >> shift] & bits) == bits;
        }
    };
    Pairs pairs() const { return {pairs_.words.data(), pairs_.shift}; }

private:
    // Of what tokens show of a character that they begin or end in or beside, by a hash.
    class Bits {
    public:
        void add(uint32_t shown, uint32_t bit) { bits_[place(shown)] |= static_cast<uint16_t>(bit); }
        uint32_t of(uint32_t shown) const { return bits_[place(shown)]; }

    private:
        static uint32_t place(uint32_t shown) { return shown * 0x9E3779B1u >> 19; }
        std::vector<uint16_t> bits_ = std::vector<uint16_t>(1 << 13);
    };
    static uint64_t pair(uint32_t before, uint32_t behind) { return before | uint64_t{behind} << 24; }
    void add_place(std::string_view token, size_t at, std::vector<uint64_t>& pairs);

    Bloom pairs_;
    Bits before_, behind_;
    std::vector<uint32_t> odd_;  // in order
};

}  // namespace gristmill
