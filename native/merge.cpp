#include "merge.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

#include "utf8.hpp"

namespace gristmill {

namespace {

bool is_ascii(std::string_view text) {
    uint8_t all = 0;
    for (char c : text) all |= static_cast<uint8_t>(c);
    return all < 0x80;
}

// Writes the initial symbols of text to ids and returns how many; room for text.size() is needed.
size_t write_symbols(const Model& model, std::string_view text, uint32_t* ids) {
    size_t n = 0;
    if (model.symbols() == Symbols::bytes) {
        for (char c : text) {
            ids[n] = model.byte_id(static_cast<uint8_t>(c));
            n += ids[n] != kNoId;  // a byte without a token is dropped
        }
        return n;
    }
    for (size_t at = 0; at < text.size();) {
        auto lead = static_cast<uint8_t>(text[at]);
        size_t length = std::min<size_t>(utf8_length(lead), text.size() - at);
        uint32_t id = lead < 0x80 ? model.ascii_id(lead) : model.find_token(text.substr(at, length));
        if (id != kNoId) {
            ids[n++] = id;
        } else {
            for (size_t i = 0; i < length; ++i) ids[n++] = model.byte_id(static_cast<uint8_t>(text[at + i]));
        }
        at += length;
    }
    return n;
}

}  // namespace

void initial_symbols(const Model& model, std::string_view text, std::vector<uint32_t>& ids) {
    ids.resize(text.size());
    ids.resize(write_symbols(model, text, ids.data()));
}

void merge_slowly(const Model& model, std::string_view text, std::vector<uint32_t>& out) {
    std::vector<uint32_t> ids;
    initial_symbols(model, text, ids);
    for (;;) {
        const Merge* best = nullptr;
        size_t where = 0;
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            const Merge* merge = model.pairs().find(ids[i], ids[i + 1]);
            if (merge && (!best || merge->rank < best->rank)) best = merge, where = i;
        }
        if (!best) break;
        ids[where] = best->result;
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(where) + 1);
    }
    out.insert(out.end(), ids.begin(), ids.end());
}

namespace {

// 0, 1, 2, ... as bytes.
constexpr auto kCount = [] {
    std::array<uint8_t, 40> numbers{};
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(i);
    return numbers;
}();

#define GRISTMILL_INLINE __attribute__((always_inline)) inline

// One short stretch being merged. keys[i] is the rank of the pair that starts at symbol i, shifted over i itself: one
// minimum finds the pair and, among equal ranks, the leftmost. Symbols stay where they were, at 1..size; a merged one
// is skipped by next/previous. On both sides stands an id that pairs with nothing, so that every merge looks up both
// its neighbours. Words have all lengths and shapes, and a branch guessed wrong costs as much as a merge: hence loops of
// fixed length, and arithmetic instead of ifs.
template <size_t kSize>
struct Lane {
    static constexpr unsigned kPositionBits = 5;
    static constexpr int32_t kNever = static_cast<int32_t>(kNoRank << kPositionBits);  // or more

    alignas(64) int32_t keys[2 * kSize];  // the second half is there to be written over
    uint32_t results[kSize];
    uint32_t ids[kSize + 1];
    uint8_t next[kSize + 1], previous[kSize + 1];
    uint32_t at, before;
    uint64_t pair_before, pair_after;
    uint32_t place_before, place_after;

    GRISTMILL_INLINE void put(uint32_t i, uint32_t rank, uint32_t result) {
        keys[i] = static_cast<int32_t>(rank << kPositionBits | i);
        results[i] = result;
    }

    // One symbol a byte.
    GRISTMILL_INLINE void start_bytes(const Model& model, const uint8_t* bytes, size_t num_bytes) {
        ids[0] = PairTable::kNothing;
        keys[0] = kNever;
        for (size_t i = 0; i + 1 < kSize; ++i) ids[i + 1] = model.symbol_of_byte(bytes[i]);
        for (uint32_t i = 1; i + 1 < kSize; ++i) {
            auto outcome = model.merge_of_bytes(bytes[i - 1], bytes[i]);
            put(i, outcome.rank, outcome.result);
        }
        for (size_t i = 0; i < kSize; ++i) keys[num_bytes + i] = kNever;
        close(num_bytes);
    }

    void start_symbols(const Model& model, std::string_view text) {
        size_t size = write_symbols(model, text, ids + 1);
        ids[0] = PairTable::kNothing;
        std::fill(keys, keys + kSize, kNever);
        for (uint32_t i = 1; i < size; ++i) {
            if (const Merge* merge = model.pairs().find(ids[i], ids[i + 1])) put(i, merge->rank, merge->result);
        }
        close(size);
    }

    GRISTMILL_INLINE void close(size_t size) {
        ids[size + 1] = PairTable::kNothing;
        std::memcpy(next, kCount.data() + 1, sizeof next);
        std::memcpy(previous + 1, kCount.data(), sizeof previous - 1);
    }

    // Picks the pair to merge; false when there is none.
    GRISTMILL_INLINE bool choose() {
        int32_t best = least();
        at = static_cast<uint32_t>(best) & ((1u << kPositionBits) - 1);
        return best < kNever;
    }

    LastPair chosen() const { return {ids[at], ids[next[at]]}; }

    GRISTMILL_INLINE void apply() {
        uint32_t gone = next[at], after = next[gone], id = results[at];
        before = previous[at];
        ids[at] = id;
        keys[gone] = kNever;
        next[at] = static_cast<uint8_t>(after);
        previous[after] = static_cast<uint8_t>(at);
        pair_before = PairTable::pair(ids[before], id);
        pair_after = PairTable::pair(id, ids[after]);
    }

    GRISTMILL_INLINE void locate(const Model& model) {
        place_before = model.pairs().place(pair_before);
        place_after = model.pairs().place(pair_after);
    }

    GRISTMILL_INLINE void renew(const Model& model) {
        const Merge& left = model.pairs().at(place_before);
        const Merge& right = model.pairs().at(place_after);
        put(before, PairTable::rank_for(left, pair_before), left.result);
        put(at, PairTable::rank_for(right, pair_after), right.result);
    }

    size_t finish(uint32_t* out) const {
        size_t count = 0;
        for (uint32_t i = 1; ids[i] != PairTable::kNothing; i = next[i]) out[count++] = ids[i];
        return count;
    }

private:
    using Eight = int32_t __attribute__((vector_size(32)));
    using Four = int32_t __attribute__((vector_size(16)));

    GRISTMILL_INLINE int32_t least() const {
        const auto* eights = reinterpret_cast<const Eight*>(keys);
        Eight wide = eights[0];
        for (size_t i = 1; i < kSize / 8; ++i) wide = wide < eights[i] ? wide : eights[i];
        Four low = __builtin_shufflevector(wide, wide, 0, 1, 2, 3), high = __builtin_shufflevector(wide, wide, 4, 5, 6, 7);
        Four best = low < high ? low : high;
        Four other = __builtin_shufflevector(best, best, 2, 3, 0, 1);
        best = best < other ? best : other;
        return std::min(best[0], best[1]);
    }
};

// bytes: the text, and zeros up to kSize.
template <size_t kSize>
GRISTMILL_INLINE void start(const Model& model, Lane<kSize>& lane, std::string_view text, const uint8_t* bytes) {
    bool one_a_byte = model.symbols() == Symbols::bytes ? !model.drops_bytes() : is_ascii(text);
    if (one_a_byte) {
        lane.start_bytes(model, bytes, text.size());
    } else {
        lane.start_symbols(model, text);
    }
}

// A lane that has finished takes the next job at once, so that their number, which the loops are guessed by, seldom changes. Each
// loop does little to many lanes: a processor looks ahead by a few hundred instructions, and what waits for memory in
// one lane should not keep it from the next.
template <size_t kSize>
GRISTMILL_INLINE void merge_side_by_side(const Model& model, MergeJob<kSize - 1>* jobs, size_t count) {
    constexpr size_t kLanes = 20;
    Lane<kSize> lanes[kLanes];
    uint8_t lane_of[kLanes];  // the first `active` are running
    MergeJob<kSize - 1>* job_of[kLanes];
    std::copy(kCount.begin(), kCount.begin() + kLanes, lane_of);
    size_t active = std::min(count, kLanes), started = active;
    for (size_t i = 0; i < active; ++i) {
        job_of[i] = jobs + i;
        start(model, lanes[i], jobs[i].text, jobs[i].bytes);
    }
    while (active) {
        uint8_t ready[kLanes];  // lanes that have a pair to merge
        size_t num_ready = 0;
        for (size_t i = 0; i < active;) {
            uint8_t lane = lane_of[i];
            ready[num_ready] = lane;
            if (lanes[lane].choose()) [[likely]] {
                ++num_ready;
                ++i;
                continue;
            }
            job_of[lane]->count = lanes[lane].finish(job_of[lane]->ids);
            if (started < count) {
                job_of[lane] = jobs + started;
                start(model, lanes[lane], jobs[started].text, jobs[started].bytes);
                ++started;
                ++i;
            } else {
                std::swap(lane_of[i], lane_of[--active]);
            }
        }
        for (size_t i = 0; i < num_ready; ++i) lanes[ready[i]].apply();
        for (size_t i = 0; i < num_ready; ++i) lanes[ready[i]].locate(model);
        for (size_t i = 0; i < num_ready; ++i) lanes[ready[i]].renew(model);
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
template <size_t kSize>
__attribute__((target("avx2,bmi,bmi2"))) void merge_many_avx2(const Model& model, MergeJob<kSize - 1>* jobs, size_t count) {
    merge_side_by_side<kSize>(model, jobs, count);
}
#endif

}  // namespace

size_t merge_short(const Model& model, std::string_view text, uint32_t* out, LastPair* last) {
    Lane<32> lane;
    uint8_t bytes[32] = {};
    std::memcpy(bytes, text.data(), text.size());
    start(model, lane, text, bytes);
    while (lane.choose()) {
        if (last) *last = lane.chosen();
        lane.apply();
        lane.locate(model);
        lane.renew(model);
    }
    return lane.finish(out);
}

template <size_t kSize>
void merge_many(const Model& model, MergeJob<kSize - 1>* jobs, size_t count) {
#if defined(__x86_64__) && defined(__GNUC__)
    static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2");
    if (has_avx2) return merge_many_avx2<kSize>(model, jobs, count);
#endif
    merge_side_by_side<kSize>(model, jobs, count);
}
template void merge_many<16>(const Model&, MergeJob<15>*, size_t);
template void merge_many<32>(const Model&, MergeJob<31>*, size_t);

namespace {

constexpr uint32_t kNone = 0xFFFFFFFF;

// Unless tokens share a rank, a merge can only feed pairs of other ranks (the new symbol is longer than either half of
// the pair just merged), and one of a lower rank goes first, as it must.
template <typename Queue>
void merge_chain(const Model& model, MergeScratch& s, Queue& queue, LastPair* last) {
    auto offer = [&](uint32_t at) {
        const Merge* merge = s.next[at] == kNone ? nullptr : model.pairs().find(s.ids[at], s.ids[s.next[at]]);
        s.ranks[at] = merge ? merge->rank : kNone;
        if (!merge) return;
        s.results[at] = merge->result;
        queue.put(merge->rank, at);
    };
    for (uint32_t i = 0; i < s.ids.size(); ++i) offer(i);
    uint32_t rank, at;
    while (queue.take(rank, at)) {
        if (s.ranks[at] != rank) continue;  // one of the two is part of something else by now
        uint32_t gone = s.next[at];
        if (last) *last = {s.ids[at], s.ids[gone]};
        s.ids[at] = s.results[at];
        s.ranks[gone] = kNone;
        s.next[at] = s.next[gone];
        if (s.next[at] != kNone) s.previous[s.next[at]] = at;
        if (s.previous[at] != kNone) offer(s.previous[at]);
        offer(at);
    }
}

// What is left of the symbols of a text: a chain from the first by `next`.
void merge_symbols(const Model& model, std::string_view text, MergeScratch& s, LastPair* last) {
    initial_symbols(model, text, s.ids);
    auto n = static_cast<uint32_t>(s.ids.size());
    for (auto* by_symbol : {&s.next, &s.previous, &s.ranks, &s.results}) by_symbol->resize(n);
    for (uint32_t i = 0; i < n; ++i) {
        s.next[i] = i + 1 < n ? i + 1 : kNone;
        s.previous[i] = i ? i - 1 : kNone;
    }
    if (n <= kFewSymbols) {
        merge_chain(model, s, s.small_queue, last);
    } else {
        merge_chain(model, s, s.queue, last);
    }
}

// A text of bytes, merged a window at a time, each of which begins where a token of the one before ends.
class Windows {
public:
    Windows(const Model& model, std::string_view text, size_t window_bytes, MergeScratch& scratch, std::vector<uint32_t>& out)
        : model_(model), text_(text), window_bytes_(window_bytes), tries_left_(text.size() / window_bytes / 4 + 4), scratch_(scratch),
          out_(out), num_before_(out.size()) {}

    // False: the windows do not fit together, and nothing was put out.
    bool merge() {
        while (true) {
            std::string_view window = text_.substr(begin_, window_bytes_);
            merge_symbols(model_, window, scratch_, nullptr);
            if (begin_ && !fits(end_of(0, window))) {
                if (!go_back()) return give_up();
                continue;
            }
            bool is_last = begin_ + window.size() == text_.size();
            size_t kept = keep(window, is_last ? window.size() : window.size() - window_bytes_ / kOverlapPart);
            if (is_last) return true;
            if (!kept) return give_up();
            begin_ += kept;
        }
    }

private:
    static constexpr size_t kOverlapPart = 32;  // of a window: what stands at its end may be cut otherwise by what follows

    size_t end_of(uint32_t symbol, std::string_view window) const {
        return scratch_.next[symbol] == kNone ? window.size() : scratch_.next[symbol];
    }
    // Do the last token that was put out and the first of the window, which ends at `end` there, stay apart side by side?
    bool fits(size_t end) {
        pair_.clear();
        merge_long(model_, text_.substr(starts_.back(), begin_ + end - starts_.back()), joint_, pair_);
        return pair_.size() == 2 && pair_[0] == out_.back() && pair_[1] == scratch_.ids[0];
    }
    // Begins the window one token earlier.
    bool go_back() {
        if (starts_.size() < 2 || !tries_left_) return false;
        --tries_left_;
        begin_ = starts_.back();
        starts_.pop_back();
        out_.pop_back();
        return true;
    }
    bool give_up() {
        out_.resize(num_before_);
        return false;
    }
    // Puts out the tokens that end by `stop`; returns where the last of them does.
    size_t keep(std::string_view window, size_t stop) {
        starts_.clear();
        size_t kept = 0;
        for (uint32_t i = 0; i != kNone && end_of(i, window) <= stop; i = scratch_.next[i]) {
            out_.push_back(scratch_.ids[i]);
            starts_.push_back(begin_ + i);
            kept = end_of(i, window);
        }
        return kept;
    }

    const Model& model_;
    std::string_view text_;
    size_t window_bytes_, tries_left_, begin_ = 0;
    MergeScratch& scratch_;
    MergeScratch joint_;
    std::vector<uint32_t>& out_;
    size_t num_before_;
    std::vector<size_t> starts_;  // of the tokens that the last window put out
    std::vector<uint32_t> pair_;
};

}  // namespace

void merge_long(const Model& model, std::string_view text, MergeScratch& s, std::vector<uint32_t>& out, LastPair* last) {
    merge_symbols(model, text, s, last);
    auto n = static_cast<uint32_t>(s.ids.size());
    for (uint32_t i = 0; i < n; i = s.next[i]) out.push_back(s.ids[i]);
}

bool merge_by_windows(const Model& model, std::string_view text, size_t window_bytes, MergeScratch& s, std::vector<uint32_t>& out) {
    return model.symbols() == Symbols::bytes && !text.empty() && Windows(model, text, window_bytes, s, out).merge();
}

}  // namespace gristmill
