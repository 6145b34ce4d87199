// Which pair of a long text is merged next: the lowest rank, leftmost among equals.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "model.hpp"

namespace gristmill {

// Positions of pairs of one rank, taken left to right. Most ranks are fed in order and sorted once. A rank that several
// tokens share feeds itself while it is being taken, always behind: those few positions wait in a heap.
class WaitingPairs {
public:
    bool is_tied = false;
    uint32_t result = kNoId;  // what a pair of this rank becomes; of a tied rank, some of them

    void reset(bool tied, uint32_t merged) {
        at_.clear();
        taken_ = 0;
        is_tied = tied;
        result = merged;
        is_sorted_ = true;
    }
    bool empty() const { return taken_ == at_.size() && behind_.empty(); }
    void put(uint32_t position) {
        bool is_in_order = at_.empty() || at_.back() <= position;
        if (is_in_order || !is_tied) {
            at_.push_back(position);
            is_sorted_ &= is_in_order;
        } else {
            behind_.push_back(position);
            std::push_heap(behind_.begin(), behind_.end(), std::greater<>());
        }
    }
    uint32_t take() {
        if (!is_sorted_) std::sort(at_.begin() + static_cast<ptrdiff_t>(taken_), at_.end());
        is_sorted_ = true;
        if (behind_.empty() || (taken_ < at_.size() && at_[taken_] < behind_.front())) return at_[taken_++];
        std::pop_heap(behind_.begin(), behind_.end(), std::greater<>());
        uint32_t first = behind_.back();
        behind_.pop_back();
        return first;
    }

private:
    std::vector<uint32_t> at_;
    size_t taken_ = 0;
    std::vector<uint32_t> behind_;
    bool is_sorted_ = true;
};

// All ranks with something waiting. Empty again when all was taken, and then of use for the next text.
class MergeQueue {
public:
    void put(const Model& model, const Merge& merge, uint32_t position) {
        if (merge.rank >= list_of_.size()) list_of_.resize(size_t{merge.rank} + 1, kNoList);
        uint32_t& list = list_of_[merge.rank];
        if (list == kNoList) {
            if (free_.empty()) {
                free_.push_back(static_cast<uint32_t>(lists_.size()));
                lists_.emplace_back();
            }
            list = free_.back();
            free_.pop_back();
            lists_[list].reset(model.is_tied(merge.rank), merge.result);
            ranks_.push_back(merge.rank);
            std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
        }
        lists_[list].put(position);
    }
    // The list that the next position is taken from, and its rank; null when nothing is left.
    WaitingPairs* next(uint32_t& rank) {
        while (!ranks_.empty()) {
            rank = ranks_.front();
            uint32_t& list = list_of_[rank];
            if (!lists_[list].empty()) return &lists_[list];
            free_.push_back(list);
            list = kNoList;
            std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
            ranks_.pop_back();
        }
        return nullptr;
    }

private:
    static constexpr uint32_t kNoList = 0xFFFFFFFF;
    std::vector<WaitingPairs> lists_;
    std::vector<uint32_t> free_, list_of_, ranks_;  // list_of_ by rank; ranks_ are a heap
};

}  // namespace gristmill
