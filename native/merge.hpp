// BPE of one stretch of text: lowest rank first, leftmost among equals.
//
// Four ways, one result: `merge_slowly` is the specification (a full scan a merge), `merge_short` runs up to 31
// symbols in L1, `merge_many` runs several short ones side by side so that their cache misses overlap, `merge_long`
// is near-linear for anything. Tests compare all four.
#pragma once
#include <cstdint>
#include <vector>

#include "model.hpp"

namespace gristmill {

constexpr size_t kShortSymbols = 31;

// Reused between calls so that long stretches do not allocate anew.
struct MergeScratch {
    std::vector<uint32_t> ids, next, previous;
};

// The symbols a stretch starts from: one a byte, or one a character with byte fallback.
void initial_symbols(const Model& model, std::string_view text, std::vector<uint32_t>& ids);

void merge_slowly(const Model& model, std::string_view text, std::vector<uint32_t>& out);
// At most kShortSymbols bytes; returns the number of ids written (at most text.size()).
size_t merge_short(const Model& model, std::string_view text, uint32_t* out);

struct MergeJob {
    static constexpr size_t kMaxBytes = kShortSymbols;
    std::string_view text;  // at most kMaxBytes, in; the rest out
    uint32_t ids[kMaxBytes];
    size_t count;
};
void merge_many(const Model& model, MergeJob* jobs, size_t count);

void merge_long(const Model& model, std::string_view text, MergeScratch& scratch, std::vector<uint32_t>& out);

}  // namespace gristmill
