// Pieces -> counts: open addressing in one flat array of 24-byte slots.
//
// Pieces of up to 15 bytes lie whole in their slot, longer ones in an arena. Growing needs the old and the new array
// at once; sorting needs no memory: slots are moved together and sorted where they lie.
#pragma once
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "memory.hpp"
#include "short_key.hpp"

namespace gristmill {

struct CountSlot {
    ShortKey key;
    uint64_t count;
};

// Slots in memory of their own, empty at first.
class CountSlots {
public:
    CountSlots() = default;
    explicit CountSlots(size_t size) : pages_(size * sizeof(CountSlot)), size_(size) {}
    CountSlot& operator[](size_t i) const { return begin()[i]; }
    CountSlot* begin() const { return reinterpret_cast<CountSlot*>(pages_.data()); }
    CountSlot* end() const { return begin() + size_; }
    size_t size() const { return size_; }

private:
    Pages pages_;
    size_t size_ = 0;
};

class CountTable {
public:
    // The arena grows by chunk_bytes at a time.
    CountTable(size_t num_slots, size_t chunk_bytes);

    size_t size() const { return size_; }
    size_t num_slots() const { return slots_.size(); }
    // Slots for so many pieces, a third of them free: then a look-up seldom leaves its cache line.
    static size_t slots_for(size_t num_pieces) { return num_pieces + num_pieces / 2 + 1; }
    static size_t pieces_in(size_t num_slots) { return num_slots / 3 * 2; }
    bool has_room(size_t num_pieces) const { return size_ + num_pieces <= pieces_in(slots_.size()); }
    size_t slot_bytes() const { return slots_.size() * sizeof(CountSlot); }
    size_t arena_bytes() const { return arena_bytes_; }
    // The most that the arena grows by for long pieces of so many bytes in all.
    size_t arena_growth(size_t num_pieces, size_t num_bytes) const;
    static constexpr size_t bytes_of_slots(size_t num_slots) { return num_slots * sizeof(CountSlot); }

    void prefetch(uint64_t hash) const {
        const auto* slot = reinterpret_cast<const char*>(&slots_[home(hash)]);
        __builtin_prefetch(slot, 1);
        __builtin_prefetch(slot + sizeof(CountSlot) - 1, 1);
    }
    // Adds to a piece of 1 to 15 bytes, or enters it; needs room.
    void add_short(const ShortKey& key, uint64_t hash, uint64_t weight) {
        size_t i = home(hash);
        while (!(slots_[i].key == key)) {
            if (slots_[i].key.high == 0) [[unlikely]] {
                slots_[i].key = key;
                ++size_;
                break;
            }
            if (++i == slots_.size()) i = 0;
        }
        slots_[i].count += weight;
    }
    // The same for a longer piece, by hash_bytes.
    void add_long(std::string_view piece, uint64_t hash, uint64_t weight);

    void resize(size_t num_slots);
    // Drops the rarest pieces, at least half of all and half of the arena.
    struct Forgotten {
        uint64_t total_count = 0, largest_count = 0;
    };
    Forgotten forget();
    // Empties the table and gives its memory back; then there are so many slots.
    void reset(size_t num_slots);
    // Pieces of several tables, those of each in order of their bytes.
    using Sorted = std::vector<std::span<const CountSlot>>;
    // The tables, which are sorted side by side, can only be reset afterwards.
    static Sorted sort(std::span<CountTable* const> tables);
    // Parts with about so many slots of each table, in order: all slots of a piece are in one of them.
    static std::vector<Sorted> cut(Sorted sorted, size_t part_size);
    // Gives the pieces in order, each once with the sum of its counts.
    static void take(Sorted sorted, const std::function<void(std::string_view piece, uint64_t count)>& take);

private:
    // key.high: 0 is an empty slot; a top byte of kLong means that the rest is the address of the piece in the arena
    // (its size in four bytes, then its bytes) and key.low its hash.
    using Slot = CountSlot;
    static constexpr uint64_t kLong = uint64_t{0x80} << 56;

    static bool is_long(const Slot& slot) { return slot.key.high & kLong; }
    static const uint8_t* entry_of(const Slot& slot) { return reinterpret_cast<const uint8_t*>(slot.key.high & ~kLong); }
    static std::string_view piece_at(const uint8_t* entry) {
        uint32_t size;
        std::memcpy(&size, entry, sizeof size);
        return {reinterpret_cast<const char*>(entry) + sizeof size, size};
    }
    static uint64_t hash_of(const Slot& slot) { return is_long(slot) ? slot.key.low : slot.key.hash(); }
    size_t home(uint64_t hash) const { return static_cast<size_t>(static_cast<unsigned __int128>(hash) * slots_.size() >> 64); }
    void enter(const Slot& slot);
    uint8_t* set_aside(size_t bytes);
    const uint8_t* keep(std::string_view piece);
    uint64_t forgettable() const;
    std::span<const CountSlot> sort_slots();
    void move_arena();

    CountSlots slots_;
    size_t size_ = 0;
    size_t chunk_bytes_, arena_bytes_ = 0;
    std::vector<Pages> chunks_;
    uint8_t *chunk_next_ = nullptr, *chunk_end_ = nullptr;
};

}  // namespace gristmill
