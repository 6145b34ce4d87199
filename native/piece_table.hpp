// Bounded memory of pieces already encoded, one per thread. Forgetting an entry costs time, never changes an id.
//
// Pieces of up to 15 bytes lie whole in a 32-byte slot beside up to three ids, so a hit touches one cache line and
// compares the full key. Longer pieces have their bytes and ids in an arena.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "memory.hpp"
#include "short_key.hpp"

namespace gristmill {

struct ShortSlot {
    ShortKey key;  // size byte 0: empty
    uint32_t ids[3];
    uint32_t count;  // over 3: ids[0] is where they start in the arena
};
static_assert(sizeof(ShortSlot) == 32);

// Of two slots side by side: bits 0 to 7 all set when the first has this key, 8 to 15 when the second has.
inline unsigned which_has(const ShortSlot* slots, const ShortKey& key) {
#if defined(__SSE2__)
    __m128i wanted = _mm_loadu_si128(reinterpret_cast<const __m128i*>(&key));
    __m128i first = _mm_cmpeq_epi32(wanted, _mm_loadu_si128(reinterpret_cast<const __m128i*>(&slots[0].key)));
    __m128i second = _mm_cmpeq_epi32(wanted, _mm_loadu_si128(reinterpret_cast<const __m128i*>(&slots[1].key)));
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi32(first, second)));
#else
    return (slots[0].key == key ? 0xFFu : 0u) | (slots[1].key == key ? 0xFF00u : 0u);
#endif
}

class PieceTable {
public:
    // max_bytes bounds everything held here.
    explicit PieceTable(size_t max_bytes);

    // Two slots in one cache line: where a piece lies unless they were taken. A copy of where they are, so that loops which
    // write elsewhere keep it in registers; it holds until slots move.
    struct Homes {
        const ShortSlot* slots;
        unsigned shift;
        const ShortSlot* of(uint64_t hash) const { return slots + (hash >> shift) * 2; }
    };
    Homes homes() const { return {slots_.data(), shift_}; }
    // The slot of the key, or nullptr.
    const ShortSlot* find(const ShortKey& key, uint64_t hash) const;
    // The new slot, or nullptr when there was no room near its home.
    const ShortSlot* insert(const ShortKey& key, uint64_t hash, const uint32_t* ids, size_t count);
    // The same in three steps, for many pieces at a time: between room for `count` more and their last `fill` no slot
    // moves. False when slots have moved to make room.
    bool make_room(size_t count);
    ShortSlot* claim(const ShortKey& key, uint64_t hash);
    void fill(ShortSlot* slot, const uint32_t* ids, size_t count);
    // A piece that was found elsewhere than at home changes places with one that is there: words that come often are soon at
    // home, where a look-up is cheapest. Only while nobody holds slots.
    void bring_home(const ShortKey& key, const ShortSlot* slot, uint64_t hash);
    // Changes when slots have moved or been forgotten.
    size_t generation() const { return generation_; }
    const uint32_t* arena(uint32_t at) const { return arena_ids_.data() + at; }

    // The ids of a piece longer than ShortKey::kMaxBytes, by hash_bytes.
    struct Found {
        const uint32_t* ids;
        size_t count;
    };
    void prefetch_long(uint64_t hash) const { __builtin_prefetch(&long_slots_[hash >> long_shift_]); }
    // Its ids stay there until long pieces are forgotten.
    Found find_long(std::string_view piece, uint64_t hash) const;
    size_t times_long_forgotten() const { return times_long_forgotten_; }
    void insert_long(std::string_view piece, uint64_t hash, const uint32_t* ids, size_t count);

    size_t memory_bytes() const;

private:
    static constexpr size_t kProbes = 8;  // bounds the cost of colliding pieces
    struct LongSlot {
        uint64_t hash;
        uint32_t key_at, key_size, ids_at, count;  // key_size 0: empty
    };
    ShortSlot* free_slot(uint64_t hash);
    LongSlot* free_long_slot(uint64_t hash);
    void grow_short();
    void grow_long();
    void forget_short();
    void forget_long();

    size_t max_short_slots_, max_long_slots_, max_arena_bytes_;
    RoomyArray<ShortSlot> slots_;
    unsigned shift_;
    size_t num_short_ = 0, generation_ = 0;
    size_t num_brought_home_ = 0;
    RoomyArray<uint32_t> arena_ids_;
    RoomyArray<LongSlot> long_slots_;
    unsigned long_shift_;
    size_t num_long_ = 0, times_long_forgotten_ = 0;
    RoomyArray<uint8_t> long_keys_;
    RoomyArray<uint32_t> long_ids_;
};

}  // namespace gristmill
