#include "train_shard.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "train_find.hpp"
#include "train_long.hpp"
#include "train_replay.hpp"

namespace gristmill::train {

namespace {

constexpr size_t kPrefetch = 16;  // list entries ahead
constexpr uint32_t kNowhere = UINT32_MAX;
constexpr uint64_t kNoList = UINT64_MAX;

// In front of a record's tokens.
struct Header {
    uint32_t count;  // in records before big_end_: an index into big_counts_
    uint16_t capacity, length;
};
static_assert(sizeof(Header) == kHeaderBytes && kLongest <= UINT16_MAX);

struct Slice {
    uint64_t begin;
    uint32_t size;
};

// What one side of the merges of a round has met.
struct Meetings {
    struct Tally {
        int64_t count = 0;
        uint32_t num_places = 0;
    };
    struct Place {
        uint32_t token, where;
    };
    struct Cursor {
        uint64_t at;
        uint32_t last;
    };
    std::vector<Tally> tallies;  // by token, of the merge at hand
    std::vector<uint32_t> met;
    std::vector<Neighbour> neighbours;
    GrowingArray<Place> places;
    std::vector<size_t> neighbour_ends, place_ends;  // of each merge
    std::vector<Cursor> cursors;                     // by token

    explicit Meetings(size_t num_tokens) : tallies(num_tokens), cursors(num_tokens) {}

    void clear() {
        neighbours.clear();
        places.clear();
        neighbour_ends.assign(1, 0);
        place_ends.assign(1, 0);
    }
    void note(uint32_t token, uint32_t where, int64_t count) {
        Tally& tally = tallies[token];
        if (tally.num_places++ == 0) met.push_back(token);
        tally.count += count;
        places.push({token, where});
    }
    void end_merge() {
        for (uint32_t token : met) {
            neighbours.push_back({token, tallies[token].num_places, tallies[token].count, kNoPair});
            tallies[token] = {};
        }
        met.clear();
        neighbour_ends.push_back(neighbours.size());
        place_ends.push_back(places.size());
    }
};

// A place is one number: the slot of a record's header, or, past the last record, the slot of a token in a long piece.
template <typename Symbol>
class RecordShard final : public Shard {
    static constexpr size_t kHeaderSlots = kHeaderBytes / sizeof(Symbol);

public:
    explicit RecordShard(size_t vocab_size) : left_(vocab_size), right_(vocab_size) {}

    void reserve(size_t num_slots) override { records_.reserve(num_slots + kReadableBeyond); }
    void add(const uint32_t* tokens, size_t size, uint64_t count) override {
        if (records_.size() + long_.size() + size + kHeaderSlots + 2 >= kNowhere) {
            throw std::length_error("a share of the pieces is over 4 billion tokens; use more threads");
        }
        if (size > kLongest) return long_.add(tokens, size, count);
        bool is_big = count > UINT32_MAX;
        Header header{is_big ? static_cast<uint32_t>(big_counts_.size()) : static_cast<uint32_t>(count),
                      static_cast<uint16_t>(size), static_cast<uint16_t>(size)};
        size_t at = records_.size();
        records_.reserve_more(at + kHeaderSlots + size + kReadableBeyond);
        records_.resize(at + kHeaderSlots + size);
        std::memcpy(&records_[at], &header, sizeof header);
        for (size_t i = 0; i < size; ++i) records_[at + kHeaderSlots + i] = static_cast<Symbol>(tokens[i]);
        if (!is_big) return;
        big_counts_.push_back(static_cast<int64_t>(count));
        big_end_ = records_.size();
    }

    PairTable count_pairs() override {
        PairTable pairs;
        std::vector<uint32_t> last;
        list_sizes_.clear();
        for_each_pair([&](uint64_t key, uint32_t where, int64_t count) {
            uint32_t pair = pairs.find_or_add(key);
            pairs[pair].count += count;
            if (pair == last.size()) {
                last.push_back(kNowhere);
                list_sizes_.push_back(0);
            }
            if (std::exchange(last[pair], where) != where) ++list_sizes_[pair];
        });
        return pairs;
    }

    void list_pairs(const PairTable& pairs, const PairTable& own) override {
        slices_.assign(pairs.size(), {0, 0});
        std::vector<uint32_t> sizes(pairs.size());
        for (uint32_t i = 0; i < own.size(); ++i) {
            uint32_t pair = pairs.find(own[i].key);
            if (pair != kNoPair) sizes[pair] = list_sizes_[i];
        }
        std::vector<uint32_t>().swap(list_sizes_);
        uint64_t total = 0;
        for (size_t i = 0; i < slices_.size(); ++i) slices_[i].begin = std::exchange(total, total + sizes[i]);
        compact_at_ = room_for(total);
        lists_.reserve(compact_at_);
        lists_.resize(total);
        for_each_pair([&](uint64_t key, uint32_t where, int64_t) {
            uint32_t pair = pairs.find(key);
            if (pair == kNoPair) return;
            Slice& slice = slices_[pair];
            uint32_t* end = lists_.data() + slice.begin + slice.size;
            if (slice.size && end[-1] == where) return;
            *end = where;
            ++slice.size;
        });
    }

    void drop_lists() override {
        lists_.free();
        slices_.clear();
    }

    void replay(const PairTable& ranks, const std::vector<Rule>& rules) override {
        Replay replay(ranks, rules);
        for (size_t at = 0; at < records_.size();) {
            Header header = header_at(at);
            header.length = static_cast<uint16_t>(replay.short_piece(&records_[at + kHeaderSlots], header.length));
            std::memcpy(&records_[at], &header, sizeof header);
            at += kHeaderSlots + header.capacity;
        }
        long_.for_each([&](uint32_t first, int64_t) { replay.long_piece(long_, first); });
    }

    size_t list_size(uint32_t pair) const override { return slices_[pair].size; }

    void begin_round() override {
        left_.clear();
        right_.clear();
    }

    void apply(const Rule& rule, uint32_t pair) override {
        Slice slice = slices_[pair];
        const uint32_t* list = lists_.data() + slice.begin;
        size_t i = 0, hint = 0;
        for (; i < slice.size && list[i] < records_.size(); ++i) {
            if (i + kPrefetch < slice.size) __builtin_prefetch(records_.data() + list[i + kPrefetch], 1);
            merge_record(list[i], rule);
        }
        for (; i < slice.size; ++i) merge_long(static_cast<uint32_t>(list[i] - records_.size()), rule, hint);
        left_.end_merge();
        right_.end_merge();
    }

    Neighbour* neighbours(size_t merge, Side side, size_t& size) override {
        Meetings& meetings = side == Side::left ? left_ : right_;
        size_t begin = meetings.neighbour_ends[merge];
        size = meetings.neighbour_ends[merge + 1] - begin;
        return meetings.neighbours.data() + begin;
    }

    void write_lists(const PairTable& pairs, int64_t floor) override {
        size_t need = 0;
        for (const Meetings* meetings : {&left_, &right_}) {
            for (const Neighbour& n : meetings->neighbours) need += n.pair == kNoPair ? 0 : n.num_places;
        }
        if (lists_.size() + need > compact_at_) compact(pairs, floor, need);
        slices_.resize(pairs.size(), {0, 0});
        for (size_t merge = 0; merge + 1 < left_.place_ends.size(); ++merge) {
            write_lists(left_, merge);
            write_lists(right_, merge);
        }
    }

    void renumber(const std::vector<uint32_t>& kept) override {
        for (size_t i = 0; i < kept.size(); ++i) slices_[i] = slices_[kept[i]];
        slices_.resize(kept.size());
    }

private:
    static size_t room_for(size_t num_places) { return num_places + num_places / 8 + (1 << 16); }

    Header header_at(size_t at) const {
        Header header;
        std::memcpy(&header, &records_[at], sizeof header);
        return header;
    }
    int64_t count_of(size_t at, const Header& header) const {
        return at < big_end_ ? big_counts_[header.count] : header.count;
    }

    template <typename F>
    void for_each_pair(const F& f) const {
        for (size_t at = 0; at < records_.size();) {
            Header header = header_at(at);
            int64_t count = count_of(at, header);
            const Symbol* tokens = &records_[at + kHeaderSlots];
            for (unsigned i = 0; i + 1u < header.length; ++i) {
                f(pair_key(tokens[i], tokens[i + 1]), static_cast<uint32_t>(at), count);
            }
            at += kHeaderSlots + header.capacity;
        }
        long_.for_each([&](uint32_t at, int64_t count) {
            for (uint32_t next = long_.next(at); long_.token(next) != kEdge; at = std::exchange(next, long_.next(next))) {
                f(pair_key(long_.token(at), long_.token(next)), static_cast<uint32_t>(records_.size() + at), count);
            }
        });
    }

    void merge_record(uint32_t where, const Rule& rule) {
        Header header = header_at(where);
        Symbol* tokens = &records_[where + kHeaderSlots];
        const auto left = static_cast<Symbol>(rule.left), right = static_cast<Symbol>(rule.right);
        const unsigned length = header.length;
        PairPlaces places = find_pairs(tokens, length, left, right);
        if (places.first + 1 >= length) return;  // the pair went in an earlier merge
        int64_t count = count_of(where, header);
        if (places.is_only) {
            unsigned first = places.first;
            if (first > 0) left_.note(tokens[first - 1], where, count);
            if (first + 2 < length) right_.note(tokens[first + 2], where, count);
            tokens[first] = static_cast<Symbol>(rule.token);
            close_gap(tokens, first + 1, length);
            --header.length;
            std::memcpy(&records_[where], &header, sizeof header);
            return;
        }
        merge_many(where, header, rule, places.first, count);
    }

    void merge_many(uint32_t where, Header header, const Rule& rule, unsigned read, int64_t count) {
        Symbol* tokens = &records_[where + kHeaderSlots];
        const auto left = static_cast<Symbol>(rule.left), right = static_cast<Symbol>(rule.right);
        const unsigned length = header.length;
        auto is_pair = [&](unsigned i) { return i + 1 < length && tokens[i] == left && tokens[i + 1] == right; };
        unsigned write = read;
        bool is_after_new = false;
        while (read < length) {
            if (!is_pair(read)) {
                tokens[write++] = tokens[read++];
                is_after_new = false;
                continue;
            }
            if (is_after_new) {
                right_.note(rule.token, where, count);
            } else if (write > 0) {
                left_.note(tokens[write - 1], where, count);
            }
            tokens[write++] = static_cast<Symbol>(rule.token);
            read += 2;
            is_after_new = true;
            if (read < length && !is_pair(read)) right_.note(tokens[read], where, count);
        }
        header.length = static_cast<uint16_t>(write);
        std::memcpy(&records_[where], &header, sizeof header);
    }

    // Places come in rising order, so a run is merged from the left, as in a record.
    void merge_long(uint32_t at, const Rule& rule, size_t& hint) {
        if (!long_.is_token(at) || long_.token(at) != rule.left) return;
        uint32_t second = long_.next(at);
        if (long_.token(second) != rule.right) return;
        int64_t count = long_.count(at, hint);
        auto base = static_cast<uint32_t>(records_.size());
        uint32_t before = long_.previous(at), after = long_.next(second);
        long_.join(at, second, rule.token);
        if (long_.token(before) == rule.token) {
            right_.note(rule.token, base + before, count);
        } else if (long_.token(before) != kEdge) {
            left_.note(long_.token(before), base + before, count);
        }
        bool is_next = long_.token(after) == rule.left && long_.token(long_.next(after)) == rule.right;
        if (long_.token(after) != kEdge && !is_next) right_.note(long_.token(after), base + at, count);
    }

    void write_lists(Meetings& meetings, size_t merge) {
        auto begin = meetings.neighbours.begin();
        auto from = begin + static_cast<ptrdiff_t>(meetings.neighbour_ends[merge]);
        auto to = begin + static_cast<ptrdiff_t>(meetings.neighbour_ends[merge + 1]);
        uint64_t end = lists_.size();
        for (auto n = from; n != to; ++n) {
            meetings.cursors[n->token] = {n->pair == kNoPair ? kNoList : end, kNowhere};
            if (n->pair == kNoPair) continue;
            slices_[n->pair].begin = end;
            end += n->num_places;
        }
        lists_.resize(end);
        for (size_t i = meetings.place_ends[merge]; i < meetings.place_ends[merge + 1]; ++i) {
            auto [token, where] = meetings.places[i];
            Meetings::Cursor& cursor = meetings.cursors[token];
            if (cursor.at == kNoList || std::exchange(cursor.last, where) == where) continue;
            lists_[cursor.at++] = where;
        }
        for (auto n = from; n != to; ++n) {
            if (n->pair == kNoPair) continue;
            slices_[n->pair].size = static_cast<uint32_t>(meetings.cursors[n->token].at - slices_[n->pair].begin);
        }
    }

    // What is left is moved down in one sweep, in the order the lists lie in.
    void compact(const PairTable& pairs, int64_t floor, size_t need) {
        std::vector<uint32_t> left;
        for (uint32_t i = 0; i < slices_.size(); ++i) {
            if (pairs[i].count < floor) slices_[i].size = 0;
            if (slices_[i].size) left.push_back(i);
        }
        std::sort(left.begin(), left.end(), [&](uint32_t a, uint32_t b) { return slices_[a].begin < slices_[b].begin; });
        uint64_t end = 0;
        for (uint32_t i : left) {
            Slice& slice = slices_[i];
            if (slice.begin != end) {
                std::memmove(lists_.data() + end, lists_.data() + slice.begin, slice.size * sizeof(uint32_t));
            }
            slice.begin = end;
            end += slice.size;
        }
        lists_.resize(end);
        compact_at_ = std::max(compact_at_, room_for(end + need));
        lists_.reserve(compact_at_);
    }

    GrowingArray<Symbol> records_;
    std::vector<int64_t> big_counts_;
    size_t big_end_ = 0;
    LongPieces long_;
    GrowingArray<uint32_t> lists_;
    std::vector<Slice> slices_;         // by pair
    std::vector<uint32_t> list_sizes_;  // between count_pairs and list_pairs
    size_t compact_at_ = 0;
    Meetings left_, right_;
};

}  // namespace

std::unique_ptr<Shard> make_shard(size_t vocab_size) {
    if (symbol_bytes(vocab_size) == 2) return std::make_unique<RecordShard<uint16_t>>(vocab_size);
    return std::make_unique<RecordShard<uint32_t>>(vocab_size);
}

}  // namespace gristmill::train
