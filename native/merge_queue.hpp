// Which pair of a long text is merged next: the lowest rank, leftmost among equals.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace gristmill {

// Positions of pairs of one rank, taken left to right. Most ranks are fed before they are taken, and sorted once. What comes
// later and does not belong at the end waits in a heap.
class WaitingPairs {
public:
    void clear() {
        at_.clear();
        taken_ = 0;
        is_sorted_ = true;
    }
    bool empty() const { return taken_ == at_.size() && behind_.empty(); }
    void put(uint32_t position) {
        bool is_in_order = at_.empty() || at_.back() <= position;
        if (is_in_order || !taken_) {
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

    size_t capacity() const { return at_.capacity() + behind_.capacity(); }

private:
    std::vector<uint32_t> at_;
    size_t taken_ = 0;
    std::vector<uint32_t> behind_;
    bool is_sorted_ = true;
};

// A list for each rank with something waiting: for many pairs, of which most wait with others of their rank. Empty again when
// all was taken, and then of use for the next text.
class MergeQueue {
public:
    void put(uint32_t rank, uint32_t position) {
        if (rank >= list_of_.size()) list_of_.resize(size_t{rank} + 1, kNoList);
        uint32_t& list = list_of_[rank];
        if (list == kNoList) {
            if (free_.empty()) {
                free_.push_back(static_cast<uint32_t>(lists_.size()));
                lists_.emplace_back();
            }
            list = free_.back();
            free_.pop_back();
            kept_ -= lists_[list].capacity();
            lists_[list].clear();
            ranks_.push_back(rank);
            std::push_heap(ranks_.begin(), ranks_.end(), std::greater<>());
        }
        lists_[list].put(position);
    }
    // False when nothing is left.
    bool take(uint32_t& rank, uint32_t& position) {
        while (!ranks_.empty()) {
            rank = ranks_.front();
            uint32_t& list = list_of_[rank];
            if (!lists_[list].empty()) {
                position = lists_[list].take();
                return true;
            }
            keep(lists_[list]);
            free_.push_back(list);
            list = kNoList;
            std::pop_heap(ranks_.begin(), ranks_.end(), std::greater<>());
            ranks_.pop_back();
        }
        return false;
    }

    size_t memory_bytes() const {
        size_t words = free_.capacity() + list_of_.capacity() + ranks_.capacity() + kept_;
        return words * sizeof(uint32_t) + lists_.capacity() * sizeof(WaitingPairs);
    }

private:
    static constexpr uint32_t kNoList = 0xFFFFFFFF;
    static constexpr size_t kMostKept = 1 << 20;  // positions

    // An empty list keeps its memory for another rank, as far as all may.
    void keep(WaitingPairs& list) {
        if (kept_ + list.capacity() > kMostKept) list = {};
        kept_ += list.capacity();
    }

    std::vector<WaitingPairs> lists_;
    std::vector<uint32_t> free_, list_of_, ranks_;  // list_of_ by rank; ranks_ are a heap
    size_t kept_ = 0;                               // by lists that are free
};

// The same for few pairs, in little memory: the number of each rank's list, above, takes megabytes.
class SmallMergeQueue {
public:
    void put(uint32_t rank, uint32_t position) {
        heap_.push_back(uint64_t{rank} << 32 | position);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    }
    bool take(uint32_t& rank, uint32_t& position) {
        if (heap_.empty()) return false;
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        rank = static_cast<uint32_t>(heap_.back() >> 32);
        position = static_cast<uint32_t>(heap_.back());
        heap_.pop_back();
        return true;
    }
    size_t memory_bytes() const { return heap_.capacity() * sizeof(uint64_t); }

private:
    std::vector<uint64_t> heap_;
};

}  // namespace gristmill
