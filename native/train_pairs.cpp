#include "train_pairs.hpp"

#include <bit>
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

uint32_t PairTable::add(uint64_t key, int64_t count) {
    if (pairs_.size() >= kNoPair) throw std::length_error("more than 4 billion distinct pairs");
    auto index = static_cast<uint32_t>(pairs_.size());
    pairs_.push_back({key, count});
    if (is_small(key)) {
        small_[small_slot(key)] = index;
        return index;
    }
    if ((num_placed_ + 1) * 2 > slots_.size()) {
        size_t size = slots_.size() * 2;
        HugeVector<uint32_t>().swap(slots_);
        slots_.assign(size, kNoPair);
        mask_ = size - 1;
        num_placed_ = 0;
        for (uint32_t i = 0; i < index; ++i) {
            if (!is_small(pairs_[i].key)) place(i);
        }
    }
    place(index);
    return index;
}

void PairTable::place(uint32_t index) {
    size_t slot = hash(pairs_[index].key) & mask_;
    while (slots_[slot] != kNoPair) slot = (slot + 1) & mask_;
    slots_[slot] = index;
    ++num_placed_;
}

}  // namespace gristmill::train
