#include "merge.hpp"

#include <algorithm>
#include <unordered_map>

#include "utf8.hpp"

namespace gristmill {

namespace {

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
        size_t length = std::min<size_t>(utf8_length(static_cast<uint8_t>(text[at])), text.size() - at);
        uint32_t id = model.character_id(text.substr(at, length));
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
        uint32_t best = kNoRank;
        size_t where = 0;
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            uint32_t rank = model.pairs().find(ids[i], ids[i + 1]);
            if (rank < best) best = rank, where = i;
        }
        if (best == kNoRank) break;
        ids[where] = model.result_of(best);
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
    if (model.symbols() == Symbols::bytes) {
        for (size_t i = 0; i + 1 < n; ++i) {
            keys[i] = key(model.rank_of_bytes(static_cast<uint8_t>(text[i]), static_cast<uint8_t>(text[i + 1])), i);
        }
    } else {
        for (size_t i = 0; i + 1 < n; ++i) keys[i] = key(model.pairs().find(ids[i], ids[i + 1]), i);
    }
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
        ids[at] = model.result_of(best >> 5);
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
        if (model.symbols() == Symbols::bytes) {
            for (size_t i = 0; i + 1 < size; ++i) {
                auto a = static_cast<uint8_t>(job.text[i]), b = static_cast<uint8_t>(job.text[i + 1]);
                keys[i] = key(model.rank_of_bytes(a, b), i);
            }
        } else {
            for (size_t i = 0; i + 1 < size; ++i) keys[i] = key(model.pairs().find(ids[i], ids[i + 1]), i);
        }
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
        ids[at] = model.result_of(rank);
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

// Positions wait in one list a rank, lists wait in a heap by rank. A list is sorted when its turn comes, so equal
// ranks go left to right; a merge can only feed lists of other ranks (the new symbol is longer than either half of
// the pair just merged), and one of a lower rank goes first, as it must.
void merge_long(const Model& model, std::string_view text, MergeScratch& s, std::vector<uint32_t>& out) {
    constexpr uint32_t kNone = 0xFFFFFFFF;
    initial_symbols(model, text, s.ids);
    size_t n = s.ids.size();
    s.next.resize(n);
    s.previous.resize(n);
    for (size_t i = 0; i < n; ++i) {
        s.next[i] = i + 1 < n ? static_cast<uint32_t>(i + 1) : kNone;
        s.previous[i] = i ? static_cast<uint32_t>(i - 1) : kNone;
    }
    struct List {
        std::vector<uint32_t> at;
        size_t taken = 0;
        bool sorted = true;
    };
    std::vector<List> lists;
    std::vector<uint32_t> free_lists;
    // rank -> list, open addressing would do; ranks in play are few, so a small sorted map is enough.
    std::vector<std::pair<uint32_t, uint32_t>> heap;  // (rank, list), smallest on top
    std::unordered_map<uint32_t, uint32_t> list_of;
    auto later = [](const auto& a, const auto& b) { return a.first > b.first; };
    auto offer = [&](uint32_t at) {
        uint32_t right = s.next[at];
        if (right == kNone) return;
        uint32_t rank = model.pairs().find(s.ids[at], s.ids[right]);
        if (rank == kNoRank) return;
        auto [it, is_new] = list_of.try_emplace(rank, 0);
        if (is_new) {
            if (free_lists.empty()) {
                free_lists.push_back(static_cast<uint32_t>(lists.size()));
                lists.emplace_back();
            }
            it->second = free_lists.back();
            free_lists.pop_back();
            heap.emplace_back(rank, it->second);
            std::push_heap(heap.begin(), heap.end(), later);
        }
        List& list = lists[it->second];
        if (!list.at.empty() && list.at.back() > at) list.sorted = false;
        list.at.push_back(at);
    };
    for (uint32_t i = 0; i + 1 < n; ++i) offer(i);
    while (!heap.empty()) {
        auto [rank, index] = heap.front();
        if (!lists[index].sorted) {
            auto& at = lists[index].at;
            std::sort(at.begin() + static_cast<ptrdiff_t>(lists[index].taken), at.end());
            lists[index].sorted = true;
        }
        if (lists[index].taken == lists[index].at.size()) {
            std::pop_heap(heap.begin(), heap.end(), later);
            heap.pop_back();
            list_of.erase(rank);
            lists[index].at.clear();
            lists[index].taken = 0;
            free_lists.push_back(index);
            continue;
        }
        uint32_t at = lists[index].at[lists[index].taken++];
        if (s.ids[at] == kNoId || s.next[at] == kNone) continue;
        uint32_t gone = s.next[at];
        if (model.pairs().find(s.ids[at], s.ids[gone]) != rank) continue;
        s.ids[at] = model.result_of(rank);
        s.ids[gone] = kNoId;
        s.next[at] = s.next[gone];
        if (s.next[at] != kNone) s.previous[s.next[at]] = at;
        if (s.previous[at] != kNone) offer(s.previous[at]);
        offer(at);
    }
    for (uint32_t i = 0; i < n && i != kNone; i = s.next[i]) out.push_back(s.ids[i]);
}

}  // namespace gristmill
