// Of a model of characters: the id of each character by its number, and which two neighbours some token joins.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "bloom.hpp"
#include "memory.hpp"
#include "unguessed.hpp"

namespace gristmill {

class CharacterTable {
public:
    // What there is to know of a character, in one word.
    static constexpr uint32_t kIdMask = (1u << 30) - 1;
    static constexpr uint32_t kNoToken = kIdMask;  // in the place of an id: it becomes the ids of its bytes
    static constexpr uint32_t kJoinsLeft = 1u << 30, kJoinsRight = 1u << 31;  // some token has it behind (before) another

    // index = id; `made` are those that merges make. Nothing is built when a token is not made of whole characters.
    void build(std::span<const std::string_view> tokens, std::span<const uint32_t> made, std::span<const uint32_t> byte_ids);
    bool is_built() const { return !entries_.empty(); }

    static constexpr uint32_t kNumbered = 0x10000;
    // Where it all lies: a copy for loops that write elsewhere, which keep it in registers.
    struct Entries {
        const uint32_t* entries;
        const uint64_t* joined;
        unsigned shift;

        // Of a character below kNumbered.
        uint32_t of(uint32_t character) const { return entries[character]; }
        // 1 if some token may have these two side by side, which may be wrong, or 0. Where it is 0, merging the two sides apart
        // gives the same tokens (docs/design.md, coverage cuts). kJoinsOften: whether to expect that both join something.
        template <bool kJoinsOften>
        uint32_t may_join(uint32_t left, uint32_t left_entry, uint32_t right, uint32_t right_entry) const {
            uint32_t can = (left_entry & (right_entry << 1)) >> 31;
            if (!kJoinsOften && !can) return 0;  // the same for nearly all of a text
            uint64_t h = Bloom::hash(pair(left, right));
            return unguessed((Bloom::bits(h) & ~joined[h >> shift]) == 0) & can;
        }
    };
    Entries entries() const { return {entries_.data(), joined_.words.data(), joined_.shift}; }
    // Do the characters of a usual text join others on both sides? In gemma's vocabulary one in seven of three bytes does, the
    // common ones among them, in llama2's one in 250.
    bool joins_often() const { return joins_often_; }
    // Of a character from kNumbered on, whose token, if it has one, is known.
    uint32_t entry_beyond(uint32_t id) const { return id < kNoToken ? id | beyond_ : kNoToken; }

private:
    static uint64_t pair(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
    void add_pair(uint32_t left, uint32_t right);

    HugeVector<uint32_t> entries_;
    uint32_t beyond_ = 0;  // flags of all characters without an entry
    bool joins_often_ = false;
    Bloom joined_;
};

}  // namespace gristmill
