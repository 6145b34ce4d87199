// Learns the merges of a BPE vocabulary from counted pieces: always the pair that occurs most often, as a recount of all
// pieces before every merge would find it, for any number of threads.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "train_alphabet.hpp"
#include "train_pairs.hpp"
#include "train_shard.hpp"
#include "train_team.hpp"
#include "train_vocabulary.hpp"

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

class Learner {
public:
    // Copies what it needs: the pieces may go afterwards.
    Learner(const Pieces& pieces, const Alphabet& alphabet, const Setup& setup);

    // Learns for about so long; true when there is nothing left to learn.
    bool advance(double seconds);

    // Gives up the pieces and all that is known of pairs: what was learned stays, and nothing more can be.
    void forget_pieces();

    const Vocabulary& vocabulary() const { return vocabulary_; }
    const std::vector<Rule>& known() const { return setup_.known; }
    // Learned ones only, in order, with the count each pair had.
    const std::vector<Rule>& rules() const { return rules_; }
    const std::vector<int64_t>& counts() const { return counts_; }
    int64_t floor() const { return floor_; }
    // Of all pieces, each as often as it occurs.
    int64_t text_bytes() const { return text_bytes_; }
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

    // A token that new ones have met on one side, over all shards.
    struct Met {
        uint32_t token;
        uint32_t pair;  // that the two make from now on, or kNoPair
        int64_t count;
    };
    // One side of one merge of a round: 2 * merge is its left one. Which thread settles it changes nothing.
    struct Meeting {
        std::vector<Met>* met;  // of its thread
        size_t begin, end;      // there
        uint32_t num_new = 0, first_new = 0;  // pairs that are to be followed from now on, and the number of the first
    };
    struct Scratch {
        std::vector<Met> met;
        std::vector<int64_t> sums;   // by token, 0 between meetings
        std::vector<uint32_t> made;  // pair by token, of the meeting at hand
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

    void settle(bool is_worth_threads);
    template <typename Work>
    void for_each_meeting(bool is_worth_threads, const Work& work);
    void add_up(size_t meeting, Scratch& scratch);
    bool is_to_be_followed(size_t meeting, const Met& met) const;
    void make_room_for_new_pairs();
    void number_new_pairs(size_t meeting);
    void take_from_old_pairs(size_t meeting);
    void hand_out_numbers(size_t meeting, Scratch& scratch) const;

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
    int64_t lowest_, floor_ = 0, text_bytes_ = 0;
    size_t prune_at_ = 0, num_rescans_ = 0;
    bool is_built_ = false, is_finished_ = false;

    std::vector<Chosen> chosen_;
    size_t chosen_places_ = 0;
    int64_t self_limit_ = 0;
    uint32_t round_ = 0;
    std::vector<uint32_t> left_round_, right_round_, tied_round_;  // by token: the last round it was taken in
    std::vector<Candidate> tied_;
    int64_t crowded_count_ = 0;  // so many pairs have this count that they are not looked at together

    std::vector<Meeting> meetings_;
    std::vector<Scratch> scratch_;  // by thread
};

// Bytes that a Learner holds at its peak for pieces of `num_symbols` symbols in all. More only where one pair is a large part
// of all pairs.
uint64_t memory_needed(uint64_t num_pieces, uint64_t num_symbols, size_t vocab_size, unsigned num_threads);

}  // namespace gristmill::train
