#include "piece_table.hpp"

#include <algorithm>
#include <utility>

namespace gristmill {

namespace {
constexpr size_t kFewestSlots = 1 << 14;
constexpr size_t kFewestArenaBytes = 1 << 16;  // for whatever comes between two calls of make_room
// To begin with, 8 MB where so much is allowed: room for the pieces of 14 MB of English.
constexpr size_t kFirstSlots = 1 << 18, kFirstLongSlots = 1 << 16;
unsigned shift_for(size_t slots) { return 64 - static_cast<unsigned>(std::countr_zero(slots)); }
}  // namespace

// Of 32 parts of the budget 20 for the slots of short pieces, and 3 each for their ids and for the slots, bytes and ids
// of long ones, of which few come again.
PieceTable::PieceTable(size_t max_bytes)
    : max_short_slots_(std::max(kFewestSlots, std::bit_floor(max_bytes / 32 * 20 / sizeof(ShortSlot)))),
      max_long_slots_(std::max(kFewestSlots, std::bit_floor(max_bytes / 32 * 3 / sizeof(LongSlot)))),
      max_arena_bytes_(std::max(max_bytes / 32 * 3, kFewestArenaBytes)),
      slots_(max_short_slots_, std::min(kFirstSlots, max_short_slots_)),
      shift_(shift_for(slots_.size() / 2)),
      arena_ids_(max_arena_bytes_ / sizeof(uint32_t)),
      long_slots_(max_long_slots_, std::min(kFirstLongSlots, max_long_slots_)),
      long_shift_(shift_for(long_slots_.size())),
      long_keys_(max_arena_bytes_),
      long_ids_(max_arena_bytes_ / sizeof(uint32_t)) {}

const ShortSlot* PieceTable::find(const ShortKey& key, uint64_t hash) const {
    const ShortSlot* first = homes().of(hash);
    if (first[1].key.high == 0) return first->key == key ? first : nullptr;  // room at home: it can be nowhere else
    size_t mask = slots_.size() - 1;
    size_t i = (hash >> shift_) * 2;
    for (size_t probe = 0; probe < kProbes; ++probe, i = (i + 1) & mask) {
        if (slots_[i].key == key) return &slots_[i];
        if (slots_[i].key.high == 0) return nullptr;
    }
    return nullptr;
}

// The first free slot for the hash, or nullptr when all within reach are taken.
ShortSlot* PieceTable::free_slot(uint64_t hash) {
    size_t mask = slots_.size() - 1;
    size_t i = (hash >> shift_) * 2;
    for (size_t probe = 0; probe < kProbes; ++probe, i = (i + 1) & mask) {
        if (slots_[i].key.high == 0) return &slots_[i];
    }
    return nullptr;
}

bool PieceTable::make_room(size_t count) {
    size_t before = generation_;
    if ((num_short_ + count) * 2 > slots_.size()) grow_short();
    if ((arena_ids_.size() + count * ShortKey::kMaxBytes) * sizeof(uint32_t) > max_arena_bytes_) forget_short();
    return generation_ == before;
}

ShortSlot* PieceTable::claim(const ShortKey& key, uint64_t hash) {
    ShortSlot* slot = free_slot(hash);
    if (!slot) return nullptr;
    slot->key = key;
    slot->count = 0;
    ++num_short_;
    return slot;
}

void PieceTable::fill(ShortSlot* slot, const uint32_t* ids, size_t count) {
    if (count <= 3) {
        std::copy(ids, ids + count, slot->ids);
    } else {
        slot->ids[0] = static_cast<uint32_t>(arena_ids_.size());
        arena_ids_.append(ids, count);
    }
    slot->count = static_cast<uint32_t>(count);
}

// Only with a piece of the same home, which is found there as this one was: places between are taken and stay so.
void PieceTable::bring_home(const ShortKey& key, const ShortSlot* slot, uint64_t hash) {
    if (!(slot->key == key)) return;  // they have changed places since
    ShortSlot* home = slots_.data() + (hash >> shift_) * 2;
    ShortSlot* other = home + (num_brought_home_++ & 1);  // which of the two is used less, nobody knows
    if (homes().of(other->key.hash()) == home) std::swap(*other, slots_[static_cast<size_t>(slot - slots_.data())]);
}

const ShortSlot* PieceTable::insert(const ShortKey& key, uint64_t hash, const uint32_t* ids, size_t count) {
    make_room(1);
    ShortSlot* slot = claim(key, hash);
    if (slot) fill(slot, ids, count);
    return slot;
}

namespace {
bool is_empty(const ShortSlot& slot) { return slot.key.high == 0; }
template <typename Slot>
bool is_empty(const Slot& slot) { return slot.key_size == 0; }

// Slots have become twice as many: puts each piece where it belongs now. From the last to the first, since a piece
// then moves up to places that nobody has to leave any more; the first few, some from round the end, wait aside.
template <size_t kProbes, typename Slot, typename Put>
void spread(Slot* slots, size_t old_size, const Put& put) {
    constexpr size_t kAside = 2 * kProbes;
    Slot aside[kAside];
    std::copy_n(slots, kAside, aside);
    std::fill_n(slots, kAside, Slot{});
    for (size_t i = old_size; i-- > kAside;) {
        if (is_empty(slots[i])) continue;
        put(std::exchange(slots[i], Slot{}));
    }
    for (const Slot& slot : aside) {
        if (!is_empty(slot)) put(slot);
    }
}
}  // namespace

void PieceTable::grow_short() {
    if (slots_.size() >= max_short_slots_) {
        forget_short();
        return;
    }
    size_t old_size = slots_.size();
    slots_.resize(old_size * 2);
    shift_ = shift_for(slots_.size() / 2);
    num_short_ = 0;
    ++generation_;
    spread<kProbes>(slots_.data(), old_size, [&](const ShortSlot& slot) {
        if (ShortSlot* free = free_slot(slot.key.hash())) {
            *free = slot;
            ++num_short_;
        }
    });
}

void PieceTable::forget_short() {
    std::fill(slots_.begin(), slots_.end(), ShortSlot{});
    arena_ids_.clear();
    num_short_ = 0;
    ++generation_;
}

PieceTable::Found PieceTable::find_long(std::string_view piece, uint64_t hash) const {
    size_t mask = long_slots_.size() - 1;
    size_t i = hash >> long_shift_;
    for (size_t probe = 0; probe < kProbes; ++probe, i = (i + 1) & mask) {
        const LongSlot& slot = long_slots_[i];
        if (slot.key_size == 0) break;
        if (slot.hash == hash && slot.key_size == piece.size() &&
            std::memcmp(long_keys_.data() + slot.key_at, piece.data(), piece.size()) == 0) {
            return {long_ids_.data() + slot.ids_at, slot.count};
        }
    }
    return {nullptr, 0};
}

void PieceTable::insert_long(std::string_view piece, uint64_t hash, const uint32_t* ids, size_t count) {
    if (piece.size() > long_keys_.capacity() || count > long_ids_.capacity()) return;
    if (num_long_ * 2 >= long_slots_.size()) grow_long();
    if (long_keys_.size() + piece.size() > max_arena_bytes_ ||
        (long_ids_.size() + count) * sizeof(uint32_t) > max_arena_bytes_) {
        forget_long();
    }
    LongSlot* slot = free_long_slot(hash);
    if (!slot) return;
    auto key_at = static_cast<uint32_t>(long_keys_.size()), ids_at = static_cast<uint32_t>(long_ids_.size());
    long_keys_.append(reinterpret_cast<const uint8_t*>(piece.data()), piece.size());
    long_ids_.append(ids, count);
    *slot = {hash, key_at, static_cast<uint32_t>(piece.size()), ids_at, static_cast<uint32_t>(count)};
    ++num_long_;
}

PieceTable::LongSlot* PieceTable::free_long_slot(uint64_t hash) {
    size_t mask = long_slots_.size() - 1;
    size_t i = hash >> long_shift_;
    for (size_t probe = 0; probe < kProbes; ++probe, i = (i + 1) & mask) {
        if (long_slots_[i].key_size == 0) return &long_slots_[i];
    }
    return nullptr;
}

void PieceTable::grow_long() {
    if (long_slots_.size() >= max_long_slots_) {
        forget_long();
        return;
    }
    size_t old_size = long_slots_.size();
    long_slots_.resize(old_size * 2);
    long_shift_ = shift_for(long_slots_.size());
    num_long_ = 0;
    spread<kProbes>(long_slots_.data(), old_size, [&](const LongSlot& slot) {
        if (LongSlot* free = free_long_slot(slot.hash)) {
            *free = slot;
            ++num_long_;
        }
    });
}

void PieceTable::forget_long() {
    std::fill(long_slots_.begin(), long_slots_.end(), LongSlot{});
    long_keys_.clear();
    long_ids_.clear();
    num_long_ = 0;
    ++times_long_forgotten_;
}

size_t PieceTable::memory_bytes() const {
    return slots_.memory_bytes() + long_slots_.memory_bytes() + long_keys_.memory_bytes() + arena_ids_.memory_bytes() +
           long_ids_.memory_bytes();
}

}  // namespace gristmill
