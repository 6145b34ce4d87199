// Pieces too long to be rewritten whole at every merge: tokens stay where they began, in one flat array.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "growing_array.hpp"

namespace gristmill::train {

constexpr uint32_t kEdge = UINT32_MAX;  // stands before and after each piece; no token has this id

// A token that spans several slots leaves all but its first unused: the second and the last then hold the span, so that
// both neighbours are found without links. One bit a slot says whether a token begins there.
class LongPieces {
public:
    size_t size() const { return slots_.size(); }

    void add(const uint32_t* tokens, size_t size, uint64_t count) {
        if (begins_.empty()) append(kEdge);
        begins_.push_back(static_cast<uint32_t>(slots_.size()));
        counts_.push_back(static_cast<int64_t>(count));
        for (size_t i = 0; i < size; ++i) append(tokens[i]);
        append(kEdge);
    }
    uint32_t token(uint32_t at) const { return slots_[at]; }
    bool is_token(uint32_t at) const { return is_begin_[at >> 6] >> (at & 63) & 1; }
    uint32_t next(uint32_t at) const { return is_token(at + 1) ? at + 1 : at + slots_[at + 1]; }
    uint32_t previous(uint32_t at) const { return is_token(at - 1) ? at - 1 : at - slots_[at - 1]; }

    // The token at `left` and its neighbour at `right` become one.
    void join(uint32_t left, uint32_t right, uint32_t token) {
        uint32_t end = next(right);
        is_begin_[right >> 6] &= ~(uint64_t{1} << (right & 63));
        slots_[left] = token;
        slots_[left + 1] = slots_[end - 1] = end - left;
    }
    // Calls f(first slot, count) for each piece.
    template <typename F>
    void for_each(const F& f) const {
        for (size_t i = 0; i < begins_.size(); ++i) f(begins_[i], counts_[i]);
    }
    // How often the piece around a slot occurs; `hint` makes rising slots cheap.
    int64_t count(uint32_t at, size_t& hint) const {
        if (at < begins_[hint] || (hint + 1 < begins_.size() && at >= begins_[hint + 1])) {
            hint = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), at) - begins_.begin()) - 1;
        }
        return counts_[hint];
    }

private:
    void append(uint32_t value) {
        size_t at = slots_.size();
        slots_.push(value);
        if ((at & 63) == 0) is_begin_.push_back(0);
        is_begin_[at >> 6] |= uint64_t{1} << (at & 63);
    }

    GrowingArray<uint32_t> slots_;
    std::vector<uint64_t> is_begin_;
    std::vector<uint32_t> begins_;  // slot of each piece's first token
    std::vector<int64_t> counts_;
};

}  // namespace gristmill::train
