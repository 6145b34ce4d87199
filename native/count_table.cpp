#include "count_table.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "threads.hpp"

namespace gristmill {

namespace {
constexpr size_t kSizeBytes = sizeof(uint32_t);
}  // namespace

CountTable::CountTable(size_t num_slots, size_t chunk_bytes) : slots_(num_slots), chunk_bytes_(chunk_bytes) {}

size_t CountTable::arena_growth(size_t num_pieces, size_t num_bytes) const {
    size_t needed = num_bytes + num_pieces * kSizeBytes;
    if (needed <= static_cast<size_t>(chunk_end_ - chunk_next_)) return 0;
    return needed + needed / 3 + chunk_bytes_;  // up to a quarter of a chunk stays unused
}

void CountTable::add_long(std::string_view piece, uint64_t hash, uint64_t weight) {
    size_t i = home(hash);
    for (; slots_[i].key.high != 0; i = i + 1 == slots_.size() ? 0 : i + 1) {
        if (is_long(slots_[i]) && slots_[i].key.low == hash && piece_at(entry_of(slots_[i])) == piece) {
            slots_[i].count += weight;
            return;
        }
    }
    auto address = reinterpret_cast<uint64_t>(keep(piece));
    slots_[i] = {{hash, kLong | address}, weight};
    ++size_;
}

// Memory for an entry; one of more than a quarter of a chunk has its own.
uint8_t* CountTable::set_aside(size_t bytes) {
    bool is_large = bytes > chunk_bytes_ / 4;
    if (is_large || static_cast<size_t>(chunk_end_ - chunk_next_) < bytes) {
        size_t size = is_large ? bytes : chunk_bytes_;
        chunks_.emplace_back(size);
        arena_bytes_ += size;
        if (is_large) return chunks_.back().data();
        chunk_next_ = chunks_.back().data();
        chunk_end_ = chunk_next_ + size;
    }
    return std::exchange(chunk_next_, chunk_next_ + bytes);
}

// Copies a piece into the arena.
const uint8_t* CountTable::keep(std::string_view piece) {
    uint8_t* entry = set_aside(kSizeBytes + piece.size());
    auto size = static_cast<uint32_t>(piece.size());
    std::memcpy(entry, &size, kSizeBytes);
    std::memcpy(entry + kSizeBytes, piece.data(), piece.size());
    return entry;
}

// A slot of another table, whose piece is not here yet.
void CountTable::enter(const Slot& slot) {
    size_t i = home(hash_of(slot));
    while (slots_[i].key.high != 0) i = i + 1 == slots_.size() ? 0 : i + 1;
    slots_[i] = slot;
    ++size_;
}

void CountTable::resize(size_t num_slots) {
    CountSlots old = std::exchange(slots_, CountSlots(num_slots));
    size_ = 0;
    for (const Slot& slot : old) {
        if (slot.key.high != 0) enter(slot);
    }
}

void CountTable::reset(size_t num_slots) {
    slots_ = CountSlots();
    chunks_.clear();
    chunk_next_ = chunk_end_ = nullptr;
    arena_bytes_ = size_ = 0;
    slots_ = CountSlots(num_slots);
}

// The least count such that pieces above it are at most half of all, and so are their bytes in the arena.
uint64_t CountTable::forgettable() const {
    constexpr size_t kExact = 1024;  // counts told apart one by one; larger ones by their number of bits
    struct Share {
        size_t pieces = 0, bytes = 0;
    };
    std::array<Share, kExact + 64> shares{};
    Share left;
    for (const Slot& slot : slots_) {
        if (slot.key.high == 0) continue;
        size_t place = slot.count < kExact ? slot.count : kExact + static_cast<size_t>(std::bit_width(slot.count)) - 1;
        size_t bytes = is_long(slot) ? kSizeBytes + piece_at(entry_of(slot)).size() : 0;
        ++shares[place].pieces, ++left.pieces;
        shares[place].bytes += bytes, left.bytes += bytes;
    }
    Share most{left.pieces / 2, left.bytes / 2};
    for (size_t place = 0; place < shares.size(); ++place) {
        left.pieces -= shares[place].pieces;
        left.bytes -= shares[place].bytes;
        if (left.pieces > most.pieces || left.bytes > most.bytes) continue;
        if (place < kExact) return place;
        return place + 1 == shares.size() ? UINT64_MAX : (uint64_t{2} << (place - kExact)) - 1;
    }
    return UINT64_MAX;
}

CountTable::Forgotten CountTable::forget() {
    uint64_t limit = forgettable();
    Forgotten forgotten;
    CountSlots old = std::exchange(slots_, CountSlots(slots_.size()));
    size_ = 0;
    for (const Slot& slot : old) {
        if (slot.key.high == 0) continue;
        if (slot.count > limit) {
            enter(slot);
        } else {
            forgotten.total_count += slot.count;
            forgotten.largest_count = std::max(forgotten.largest_count, slot.count);
        }
    }
    old = CountSlots();
    move_arena();
    return forgotten;
}

// Keeps of the arena what is still in use.
void CountTable::move_arena() {
    auto old = std::move(chunks_);
    chunks_.clear();
    chunk_next_ = chunk_end_ = nullptr;
    arena_bytes_ = 0;
    for (Slot& slot : slots_) {
        if (is_long(slot)) slot.key.high = kLong | reinterpret_cast<uint64_t>(keep(piece_at(entry_of(slot))));
    }
}

namespace {
// For sorting, slots are written anew. key.low: the first eight bytes as a number, highest first. key.high: of a short
// piece the next seven likewise and its size in the last byte; of a long one its address and kLongSize there.
constexpr uint64_t kLongSize = 0x10;

bool is_sorted_long(const CountSlot& slot) { return (slot.key.high & 0xFF) == kLongSize; }
const uint8_t* sorted_entry(const CountSlot& slot) { return reinterpret_cast<const uint8_t*>(slot.key.high >> 8); }

CountSlot as_sortable(const CountSlot& slot, const uint8_t* entry) {
    if (!entry) return {{__builtin_bswap64(slot.key.low), __builtin_bswap64(slot.key.high)}, slot.count};
    uint64_t first;
    std::memcpy(&first, entry + kSizeBytes, sizeof first);
    return {{__builtin_bswap64(first), reinterpret_cast<uint64_t>(entry) << 8 | kLongSize}, slot.count};
}

std::string_view sorted_piece(const CountSlot& slot, char (&room)[16]) {
    if (is_sorted_long(slot)) {
        uint32_t size;
        std::memcpy(&size, sorted_entry(slot), kSizeBytes);
        return {reinterpret_cast<const char*>(sorted_entry(slot)) + kSizeBytes, size};
    }
    uint64_t words[2] = {__builtin_bswap64(slot.key.low), __builtin_bswap64(slot.key.high)};
    std::memcpy(room, words, sizeof words);
    return {room, slot.key.high & 0xFF};
}

bool precedes(const CountSlot& a, const CountSlot& b) {
    if (a.key.low != b.key.low) return a.key.low < b.key.low;
    // Padding is zeros and the size comes last, so a short piece stands before those that begin with it.
    if (!is_sorted_long(a) && !is_sorted_long(b)) return a.key.high < b.key.high;
    char room_a[16], room_b[16];
    return sorted_piece(a, room_a) < sorted_piece(b, room_b);
}

// Sorts by the byte of key.low at `shift` and then those with the same byte by the next, in place.
void sort_by_byte(CountSlot* begin, CountSlot* end, int shift) {
    constexpr ptrdiff_t kSmall = 96;  // fewer are sorted by comparison
    if (end - begin <= kSmall || shift < 0) {
        std::sort(begin, end, precedes);
        return;
    }
    CountSlot *next[256], *last[256];
    size_t sizes[256] = {};
    for (const CountSlot* slot = begin; slot < end; ++slot) ++sizes[slot->key.low >> shift & 255];
    CountSlot* at = begin;
    for (size_t b = 0; b < 256; ++b) next[b] = at, last[b] = at += sizes[b];
    for (size_t b = 0; b < 256; ++b) {
        while (next[b] < last[b]) {
            CountSlot moved = *next[b];
            for (size_t home; (home = moved.key.low >> shift & 255) != b;) std::swap(moved, *next[home]++);
            *next[b]++ = moved;
        }
    }
    for (size_t b = 0; b < 256; ++b) {
        if (sizes[b] > 1) sort_by_byte(last[b] - sizes[b], last[b], shift - 8);
    }
}
}  // namespace

// The pieces, moved together and in order.
std::span<const CountSlot> CountTable::sort_slots() {
    CountSlot* begin = slots_.begin();
    CountSlot* end = begin;
    for (const CountSlot& slot : slots_) {
        if (slot.key.high != 0) *end++ = as_sortable(slot, is_long(slot) ? entry_of(slot) : nullptr);
    }
    sort_by_byte(begin, end, 56);
    return {begin, end};
}

CountTable::Sorted CountTable::sort(std::span<CountTable* const> tables) {
    Sorted sorted(tables.size());
    run_threads(tables.size(), [&](size_t i) { sorted[i] = tables[i]->sort_slots(); });
    return sorted;
}

std::vector<CountTable::Sorted> CountTable::cut(Sorted sorted, size_t part_size) {
    std::vector<Sorted> parts;
    const auto& largest = *std::max_element(sorted.begin(), sorted.end(), [](auto a, auto b) { return a.size() < b.size(); });
    for (auto rest = largest; rest.size() > part_size; rest = rest.subspan(part_size)) {
        Sorted part;
        for (auto& slots : sorted) {
            auto size = static_cast<size_t>(std::lower_bound(slots.begin(), slots.end(), rest[part_size], precedes) - slots.begin());
            part.push_back(slots.first(size));
            slots = slots.subspan(size);
        }
        parts.push_back(std::move(part));
    }
    parts.push_back(std::move(sorted));
    return parts;
}

void CountTable::take(Sorted sorted, const std::function<void(std::string_view piece, uint64_t count)>& take) {
    constexpr size_t kAhead = 16;
    char room[16];
    for (;;) {
        std::erase_if(sorted, [](const auto& slots) { return slots.empty(); });
        if (sorted.empty()) return;
        bool is_any_empty = false;
        while (!is_any_empty) {
            const CountSlot* first = sorted[0].data();
            for (const auto& slots : sorted) {
                if (precedes(slots.front(), *first)) first = slots.data();
            }
            uint64_t count = 0;
            for (auto& slots : sorted) {
                if (slots.data() != first && precedes(*first, slots.front())) continue;
                if (slots.size() > kAhead && is_sorted_long(slots[kAhead])) __builtin_prefetch(sorted_entry(slots[kAhead]));
                count += slots.front().count;
                slots = slots.subspan(1);
                is_any_empty |= slots.empty();
            }
            take(sorted_piece(*first, room), count);
        }
    }
}

}  // namespace gristmill
