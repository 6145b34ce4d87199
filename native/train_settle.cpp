// After the merges of a round: what stood beside a new token stands beside it no longer as it did. Old pairs lose, new ones
// are made.
#include <algorithm>
#include <atomic>
#include <span>

#include "train.hpp"

namespace gristmill::train {

namespace {

constexpr size_t kTogether = 32;  // pairs looked up at once, so that their cache misses overlap

uint64_t new_key(const Rule& rule, Side side, uint32_t token) {
    return side == Side::left ? pair_key(token, rule.token) : pair_key(rule.token, token);
}

uint64_t old_key(const Rule& rule, Side side, uint32_t token) {
    uint32_t beside = token == rule.token ? rule.left : token;
    return side == Side::left ? pair_key(beside, rule.left) : pair_key(rule.right, beside);
}

Side side_of(size_t meeting) { return meeting % 2 ? Side::right : Side::left; }

}  // namespace

// New pairs get their numbers before old ones lose: what one merge makes, a later one of the round may take from. What an
// earlier one takes from is never made by a later one, so the order of meetings is of no account.
void Learner::settle(bool is_worth_threads) {
    meetings_.resize(2 * chosen_.size());
    for (Scratch& scratch : scratch_) scratch.met.clear();
    for_each_meeting(is_worth_threads, [this](size_t meeting, Scratch& scratch) { add_up(meeting, scratch); });
    for (const Chosen& chosen : chosen_) pairs_[chosen.pair].count = 0;
    auto first_new = static_cast<uint32_t>(pairs_.size());
    make_room_for_new_pairs();
    for_each_meeting(is_worth_threads, [this](size_t meeting, Scratch&) { number_new_pairs(meeting); });
    for (uint32_t i = first_new; i < pairs_.size(); ++i) queue_.push({pairs_[i].count, pairs_[i].key, i});
    for_each_meeting(is_worth_threads, [this](size_t meeting, Scratch& scratch) {
        take_from_old_pairs(meeting);
        hand_out_numbers(meeting, scratch);
    });
}

template <typename Work>
void Learner::for_each_meeting(bool is_worth_threads, const Work& work) {
    if (!is_worth_threads) {
        for (size_t i = 0; i < meetings_.size(); ++i) work(i, scratch_[0]);
        return;
    }
    team_->run([&](unsigned thread) {
        for (size_t i = thread; i < meetings_.size(); i += team_->size()) work(i, scratch_[thread]);
    });
}

void Learner::add_up(size_t meeting, Scratch& scratch) {
    auto& [met, sums, made] = scratch;
    size_t begin = met.size(), size;
    for (auto& shard : shards_) {
        const Neighbour* neighbours = shard->neighbours(meeting / 2, side_of(meeting), size);
        for (size_t i = 0; i < size; ++i) {
            int64_t& sum = sums[neighbours[i].token];
            if (sum == 0) met.push_back({neighbours[i].token, kNoPair, 0});
            sum += neighbours[i].count;
        }
    }
    uint32_t num_new = 0;
    for (size_t i = begin; i < met.size(); ++i) {
        met[i].count = std::exchange(sums[met[i].token], 0);
        num_new += is_to_be_followed(meeting, met[i]);
    }
    meetings_[meeting] = {&met, begin, met.size(), num_new};
}

bool Learner::is_to_be_followed(size_t meeting, const Met& met) const {
    return met.count >= floor_ && is_short_enough(new_key(chosen_[meeting / 2].rule, side_of(meeting), met.token));
}

// Numbers go to meetings in their order, whichever thread fills them in.
void Learner::make_room_for_new_pairs() {
    size_t next = pairs_.size();
    for (Meeting& meeting : meetings_) {
        meeting.first_new = static_cast<uint32_t>(next);
        next += meeting.num_new;
    }
    pairs_.make_room(next);
}

void Learner::number_new_pairs(size_t meeting) {
    auto [all, begin, end, num_new, next] = meetings_[meeting];
    if (num_new == 0) return;
    for (size_t i = begin; i < end; ++i) {
        Met& met = (*all)[i];
        if (!is_to_be_followed(meeting, met)) continue;
        pairs_.put(next, new_key(chosen_[meeting / 2].rule, side_of(meeting), met.token), met.count);
        met.pair = next++;
    }
}

// Two threads may take from one pair.
void Learner::take_from_old_pairs(size_t meeting) {
    const Rule& rule = chosen_[meeting / 2].rule;
    auto [all, begin, end, num_new, first_new] = meetings_[meeting];
    uint64_t keys[kTogether];
    for (size_t first = begin; first < end; first += kTogether) {
        std::span<const Met> met(all->data() + first, std::min(kTogether, end - first));
        for (size_t i = 0; i < met.size(); ++i) {
            keys[i] = old_key(rule, side_of(meeting), met[i].token);
            pairs_.prefetch_slot(keys[i]);
        }
        for (size_t i = 0; i < met.size(); ++i) pairs_.prefetch_pair(keys[i]);
        for (size_t i = 0; i < met.size(); ++i) {
            uint32_t old = pairs_.find(keys[i]);
            if (old == kNoPair) continue;
            std::atomic_ref(pairs_[old].count).fetch_sub(met[i].count, std::memory_order_relaxed);
        }
    }
}

void Learner::hand_out_numbers(size_t meeting, Scratch& scratch) const {
    auto [met, begin, end, num_new, first_new] = meetings_[meeting];
    for (size_t i = begin; i < end; ++i) scratch.made[(*met)[i].token] = (*met)[i].pair;
    size_t size;
    for (auto& shard : shards_) {
        Neighbour* neighbours = shard->neighbours(meeting / 2, side_of(meeting), size);
        for (size_t i = 0; i < size; ++i) neighbours[i].pair = scratch.made[neighbours[i].token];
    }
}

}  // namespace gristmill::train
