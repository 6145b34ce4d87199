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
        uint32_t id = lead < 0x80 ? model.ascii_id(lead) : model.character_id(text.substr(at, length));
        if (id != kNoId) {
            ids[n++] = id;
        } else {
            for (size_t i = 0; i < length; ++i) ids[n++] = model.byte_id(static_cast<uint8_t>(text[at + i]));
        }
        at += length;
    }
    return n;
}

// Ranks of the first pairs: put(i, rank) for symbols i and i + 1. A table has them where each symbol is one byte.
template <typename Put>
void rank_pairs(const Model& model, std::string_view text, const uint32_t* ids, size_t n, const Put& put) {
    bool one_a_byte = n == text.size() && (model.symbols() == Symbols::bytes || is_ascii(text));
    if (one_a_byte) {
        for (size_t i = 0; i + 1 < n; ++i) {
            put(i, model.rank_of_bytes(static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i + 1])));
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
        uint32_t best = kNoRank;
        size_t where = 0;
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            uint32_t rank = model.pairs().find(ids[i], ids[i + 1]);
            if (rank < best) best = rank, where = i;
        }
        if (best == kNoRank) break;
        ids[where] = model.result_of(best, ids[where], ids[where + 1]);
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(where) + 1);
    }
    out.insert(out.end(), ids.begin(), ids.end());
}

// keys[i] = rank of the pair that starts at symbol i, shifted over i itself: one minimum finds the pair and, among
// equal ranks, the leftmost. Symbols stay where they were; a merged one is skipped by next/previous.
size_t merge_short(const Model& model, std::string_view text, uint32_t* out) {
    constexpr uint32_t kNever = 0xFFFFFFFF;
    uint32_t ids[kShortSymbols], keys[kShortSymbols];
    uint8_t next[kShortSymbols], previous[kShortSymbols];
    size_t n = write_symbols(model, text, ids);
    auto key = [](uint32_t rank, size_t i) { return rank == kNoRank ? kNever : rank << 5 | static_cast<uint32_t>(i); };
    if (n == 0) return 0;
    rank_pairs(model, text, ids, n, [&](size_t i, uint32_t rank) { keys[i] = key(rank, i); });
    keys[n - 1] = kNever;
    for (size_t i = 0; i < n; ++i) {
        next[i] = static_cast<uint8_t>(i + 1);
        previous[i] = static_cast<uint8_t>(i - 1);
    }
    for (;;) {
        uint32_t best = kNever;
        for (size_t i = 0; i < n; ++i) best = std::min(best, keys[i]);
        if (best == kNever) break;
        size_t at = best & 31;
        size_t gone = next[at], after = next[gone];
        ids[at] = model.result_of(best >> 5, ids[at], ids[gone]);
        keys[gone] = kNever;
        next[at] = static_cast<uint8_t>(after);
        keys[at] = kNever;
        if (after < n) {
            previous[after] = static_cast<uint8_t>(at);
            keys[at] = key(model.pairs().find(ids[at], ids[after]), at);
        }
        if (at > 0) {
            size_t before = previous[at];
            keys[before] = key(model.pairs().find(ids[before], ids[at]), before);
        }
    }
    size_t count = 0;
    for (size_t i = 0; i < n; i = next[i]) out[count++] = ids[i];
    return count;
}

namespace {

// One short stretch being merged; as in merge_short.
struct Lane {
    static constexpr size_t kSize = MergeJob::kMaxBytes;
    static constexpr int32_t kNever = INT32_MAX;
    alignas(64) int32_t keys[kSize];
    uint32_t* ids;
    uint8_t next[kSize], previous[kSize];
    size_t size, at;
    uint32_t rank;

    static int32_t key(uint32_t rank, size_t i) {
        return rank == kNoRank ? kNever : static_cast<int32_t>(rank << 4 | static_cast<uint32_t>(i));
    }

    void start(const Model& model, MergeJob& job) {
        ids = job.ids;
        size = write_symbols(model, job.text, ids);
        std::fill(keys, keys + kSize, kNever);
        rank_pairs(model, job.text, ids, size, [&](size_t i, uint32_t rank) { keys[i] = key(rank, i); });
        for (size_t i = 0; i < size; ++i) {
            next[i] = static_cast<uint8_t>(i + 1);
            previous[i] = static_cast<uint8_t>(i - 1);
        }
    }

    // Picks the pair to merge; false when there is none.
    bool choose() {
        int32_t best = kNever;
        for (size_t i = 0; i < kSize; ++i) best = std::min(best, keys[i]);
        at = best & 15;
        rank = static_cast<uint32_t>(best) >> 4;
        return best != kNever;
    }

    void apply(const Model& model) {
        size_t gone = next[at];
        ids[at] = model.result_of(rank, ids[at], ids[gone]);
        keys[gone] = keys[at] = kNever;
        next[at] = next[gone];
        if (next[at] < size) {
            previous[next[at]] = static_cast<uint8_t>(at);
            model.pairs().prefetch(ids[at], ids[next[at]]);
        }
        if (at > 0) model.pairs().prefetch(ids[previous[at]], ids[at]);
    }

    void renew(const Model& model) {
        if (next[at] < size) keys[at] = key(model.pairs().find(ids[at], ids[next[at]]), at);
        if (at > 0) keys[previous[at]] = key(model.pairs().find(ids[previous[at]], ids[at]), previous[at]);
    }

    size_t finish() {
        size_t count = 0;
        for (size_t i = 0; i < size; i = next[i]) ids[count++] = ids[i];
        return count;
    }
};

}  // namespace

void merge_many(const Model& model, MergeJob* jobs, size_t count) {
    constexpr size_t kLanes = 12;
    Lane lanes[kLanes];
    MergeJob* job_of[kLanes];
    size_t active = 0, started = 0;
    while (active || started < count) {
        while (active < kLanes && started < count) {
            job_of[active] = jobs + started++;
            lanes[active].start(model, *job_of[active]);
            ++active;
        }
        for (size_t i = 0; i < active;) {
            if (lanes[i].choose()) {
                model.prefetch_result_of(lanes[i++].rank);
            } else {
                job_of[i]->count = lanes[i].finish();
                --active;
                lanes[i] = lanes[active];
                job_of[i] = job_of[active];
            }
        }
        for (size_t i = 0; i < active; ++i) lanes[i].apply(model);
        for (size_t i = 0; i < active; ++i) lanes[i].renew(model);
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
        uint32_t rank = model.pairs().find(s.ids[at], s.ids[s.next[at]]);
        if (rank != kNoRank) queue.put(rank, at);
    };
    for (uint32_t i = 0; i < n; ++i) offer(i);
    uint32_t rank, at;
    while (queue.take(rank, at)) {
        uint32_t gone = s.next[at];
        if (s.ids[at] == kNoId || gone == kNone) continue;
        if (model.pairs().find(s.ids[at], s.ids[gone]) != rank) continue;
        s.ids[at] = model.result_of(rank, s.ids[at], s.ids[gone]);
        s.ids[gone] = kNoId;
        s.next[at] = s.next[gone];
        if (s.next[at] != kNone) s.previous[s.next[at]] = at;
        if (s.previous[at] != kNone) offer(s.previous[at]);
        offer(at);
    }
    for (uint32_t i = 0; i < n; i = s.next[i]) out.push_back(s.ids[i]);
}

}  // namespace gristmill
