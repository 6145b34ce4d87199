// Ids into payload, pieces of documents into rows: what copies every token, and what chooses among thousands of pieces.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

constexpr int64_t kNone = -1;

// Documents ids[offsets[i]..offsets[i + 1]), each with `bos` before and `eos` after it (kNone: none), as `Id`.
// `out` has room for all of them and `out_offsets` for one number more than there are documents. False: an id is
// too large for `Id`, and what was written is of no use.
template <typename Id>
bool lay_out(const uint32_t* ids, const int64_t* offsets, size_t num_documents, int64_t bos, int64_t eos, Id* out,
             int64_t* out_offsets);

// Ids from their lower 16 bits and the 8 bits above them.
void widen_ids(const uint16_t* low, const uint8_t* high, size_t size, uint32_t* out);

// Which pieces make which row: those of row r are picks[row_offsets[r]..row_offsets[r + 1]). What was not picked is
// `left`, in the order it came.
struct RowPlan {
    std::vector<int64_t> row_offsets{0};
    std::vector<int64_t> picks;
    std::vector<int64_t> left;
};

struct PoolLimits {
    int64_t num_pieces;
    int64_t num_tokens;
};

// Best fit with look-ahead, piece by piece, so that the rows do not depend on how many pieces come at a time. A piece of
// `row_length` is a row at once; others go to a pool, and when the pool is over a limit, rows are made of it: the longest
// piece, then the longest that still fits, until none does; of equal ones, the first come. The first `num_pooled` pieces
// were left by the call before. Lengths are 1..row_length.
RowPlan plan_rows(const std::vector<int64_t>& lengths, size_t num_pooled, int64_t row_length, PoolLimits limits);

// All pieces into rows by the same choice; those of a row with fewer than `least_tokens` are left instead.
RowPlan plan_rest(const std::vector<int64_t>& lengths, int64_t row_length, int64_t least_tokens);

// Pieces one after the other in rows, with `pad` after the last. A piece begins in `first`, or, from `first_size` on,
// in `second`; it lies wholly in one of them, and the pieces of a row fit in it.
template <typename Id>
struct PieceSource {
    const Id* first;
    int64_t first_size;
    const Id* second;
};
struct PieceRows {
    const int64_t* begins;
    const int64_t* lengths;
    const int64_t* row_offsets;
    size_t num_rows;
    int64_t row_length;
};
template <typename Id>
void gather_rows(const PieceSource<Id>& source, const PieceRows& rows, Id pad, Id* out);

}  // namespace gristmill
