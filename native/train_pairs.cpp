#include "train_pairs.hpp"

#include <atomic>
#include <stdexcept>

namespace gristmill::train {

PairTable::PairTable(size_t num_expected)
    : small_(size_t{kSmallIds} * kSmallIds, kNoPair), slots_(slots_for(num_expected), kNoPair), mask_(slots_.size() - 1) {
    pairs_.reserve(num_expected);
}

// At most half of them are taken: most pairs that are looked up are not there.
size_t PairTable::slots_for(size_t num_pairs) {
    size_t num_slots = 1 << 12;
    while (num_slots < 2 * num_pairs) num_slots *= 2;
    return num_slots;
}

void PairTable::make_room(size_t num_pairs) {
    if (num_pairs > kNoPair) throw std::length_error("more than 4 billion distinct pairs");
    size_t num_before = pairs_.size();
    pairs_.resize(num_pairs);
    if (num_pairs * 2 <= slots_.size()) return;
    size_t num_slots = slots_for(num_pairs);
    HugeVector<uint32_t>().swap(slots_);
    slots_.assign(num_slots, kNoPair);
    mask_ = num_slots - 1;
    for (uint32_t i = 0; i < num_before; ++i) {
        if (!is_small(pairs_[i].key)) place(i, pairs_[i].key);
    }
}

void PairTable::put(uint32_t index, uint64_t key, int64_t count) {
    pairs_[index] = {key, count};
    if (is_small(key)) {
        small_[small_slot(key)] = index;
    } else {
        place(index, key);
    }
}

// Whoever is second at a free slot goes on to the next one: where a pair lies changes no result.
void PairTable::place(uint32_t index, uint64_t key) {
    for (size_t slot = hash(key) & mask_;; slot = (slot + 1) & mask_) {
        uint32_t seen = kNoPair;
        if (std::atomic_ref(slots_[slot]).compare_exchange_strong(seen, index, std::memory_order_relaxed)) return;
    }
}

}  // namespace gristmill::train
