// Pairs of neighbouring tokens with their counts, and the queue that knows the best of them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "memory.hpp"

namespace gristmill::train {

constexpr uint32_t kNoPair = UINT32_MAX;

inline uint64_t pair_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
inline uint32_t left_of(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
inline uint32_t right_of(uint64_t key) { return static_cast<uint32_t>(key); }

struct Pair {
    uint64_t key;
    int64_t count;
};

// Numbers pairs in the order they are added.
class PairTable {
public:
    // Grows, but has room for so many at once.
    explicit PairTable(size_t num_expected = 0);

    size_t size() const { return pairs_.size(); }
    Pair& operator[](uint32_t index) { return pairs_[index]; }
    const Pair& operator[](uint32_t index) const { return pairs_[index]; }

    uint32_t find(uint64_t key) const {
        if (is_small(key)) return small_[small_slot(key)];
        for (size_t slot = hash(key) & mask_;; slot = (slot + 1) & mask_) {
            uint32_t index = slots_[slot];
            if (index == kNoPair || pairs_[index].key == key) return index;
        }
    }
    // What find() will look at first, and then.
    void prefetch_slot(uint64_t key) const { __builtin_prefetch(first_slot(key)); }
    void prefetch_pair(uint64_t key) const {
        uint32_t index = *first_slot(key);
        if (index != kNoPair) __builtin_prefetch(&pairs_[index]);
    }
    uint32_t find_or_add(uint64_t key) {
        uint32_t index = find(key);
        return index == kNoPair ? add(key, 0) : index;
    }
    // The key is not there yet.
    uint32_t add(uint64_t key, int64_t count) {
        auto index = static_cast<uint32_t>(size());
        make_room(size() + 1);
        put(index, key, count);
        return index;
    }
    // The same in two steps: so many pairs in all, and what each of the new ones is, by as many threads as one likes.
    void make_room(size_t num_pairs);
    void put(uint32_t index, uint64_t key, int64_t count);

private:
    // Before the first merges nearly all pairs are of small ids: those take one look-up in a plain table.
    static constexpr uint32_t kSmallIds = 512;
    static bool is_small(uint64_t key) { return left_of(key) < kSmallIds && right_of(key) < kSmallIds; }
    static size_t small_slot(uint64_t key) { return size_t{left_of(key)} * kSmallIds + right_of(key); }
    const uint32_t* first_slot(uint64_t key) const {
        return is_small(key) ? &small_[small_slot(key)] : &slots_[hash(key) & mask_];
    }
    static size_t hash(uint64_t key) {
        key *= 0x9E3779B97F4A7C15ull;
        return static_cast<size_t>(key ^ key >> 31);
    }
    void place(uint32_t index, uint64_t key);
    static size_t slots_for(size_t num_pairs);

    HugeVector<Pair> pairs_;
    std::vector<uint32_t> small_;
    HugeVector<uint32_t> slots_;
    size_t mask_;
};

struct Candidate {
    int64_t count;
    uint64_t key;
    uint32_t index;
};

// The order of merges: the higher count, then the smaller pair (by its ids, or by the bytes of its tokens). Most pairs are
// never merged: those below a count wait in no order at all, until all above it are gone, and what is in order fits a cache.
template <typename Before>
class PairQueue {
public:
    explicit PairQueue(Before is_before) : is_after_{is_before} {}

    void clear() {
        heap_.clear();
        waiting_.clear();
        least_ = kNone;
    }
    void push(const Candidate& candidate) {
        if (candidate.count < least_) return waiting_.push_back(candidate);
        heap_.push_back(candidate);
        std::push_heap(heap_.begin(), heap_.end(), is_after_);
    }
    // A fresh queue of every pair that counts at least `floor`.
    void fill(const PairTable& pairs, int64_t floor) {
        clear();
        for (uint32_t i = 0; i < pairs.size(); ++i) {
            if (pairs[i].count >= floor) waiting_.push_back({pairs[i].count, pairs[i].key, i});
        }
    }
    // The best pair. Counts only fall, so an entry that is too high is put back where it belongs when it comes up.
    bool pop(const PairTable& pairs, int64_t floor, Candidate& best) {
        while (!heap_.empty() || take_from_waiting(pairs, floor)) {
            std::pop_heap(heap_.begin(), heap_.end(), is_after_);
            best = heap_.back();
            heap_.pop_back();
            int64_t count = pairs[best.index].count;
            if (count == best.count) return true;
            best.count = count;
            if (count >= floor) push(best);
        }
        return false;
    }

private:
    struct IsAfter {
        Before is_before;
        bool operator()(const Candidate& a, const Candidate& b) const { return is_before(b, a); }
    };
    static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
    static constexpr size_t kFewest = 1 << 13, kShare = 8;

    // Puts those that count most in order, as they count now; false when there are none.
    bool take_from_waiting(const PairTable& pairs, int64_t floor) {
        for (Candidate& one : waiting_) one.count = pairs[one.index].count;
        std::erase_if(waiting_, [floor](const Candidate& one) { return one.count < floor; });
        if (waiting_.empty()) return false;
        size_t wanted = std::min(std::max(kFewest, waiting_.size() / kShare), waiting_.size());
        auto last = waiting_.begin() + static_cast<ptrdiff_t>(wanted - 1);
        auto counts_more = [](const Candidate& a, const Candidate& b) { return a.count > b.count; };
        std::nth_element(waiting_.begin(), last, waiting_.end(), counts_more);
        least_ = last->count;
        auto rest = std::partition(last, waiting_.end(), [this](const Candidate& one) { return one.count >= least_; });
        heap_.assign(waiting_.begin(), rest);
        waiting_.erase(waiting_.begin(), rest);
        std::make_heap(heap_.begin(), heap_.end(), is_after_);
        return true;
    }

    std::vector<Candidate> heap_;     // all that count least_ or more
    std::vector<Candidate> waiting_;  // all others
    int64_t least_ = kNone;
    IsAfter is_after_;
};

}  // namespace gristmill::train
