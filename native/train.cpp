#include "train.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <utility>

namespace gristmill::train {

namespace {

constexpr size_t kFewPlaces = 1500;          // below this a round is not worth waking threads for
constexpr size_t kMostPlaces = 1 << 21;      // of a batch of several merges: bounds what one round notes down
constexpr size_t kPairsAMerge = 4;           // pairs kept for every merge still to be learned
constexpr size_t kLeastPairs = 1 << 16;
constexpr size_t kMostTied = 1000;

}  // namespace

bool Learner::IsBefore::operator()(const Candidate& a, const Candidate& b) const {
    if (a.count != b.count) return a.count > b.count;
    if (learner->setup_.tie_break == TieBreak::bytes && a.key != b.key) {
        const Vocabulary& vocabulary = learner->vocabulary_;
        int order = vocabulary.spelling(left_of(a.key)).compare(vocabulary.spelling(left_of(b.key)));
        if (order == 0) order = vocabulary.spelling(right_of(a.key)).compare(vocabulary.spelling(right_of(b.key)));
        if (order != 0) return order < 0;
    }
    return a.key < b.key;
}

bool Learner::advance(double seconds) {
    using Clock = std::chrono::steady_clock;
    auto end = Clock::now() + std::chrono::duration<double>(seconds);
    if (!std::exchange(is_built_, true)) {
        if (!setup_.known.empty()) replay();
        rebuild();
    }
    while (!is_finished_) {
        choose();
        if (!chosen_.empty()) {
            apply_chosen();
        } else if (floor_ > lowest_ && vocabulary_.size() < setup_.vocab_size) {
            rebuild();  // pairs below the floor were not followed: find them again
        } else {
            is_finished_ = true;
        }
        if (Clock::now() >= end) break;
    }
    return is_finished_;
}

// Building

// Counts of all pairs are taken anew, and those worth following get their lists.
void Learner::rebuild() {
    ++num_rescans_;
    std::vector<PairTable> own(shards_.size());
    pairs_ = PairTable();
    queue_.clear();
    team_->run([&](unsigned thread) {
        for (size_t i = thread; i < shards_.size(); i += team_->size()) {
            shards_[i]->drop_lists();
            own[i] = shards_[i]->count_pairs();
        }
    });
    PairTable sums;
    for (size_t shard = 0; shard < (own.size() > 1 ? own.size() : 0); ++shard) {
        for (uint32_t i = 0; i < own[shard].size(); ++i) {
            sums[sums.find_or_add(own[shard][i].key)].count += own[shard][i].count;
        }
    }
    const PairTable& all = own.size() > 1 ? sums : own[0];
    std::vector<int64_t> counts;
    for (uint32_t i = 0; i < all.size(); ++i) {
        if (is_short_enough(all[i].key)) counts.push_back(all[i].count);
    }
    bool is_first = num_rescans_ == 1 && setup_.first_floor > 0;
    floor_ = is_first ? std::max(lowest_, setup_.first_floor) : floor_for(std::move(counts));
    pairs_ = PairTable(2 * wanted_pairs());
    for (uint32_t i = 0; i < all.size(); ++i) {
        if (all[i].count >= floor_ && is_short_enough(all[i].key)) pairs_.add(all[i].key, all[i].count);
    }
    sums = PairTable();
    team_->run([&](unsigned thread) {
        for (size_t i = thread; i < shards_.size(); i += team_->size()) shards_[i]->list_pairs(pairs_, own[i]);
    });
    queue_.fill(pairs_, floor_);
    prune_at_ = 2 * std::max(pairs_.size(), wanted_pairs());
}

// As `tokenizers` has it: two symbols may always be merged, anything more must stay below the limit.
bool Learner::is_short_enough(uint64_t key) const {
    size_t left = lengths_[left_of(key)], right = lengths_[right_of(key)];
    return (left == 1 && right == 1) || left + right < setup_.max_token_length;
}

void Learner::replay() {
    PairTable ranks;
    std::vector<Rule> rules = setup_.known;
    rules.insert(rules.end(), rules_.begin(), rules_.end());
    for (size_t i = 0; i < rules.size(); ++i) {
        ranks[ranks.find_or_add(pair_key(rules[i].left, rules[i].right))].count = static_cast<int64_t>(i);
    }
    for_each_shard(true, [&](Shard& shard) { shard.replay(ranks, rules); });
}

void Learner::for_each_shard(bool is_worth_threads, const std::function<void(Shard&)>& work) {
    if (!is_worth_threads) {
        for (auto& shard : shards_) work(*shard);
        return;
    }
    team_->run([&](unsigned thread) {
        for (size_t i = thread; i < shards_.size(); i += team_->size()) work(*shards_[i]);
    });
}

size_t Learner::wanted_pairs() const {
    return std::max(kLeastPairs, kPairsAMerge * (setup_.vocab_size - std::min<size_t>(setup_.vocab_size, vocabulary_.size())));
}

// A pair's count only falls, so one that is too rare now to be among those still to be merged needs no following. Where
// that guess was too high, the queue runs empty and everything is counted anew.
int64_t Learner::floor_for(std::vector<int64_t> counts) const {
    size_t wanted = wanted_pairs();
    if (counts.size() <= wanted) return lowest_;
    auto last = counts.begin() + static_cast<ptrdiff_t>(wanted);
    std::nth_element(counts.begin(), last, counts.end(), std::greater<>());
    int64_t floor = *last;
    auto num_above = std::count_if(counts.begin(), counts.end(), [=](int64_t count) { return count > floor; });
    // Ties at the floor may be far more than wanted.
    if (static_cast<size_t>(num_above) >= wanted / 2) ++floor;
    return std::max(floor, lowest_);
}

// Pairs that are merged or too rare give way.
void Learner::prune() {
    std::vector<int64_t> counts;
    for (uint32_t i = 0; i < pairs_.size(); ++i) {
        if (pairs_[i].count >= floor_) counts.push_back(pairs_[i].count);
    }
    floor_ = std::max(floor_, floor_for(std::move(counts)));
    PairTable left(2 * wanted_pairs());
    std::vector<uint32_t> kept;
    for (uint32_t i = 0; i < pairs_.size(); ++i) {
        if (pairs_[i].count < floor_) continue;
        left.add(pairs_[i].key, pairs_[i].count);
        kept.push_back(i);
    }
    pairs_ = std::move(left);
    for_each_shard(true, [&](Shard& shard) { shard.renumber(kept); });
    queue_.fill(pairs_, floor_);
    prune_at_ = 2 * std::max(pairs_.size(), wanted_pairs());
}

// Choosing. Several merges are done in one round where no pair that the first ones make could come before the others:
//
// A merge (a, b) -> z makes pairs (x, z) and (z, y), and count(x, z) <= count(x, a), count(z, y) <= count(b, y). A batch
// ends before the first pair whose left token is the right one, or whose right token is the left one, of a pair in it;
// so (x, a) and (b, y) are still waiting, behind every pair of the batch, and neither they nor what they lead to comes
// first. Nor does a merge of the batch take occurrences from another. Equal counts: z is the largest id, so (x, z) comes
// after (x, a) and (z, y) after everything. A pair of equals (a, a) has its own followers, (z, z) and (z, a), of at most half
// its count.

void Learner::choose() {
    chosen_.clear();
    chosen_places_ = 0;
    self_limit_ = 0;
    ++round_;
    setup_.tie_break == TieBreak::ids ? choose_by_ids() : choose_by_bytes();
}

bool Learner::is_in_conflict(const Candidate& candidate) const {
    return right_round_[left_of(candidate.key)] == round_ || left_round_[right_of(candidate.key)] == round_ ||
           candidate.count <= self_limit_;
}

// Adds a pair to the batch; false if the batch ends here, with or without it.
bool Learner::take(const Candidate& candidate) {
    uint32_t left = left_of(candidate.key), right = right_of(candidate.key);
    size_t num_places = 0;
    for (auto& shard : shards_) num_places += shard->list_size(candidate.index);
    bool is_too_much = !chosen_.empty() && (is_in_conflict(candidate) || chosen_places_ + num_places > kMostPlaces);
    bool is_full = vocabulary_.size() >= setup_.vocab_size;
    uint32_t token = vocabulary_.find(left, right);
    bool is_new = token == vocabulary_.size();
    // A token that had its id before does not have the largest one: it ends the batch. If known merges go on from it, it
    // stands alone. No piece holds it yet: a stretch that no merge has crossed is always merged alike, so it is either
    // this token or this pair wherever it stands.
    bool has_followers = !is_new && has_followers_[token];
    if (is_too_much || is_full || (has_followers && !chosen_.empty())) {
        put_back(candidate);
        return false;
    }
    chosen_.push_back({{left, right, token}, candidate.index, candidate.count, has_followers});
    record(chosen_.back());
    chosen_places_ += num_places;
    left_round_[left] = right_round_[right] = round_;
    if (left == right) self_limit_ = std::max(self_limit_, candidate.count / 2);
    return is_new;
}

void Learner::choose_by_ids() {
    Candidate candidate;
    while (queue_.pop(pairs_, floor_, candidate) && take(candidate)) {
    }
}

// By bytes, (z, y) may come before a pair of equal count: all pairs of one count are looked at together, and the batch
// ends where (b, y) is among them. Where they are too many, they are merged one by one.
void Learner::choose_by_bytes() {
    bool is_going = true;
    while (is_going && pop_tied()) {
        bool is_crowded = crowded_count_ == tied_[0].count;
        for (const Candidate& tied : tied_) {
            tied_round_[left_of(tied.key)] = round_;
            is_going &= chosen_.empty() || (!is_crowded && !is_in_conflict(tied));
        }
        size_t next = 0;
        while (is_going && next < tied_.size()) {
            uint32_t right = right_of(tied_[next].key);
            is_going = take(tied_[next++]) && tied_round_[right] != round_ && !is_crowded;
        }
        while (next < tied_.size()) put_back(tied_[next++]);
    }
}

// The best pair and those of the same count, in order; of a crowd, not all.
bool Learner::pop_tied() {
    Candidate candidate;
    tied_.clear();
    while (queue_.pop(pairs_, floor_, candidate)) {
        if (!tied_.empty() && candidate.count != tied_[0].count) {
            put_back(candidate);
            break;
        }
        tied_.push_back(candidate);
        if (tied_.size() >= kMostTied) crowded_count_ = candidate.count;
        if (crowded_count_ == candidate.count) break;
    }
    return !tied_.empty();
}

// Merging

void Learner::apply_chosen() {
    if (chosen_[0].has_followers) return relearn();
    bool is_large = chosen_places_ >= kFewPlaces && !team_->is_held_up();
    for_each_shard(is_large, [&](Shard& shard) {
        shard.begin_round();
        for (const Chosen& chosen : chosen_) shard.apply(chosen.rule, chosen.pair);
    });
    settle(is_large);
    for_each_shard(is_large, [&](Shard& shard) { shard.write_lists(pairs_, floor_); });
    if (pairs_.size() > prune_at_) prune();
}

// A tokenizer may have merges that start from a token none of its merges could make. Once one can, an encoder goes on with
// those at once, and so do the pieces.
void Learner::relearn() {
    replay();
    rebuild();
}

void Learner::record(const Chosen& chosen) {
    const Rule& rule = chosen.rule;
    if (rule.token == vocabulary_.size()) vocabulary_.add(rule.left, rule.right);
    lengths_[rule.token] = lengths_[rule.left] + lengths_[rule.right];
    rules_.push_back(rule);
    counts_.push_back(chosen.count);
}

}  // namespace gristmill::train
