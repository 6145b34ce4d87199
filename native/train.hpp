// Learns the merges of a BPE vocabulary from counted pieces: always the pair that occurs most often, as a recount of all
// pieces before every merge would find it, for any number of threads.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "train_alphabet.hpp"
#include "train_pairs.hpp"
#include "train_shard.hpp"
#include "train_team.hpp"

namespace gristmill::train {

enum class TieBreak { ids, bytes };

struct Setup {
    // Spelling of every id there is before the first new merge: special tokens, the alphabet, tokens of known merges.
    // Empty: no merge can spell it.
    std::vector<std::string> tokens;
    std::vector<Rule> known;  // applied before anything is learned
    size_t vocab_size = 0;
    int64_t min_frequency = 0;
    size_t max_token_length = SIZE_MAX;  // in symbols; tokens of two symbols are always allowed, longer ones stay below it
    TieBreak tie_break = TieBreak::ids;
    unsigned num_threads = 1;
    int64_t first_floor = 0;  // 0: chosen. The result is the same for any.
};

// The tokens so far.
class Vocabulary {
public:
    explicit Vocabulary(const std::vector<std::string>& tokens);

    uint32_t size() const { return static_cast<uint32_t>(ends_.size()) - 1; }
    std::string_view spelling(uint32_t id) const {
        return std::string_view(bytes_).substr(ends_[id], ends_[id + 1] - ends_[id]);
    }
    // Id of the token that two others make, or size() where it would be new.
    uint32_t find(uint32_t left, uint32_t right) const;
    void add(uint32_t left, uint32_t right);

private:
    void append(std::string_view token);

    std::string bytes_;
    std::vector<size_t> ends_{0};
    std::unordered_map<std::string, uint32_t> ids_;
};

class Learner {
public:
    // Copies what it needs: the pieces may go afterwards.
    Learner(const Pieces& pieces, const Alphabet& alphabet, const Setup& setup);

    // Learns for about so long; true when there is nothing left to learn.
    bool advance(double seconds);

    const Vocabulary& vocabulary() const { return vocabulary_; }
    // Learned ones only, in order, with the count each pair had.
    const std::vector<Rule>& rules() const { return rules_; }
    const std::vector<int64_t>& counts() const { return counts_; }
    int64_t floor() const { return floor_; }
    size_t num_rescans() const { return num_rescans_; }

private:
    struct IsBefore {
        const Learner* learner;
        bool operator()(const Candidate& a, const Candidate& b) const;
    };
    struct Chosen {
        Rule rule;
        uint32_t pair;
        int64_t count;
        bool has_followers;
    };

    void load(const Pieces& pieces, const Alphabet& alphabet);
    void fill_shard(size_t index, const std::vector<uint32_t>& order, const Pieces& pieces, const Alphabet& alphabet);
    void for_each_shard(bool is_worth_threads, const std::function<void(Shard&)>& work);

    void rebuild();
    void replay();
    int64_t floor_for(std::vector<int64_t> counts) const;
    bool is_short_enough(uint64_t key) const;
    size_t wanted_pairs() const;
    void prune();

    void choose();
    void choose_by_ids();
    void choose_by_bytes();
    bool pop_tied();
    bool is_in_conflict(const Candidate& candidate) const;
    bool take(const Candidate& candidate);
    void put_back(const Candidate& candidate) { queue_.push(candidate); }

    void apply_chosen();
    void relearn();
    void record(const Chosen& chosen);
    void settle(size_t merge, const Chosen& chosen, Side side);
    uint32_t new_pair(const Rule& rule, Side side, uint32_t token, int64_t count);

    Setup setup_;
    Vocabulary vocabulary_;
    std::vector<uint32_t> lengths_;    // of tokens, in symbols
    std::vector<bool> has_followers_;  // whether a known merge takes the token
    std::vector<Rule> rules_;
    std::vector<int64_t> counts_;

    std::vector<std::unique_ptr<Shard>> shards_;
    std::unique_ptr<Team> team_;
    PairTable pairs_;
    PairQueue<IsBefore> queue_{IsBefore{this}};
    int64_t lowest_, floor_ = 0;
    size_t prune_at_ = 0, num_rescans_ = 0;
    bool is_built_ = false, is_finished_ = false;

    std::vector<Chosen> chosen_;
    size_t chosen_places_ = 0;
    int64_t self_limit_ = 0;
    uint32_t round_ = 0;
    std::vector<uint32_t> left_round_, right_round_, tied_round_;  // by token: the last round it was taken in
    std::vector<Candidate> tied_;
    int64_t crowded_count_ = 0;  // so many pairs have this count that they are not looked at together

    std::vector<int64_t> sums_;  // by token, while one merge is settled
    std::vector<uint32_t> met_, made_;
};

// Bytes that a Learner holds at its peak for pieces of `num_symbols` symbols in all. More only where one pair is a large part
// of all pairs.
uint64_t memory_needed(uint64_t num_pieces, uint64_t num_symbols, size_t vocab_size, unsigned num_threads);

}  // namespace gristmill::train
