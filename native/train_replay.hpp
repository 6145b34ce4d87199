// Known merges applied to a piece, lowest rank first: how a training goes on from merges it is given.
#pragma once
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "train_long.hpp"
#include "train_pairs.hpp"

namespace gristmill::train {

class Replay {
public:
    // `ranks` holds the pairs of the rules; the count of each is its rank, an index into the rules.
    Replay(const PairTable& ranks, const std::vector<Rule>& rules) : ranks_(ranks), rules_(rules) {}

    // Returns the new length.
    template <typename Symbol>
    size_t short_piece(Symbol* tokens, size_t size) {
        found_.resize(size);
        for (size_t i = 0; i + 1 < size; ++i) found_[i] = rank(tokens[i], tokens[i + 1]);
        while (size > 1) {
            size_t best = 0;
            for (size_t i = 1; i + 1 < size; ++i) {
                if (found_[i] < found_[best]) best = i;
            }
            if (found_[best] == kNoRank) break;
            tokens[best] = static_cast<Symbol>(rules_[found_[best]].token);
            std::copy(tokens + best + 2, tokens + size, tokens + best + 1);
            auto from = found_.begin() + static_cast<ptrdiff_t>(best);
            std::copy(from + 1, found_.begin() + static_cast<ptrdiff_t>(size) - 1, from);
            --size;
            if (best > 0) found_[best - 1] = rank(tokens[best - 1], tokens[best]);
            if (best + 1 < size) found_[best] = rank(tokens[best], tokens[best + 1]);
        }
        return size;
    }

    void long_piece(LongPieces& pieces, uint32_t first) {
        for (uint32_t at = first; pieces.token(at) != kEdge; at = pieces.next(at)) offer(pieces, at);
        while (!waiting_.empty()) {
            auto [rank_then, at] = waiting_.top();
            waiting_.pop();
            if (!pieces.is_token(at)) continue;
            uint32_t second = pieces.next(at);
            if (pieces.token(second) == kEdge || rank(pieces.token(at), pieces.token(second)) != rank_then) continue;
            pieces.join(at, second, rules_[rank_then].token);
            uint32_t before = pieces.previous(at);
            if (pieces.token(before) != kEdge) offer(pieces, before);
            offer(pieces, at);
        }
    }

private:
    static constexpr uint32_t kNoRank = UINT32_MAX;
    using Waiting = std::pair<uint32_t, uint32_t>;  // rank, place

    uint32_t rank(uint32_t left, uint32_t right) const {
        uint32_t pair = ranks_.find(pair_key(left, right));
        return pair == kNoPair ? kNoRank : static_cast<uint32_t>(ranks_[pair].count);
    }
    void offer(const LongPieces& pieces, uint32_t at) {
        uint32_t next = pieces.token(pieces.next(at));
        if (next == kEdge) return;
        uint32_t found = rank(pieces.token(at), next);
        if (found != kNoRank) waiting_.push({found, at});
    }

    const PairTable& ranks_;
    const std::vector<Rule>& rules_;
    std::vector<uint32_t> found_;
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting_;
};

}  // namespace gristmill::train
