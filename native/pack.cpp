#include "pack.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>

namespace gristmill {
namespace {

// All bits of the ids read: one larger than fits shows as a bit too high, without a branch a token.
template <typename Id>
uint32_t narrow(const uint32_t* ids, size_t size, Id* out) {
    uint32_t bits = 0;
    for (size_t i = 0; i < size; ++i) {
        bits |= ids[i];
        out[i] = static_cast<Id>(ids[i]);
    }
    return bits;
}

// Numbers 0..size-1 that are present, 64 to a word and a bit a word in the level above.
class NumberSet {
public:
    explicit NumberSet(size_t size) {
        do {
            size = (size + 63) / 64;
            levels_.emplace_back(size);
        } while (size > 1);
    }

    bool has(size_t number) const { return levels_[0][number / 64] >> number % 64 & 1; }

    void add(size_t number) {
        for (auto& level : levels_) {
            level[number / 64] |= uint64_t{1} << number % 64;
            number /= 64;
        }
    }

    void remove(size_t number) {
        for (auto& level : levels_) {
            if (level[number / 64] &= ~(uint64_t{1} << number % 64)) return;
            number /= 64;
        }
    }

    // The largest that is present and below `end`, or -1.
    int64_t last_below(size_t end) const {
        for (size_t height = 0; height < levels_.size() && end > 0; ++height) {
            size_t word = (end - 1) / 64;
            uint64_t below = levels_[height][word] & ~uint64_t{0} >> (63 - (end - 1) % 64);
            if (below) return descend(height, word * 64 + 63 - static_cast<size_t>(std::countl_zero(below)));
            end = word;
        }
        return -1;
    }

private:
    int64_t descend(size_t height, size_t number) const {
        while (height-- > 0) number = number * 64 + 63 - static_cast<size_t>(std::countl_zero(levels_[height][number]));
        return static_cast<int64_t>(number);
    }

    std::vector<std::vector<uint64_t>> levels_;
};

// Pieces by length, those of one length first in, first out.
class Pool {
public:
    // The ends of a queue mean something only while its length is present, so a long row costs no clearing.
    Pool(const std::vector<int64_t>& lengths, int64_t longest)
        : lengths_(lengths),
          present_(static_cast<size_t>(longest)),
          first_(std::make_unique_for_overwrite<size_t[]>(static_cast<size_t>(longest))),
          last_(std::make_unique_for_overwrite<size_t[]>(static_cast<size_t>(longest))),
          next_(lengths.size()) {}

    int64_t num_pieces() const { return num_pieces_; }
    int64_t num_tokens() const { return num_tokens_; }

    void put(size_t piece) {
        auto queue = static_cast<size_t>(lengths_[piece] - 1);
        if (present_.has(queue)) {
            next_[last_[queue]] = piece;
        } else {
            present_.add(queue);
            first_[queue] = piece;
        }
        last_[queue] = piece;
        ++num_pieces_;
        num_tokens_ += lengths_[piece];
    }

    // Takes the longest piece, then the longest that still fits, until none does; the number of their tokens.
    int64_t fill_row(int64_t row_length, std::vector<int64_t>& picks) {
        int64_t room = row_length;
        while (true) {
            int64_t found = present_.last_below(static_cast<size_t>(room));
            if (found < 0) return row_length - room;
            auto queue = static_cast<size_t>(found);
            size_t piece = first_[queue];
            if (piece == last_[queue]) {
                present_.remove(queue);
            } else {
                first_[queue] = next_[piece];
            }
            --num_pieces_;
            num_tokens_ -= lengths_[piece];
            room -= lengths_[piece];
            picks.push_back(static_cast<int64_t>(piece));
        }
    }

private:
    const std::vector<int64_t>& lengths_;
    NumberSet present_;
    std::unique_ptr<size_t[]> first_, last_;
    std::vector<size_t> next_;
    int64_t num_pieces_ = 0;
    int64_t num_tokens_ = 0;
};

void close_row(RowPlan& plan) { plan.row_offsets.push_back(static_cast<int64_t>(plan.picks.size())); }

void list_left(RowPlan& plan, size_t num_pieces) {
    std::vector<bool> is_picked(num_pieces);
    for (int64_t piece : plan.picks) is_picked[static_cast<size_t>(piece)] = true;
    plan.left.reserve(num_pieces - plan.picks.size());
    for (size_t piece = 0; piece < num_pieces; ++piece) {
        if (!is_picked[piece]) plan.left.push_back(static_cast<int64_t>(piece));
    }
}

}  // namespace

template <typename Id>
bool lay_out(const uint32_t* ids, const int64_t* offsets, size_t num_documents, int64_t bos, int64_t eos, Id* out,
             int64_t* out_offsets) {
    constexpr int64_t kLargest = std::numeric_limits<Id>::max();
    if (bos > kLargest || eos > kLargest) return false;
    uint32_t bits = 0;
    const Id* begin = out;
    out_offsets[0] = 0;
    for (size_t i = 0; i < num_documents; ++i) {
        if (bos != kNone) *out++ = static_cast<Id>(bos);
        auto size = static_cast<size_t>(offsets[i + 1] - offsets[i]);
        bits |= narrow(ids + offsets[i], size, out);
        out += size;
        if (eos != kNone) *out++ = static_cast<Id>(eos);
        out_offsets[i + 1] = out - begin;
    }
    return bits <= kLargest;
}

void widen_ids(const uint16_t* low, const uint8_t* high, size_t size, uint32_t* out) {
    for (size_t i = 0; i < size; ++i) out[i] = static_cast<uint32_t>(high[i]) << 16 | low[i];
}

RowPlan plan_rows(const std::vector<int64_t>& lengths, size_t num_pooled, int64_t row_length, PoolLimits limits) {
    RowPlan plan;
    Pool pool(lengths, row_length);
    for (size_t piece = 0; piece < lengths.size(); ++piece) {
        if (lengths[piece] == row_length) {
            plan.picks.push_back(static_cast<int64_t>(piece));
            close_row(plan);
            continue;
        }
        pool.put(piece);
        if (piece < num_pooled) continue;  // was within the limits when the last call ended
        while (pool.num_pieces() > limits.num_pieces || pool.num_tokens() > limits.num_tokens) {
            pool.fill_row(row_length, plan.picks);
            close_row(plan);
        }
    }
    list_left(plan, lengths.size());
    return plan;
}

RowPlan plan_rest(const std::vector<int64_t>& lengths, int64_t row_length, int64_t least_tokens) {
    RowPlan plan;
    Pool pool(lengths, row_length);
    for (size_t piece = 0; piece < lengths.size(); ++piece) pool.put(piece);
    while (pool.num_pieces() > 0) {
        if (pool.fill_row(row_length, plan.picks) < least_tokens) {
            plan.picks.resize(static_cast<size_t>(plan.row_offsets.back()));
        } else {
            close_row(plan);
        }
    }
    list_left(plan, lengths.size());
    return plan;
}

template <typename Id>
void gather_rows(const PieceSource<Id>& source, const PieceRows& rows, Id pad, Id* out) {
    for (size_t row = 0; row < rows.num_rows; ++row) {
        Id* end = out + rows.row_length;
        for (int64_t i = rows.row_offsets[row]; i < rows.row_offsets[row + 1]; ++i) {
            int64_t begin = rows.begins[i];
            const Id* ids = begin < source.first_size ? source.first + begin : source.second + (begin - source.first_size);
            std::memcpy(out, ids, static_cast<size_t>(rows.lengths[i]) * sizeof(Id));
            out += rows.lengths[i];
        }
        out = std::fill_n(out, end - out, pad);
    }
}

template bool lay_out(const uint32_t*, const int64_t*, size_t, int64_t, int64_t, uint16_t*, int64_t*);
template bool lay_out(const uint32_t*, const int64_t*, size_t, int64_t, int64_t, uint32_t*, int64_t*);
template void gather_rows(const PieceSource<uint16_t>&, const PieceRows&, uint16_t, uint16_t*);
template void gather_rows(const PieceSource<uint32_t>&, const PieceRows&, uint32_t, uint32_t*);

}  // namespace gristmill
