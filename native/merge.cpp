#include "merge.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>

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

// The first pairs: put(i, merge or nullptr) for symbols i and i + 1. A table has them where each symbol is one byte.
template <typename Put>
void find_pairs(const Model& model, std::string_view text, const uint32_t* ids, size_t n, const Put& put) {
    bool one_a_byte = n == text.size() && (model.symbols() == Symbols::bytes || is_ascii(text));
    if (one_a_byte) {
        for (size_t i = 0; i + 1 < n; ++i) {
            put(i, model.merge_of_bytes(static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i + 1])));
        }
    } else {
        for (size_t i = 0; i + 1 < n; ++i) put(i, model.pairs().find(ids[i], ids[i + 1]));
    }
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

// One short stretch being merged. keys[i] is the rank of the pair that starts at symbol i, shifted over i itself: one
// minimum finds the pair and, among equal ranks, the leftmost. Symbols stay where they were, at 1..size; a merged one
// is skipped by next/previous. On both sides stands an id that pairs with nothing, so that every merge looks up both
// its neighbours and hardly a branch is left to guess.
struct Lane {
    static constexpr size_t kSize = MergeJob::kMaxBytes + 1;
    static constexpr unsigned kPositionBits = 5;
    static_assert(kSize == 1 << kPositionBits);
    static constexpr int32_t kNever = INT32_MAX;

    alignas(64) int32_t keys[kSize];
    uint32_t results[kSize];
    uint32_t ids[kSize + 1];
    uint8_t next[kSize + 1], previous[kSize + 1];
    uint32_t at;
    size_t used;  // keys in use, a multiple of 8

    void put(uint32_t i, const Merge* merge) {
        keys[i] = merge ? static_cast<int32_t>(merge->rank << kPositionBits | i) : kNever;
        results[i] = merge ? merge->result : kNoId;
    }

    void start(const Model& model, std::string_view text) {
        size_t size = write_symbols(model, text, ids + 1);
        ids[0] = ids[size + 1] = PairTable::kNothing;
        used = (size + 8) / 8 * 8;
        std::fill(keys, keys + used, kNever);
        find_pairs(model, text, ids + 1, size, [&](size_t i, const Merge* merge) { put(static_cast<uint32_t>(i + 1), merge); });
        for (size_t i = 0; i <= size + 1; ++i) {
            next[i] = static_cast<uint8_t>(i + 1);
            previous[i] = static_cast<uint8_t>(i - 1);
        }
    }

    // Picks the pair to merge; false when there is none.
    bool choose() {
        int32_t best[8];
        std::copy(keys, keys + 8, best);
        for (size_t i = 8; i < used; i += 8) {
            for (size_t j = 0; j < 8; ++j) best[j] = std::min(best[j], keys[i + j]);
        }
        for (size_t j = 1; j < 8; ++j) best[0] = std::min(best[0], best[j]);
        at = static_cast<uint32_t>(best[0]) & (kSize - 1);
        return best[0] != kNever;
    }

    void apply(const Model& model) {
        uint32_t gone = next[at], after = next[gone];
        ids[at] = results[at];
        keys[gone] = kNever;
        next[at] = static_cast<uint8_t>(after);
        previous[after] = static_cast<uint8_t>(at);
        model.pairs().prefetch(ids[at], ids[after]);
        model.pairs().prefetch(ids[previous[at]], ids[at]);
    }

    void renew(const Model& model) {
        uint32_t before = previous[at];
        put(at, model.pairs().find(ids[at], ids[next[at]]));
        put(before, model.pairs().find(ids[before], ids[at]));
    }

    size_t finish(uint32_t* out) const {
        size_t count = 0;
        for (uint32_t i = 1; ids[i] != PairTable::kNothing; i = next[i]) out[count++] = ids[i];
        return count;
    }
};

}  // namespace

size_t merge_short(const Model& model, std::string_view text, uint32_t* out) {
    Lane lane;
    lane.start(model, text);
    while (lane.choose()) {
        lane.apply(model);
        lane.renew(model);
    }
    return lane.finish(out);
}

void merge_many(const Model& model, MergeJob* jobs, size_t count) {
    constexpr size_t kLanes = 12;
    Lane lanes[kLanes];
    uint8_t lane_of[kLanes];  // the first `active` are running
    MergeJob* job_of[kLanes];
    for (size_t i = 0; i < kLanes; ++i) lane_of[i] = static_cast<uint8_t>(i);
    size_t active = 0, started = 0;
    while (active || started < count) {
        for (; active < kLanes && started < count; ++active) {
            job_of[lane_of[active]] = jobs + started;
            lanes[lane_of[active]].start(model, jobs[started++].text);
        }
        for (size_t i = 0; i < active;) {
            uint8_t lane = lane_of[i];
            if (lanes[lane].choose()) [[likely]] {
                lanes[lane].apply(model);
                ++i;
            } else {
                job_of[lane]->count = lanes[lane].finish(job_of[lane]->ids);
                std::swap(lane_of[i], lane_of[--active]);
            }
        }
        for (size_t i = 0; i < active; ++i) lanes[lane_of[i]].renew(model);
    }
}

namespace {

constexpr uint32_t kNone = 0xFFFFFFFF;

// Positions of pairs of one rank, taken left to right. Most ranks are fed in order and sorted once. A rank that several
// tokens share feeds itself while it is being taken, always behind: those few positions wait in a heap.
struct Waiting {
    std::vector<uint32_t> at;
    size_t taken = 0;
    std::vector<uint32_t> behind;
    bool is_tied = false, is_sorted = true;

    void reset(bool tied) {
        at.clear();
        taken = 0;
        is_tied = tied;
        is_sorted = true;
    }
    bool empty() const { return taken == at.size() && behind.empty(); }
    void put(uint32_t position) {
        bool is_in_order = at.empty() || at.back() <= position;
        if (is_in_order || !is_tied) {
            at.push_back(position);
            is_sorted &= is_in_order;
        } else {
            behind.push_back(position);
            std::push_heap(behind.begin(), behind.end(), std::greater<>());
        }
    }
    uint32_t take() {
        if (!is_sorted) std::sort(at.begin() + static_cast<ptrdiff_t>(taken), at.end());
        is_sorted = true;
        if (behind.empty() || (taken < at.size() && at[taken] < behind.front())) return at[taken++];
        std::pop_heap(behind.begin(), behind.end(), std::greater<>());
        uint32_t first = behind.back();
        behind.pop_back();
        return first;
    }
};

// All ranks with something waiting, the lowest first.
class Queue {
public:
    explicit Queue(const Model& model) : model_(model) {}

    void put(uint32_t rank, uint32_t position) {
        auto [found, is_new] = list_of_.try_emplace(rank, 0);
        if (is_new) {
            if (free_.empty()) {
                free_.push_back(static_cast<uint32_t>(lists_.size()));
                lists_.emplace_back();
            }
            found->second = free_.back();
            free_.pop_back();
            lists_[found->second].reset(model_.is_tied(rank));
            ranks_.push(rank);
        }
        lists_[found->second].put(position);
    }
    // False when nothing is left.
    bool take(uint32_t& rank, uint32_t& position) {
        while (!ranks_.empty()) {
            rank = ranks_.top();
            auto found = list_of_.find(rank);
            Waiting& list = lists_[found->second];
            if (!list.empty()) {
                position = list.take();
                return true;
            }
            free_.push_back(found->second);
            list_of_.erase(found);
            ranks_.pop();
        }
        return false;
    }

private:
    const Model& model_;
    std::vector<Waiting> lists_;
    std::vector<uint32_t> free_;
    std::unordered_map<uint32_t, uint32_t> list_of_;
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks_;
};

}  // namespace

// Unless tokens share a rank, a merge can only feed lists of other ranks (the new symbol is longer than either half of
// the pair just merged), and one of a lower rank goes first, as it must.
void merge_long(const Model& model, std::string_view text, MergeScratch& s, std::vector<uint32_t>& out) {
    initial_symbols(model, text, s.ids);
    auto n = static_cast<uint32_t>(s.ids.size());
    s.next.resize(n);
    s.previous.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
        s.next[i] = i + 1 < n ? i + 1 : kNone;
        s.previous[i] = i ? i - 1 : kNone;
    }
    Queue queue(model);
    auto offer = [&](uint32_t at) {
        if (s.next[at] == kNone) return;
        if (const Merge* merge = model.pairs().find(s.ids[at], s.ids[s.next[at]])) queue.put(merge->rank, at);
    };
    for (uint32_t i = 0; i < n; ++i) offer(i);
    uint32_t rank, at;
    while (queue.take(rank, at)) {
        uint32_t gone = s.next[at];
        if (s.ids[at] == kNoId || gone == kNone) continue;
        const Merge* merge = model.pairs().find(s.ids[at], s.ids[gone]);
        if (!merge || merge->rank != rank) continue;
        s.ids[at] = merge->result;
        s.ids[gone] = kNoId;
        s.next[at] = s.next[gone];
        if (s.next[at] != kNone) s.previous[s.next[at]] = at;
        if (s.previous[at] != kNone) offer(s.previous[at]);
        offer(at);
    }
    for (uint32_t i = 0; i < n; i = s.next[i]) out.push_back(s.ids[i]);
}

}  // namespace gristmill
