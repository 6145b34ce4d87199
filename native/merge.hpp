// BPE of one stretch of text: lowest rank first, leftmost among equals.
//
// Five ways, one result: `merge_slowly` is the specification (a full scan a merge), `merge_short` runs up to 31
// symbols in L1, `merge_many` runs several short ones side by side so that their cache misses overlap, `merge_long`
// is near-linear for anything, `merge_by_windows` for what no cache holds. Tests compare them all.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "merge_queue.hpp"
#include "model.hpp"

namespace gristmill {

constexpr size_t kShortSymbols = 31;
constexpr size_t kFewSymbols = 512;  // from more of them on, merge_long keeps its pairs by rank

// Reused between calls so that long stretches do not allocate anew.
struct MergeScratch {
    std::vector<uint32_t> ids, next, previous, ranks, results;
    MergeQueue queue;
    SmallMergeQueue small_queue;

    size_t memory_bytes() const {
        return (ids.capacity() + next.capacity() + previous.capacity() + ranks.capacity() + results.capacity()) * sizeof(uint32_t) +
               queue.memory_bytes() + small_queue.memory_bytes();
    }
};

// The symbols a stretch starts from: one a byte, or one a character with byte fallback.
void initial_symbols(const Model& model, std::string_view text, std::vector<uint32_t>& ids);

void merge_slowly(const Model& model, std::string_view text, std::vector<uint32_t>& out);
// The pair that was merged last, where one is asked for.
using LastPair = std::pair<uint32_t, uint32_t>;
// At most kShortSymbols bytes; returns the number of ids written (at most text.size()).
size_t merge_short(const Model& model, std::string_view text, uint32_t* out, LastPair* last = nullptr);

template <size_t kBytes>
struct MergeJob {
    static constexpr size_t kMaxBytes = kBytes;
    std::string_view text;     // at most kMaxBytes, in
    uint8_t bytes[kBytes + 1];  // the same and zeros, in
    size_t count;
    uint32_t ids[kMaxBytes];

    void set(std::string_view piece) {
        text = piece;
        std::fill(std::copy(piece.begin(), piece.end(), bytes), std::end(bytes), uint8_t{0});
    }
};
// kSize is 16 or 32.
template <size_t kSize>
void merge_many(const Model& model, MergeJob<kSize - 1>* jobs, size_t count);

void merge_long(const Model& model, std::string_view text, MergeScratch& scratch, std::vector<uint32_t>& out,
                LastPair* last = nullptr);

// The same in parts that a cache holds (docs/design.md, windows); false where that cannot be, and then nothing was put out.
bool merge_by_windows(const Model& model, std::string_view text, size_t window_bytes, MergeScratch& scratch, std::vector<uint32_t>& out);

}  // namespace gristmill
