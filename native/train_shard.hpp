// A share of the pieces: their tokens, and for each pair the places where it occurs.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "growing_array.hpp"
#include "train_pairs.hpp"

namespace gristmill::train {

struct Rule {
    uint32_t left, right, token;
};

enum class Side { left, right };

// A token found beside a new one, on one side of it.
struct Neighbour {
    uint32_t token;  // on the right: the new token itself where two of them meet
    uint32_t num_places;
    int64_t count;
    uint32_t pair;  // the pair that the two make from now on, or kNoPair; told before lists are written
};

// A merge round has two steps. apply() rewrites the pieces and says which tokens the new one has met; once their counts
// are known over all shards and the pairs worth keeping have a number, write_lists() notes where those occur.
// All places of a pair are found in one round (its newer token is made in that round), so a list is written once.
class Shard {
public:
    virtual ~Shard() = default;

    // Room for pieces that take so many slots; there may be more.
    virtual void reserve(size_t num_slots) = 0;
    // Pieces come with counts that do not rise, and have at least two tokens.
    virtual void add(const uint32_t* tokens, size_t size, uint64_t count) = 0;

    // Every pair with its count; also finds out how long the lists will be.
    virtual PairTable count_pairs() = 0;
    // Lists of the pairs in the table, numbered as there; `own` is what count_pairs() has just given.
    virtual void list_pairs(const PairTable& pairs, const PairTable& own) = 0;
    // Applies all rules, lowest rank first, to every piece; lists are void after that.
    virtual void replay(const PairTable& ranks, const std::vector<Rule>& rules) = 0;
    virtual void drop_lists() = 0;

    virtual size_t list_size(uint32_t pair) const = 0;
    virtual void begin_round() = 0;
    virtual void apply(const Rule& rule, uint32_t pair) = 0;
    virtual Neighbour* neighbours(size_t merge, Side side, size_t& size) = 0;
    virtual void write_lists(const PairTable& pairs, int64_t floor) = 0;
    // The pairs that stay, by their old numbers in rising order.
    virtual void renumber(const std::vector<uint32_t>& kept) = 0;
};

constexpr size_t kLongest = 256;  // tokens of a piece that is rewritten whole; longer ones are LongPieces
constexpr size_t kHeaderBytes = 8;

// Slots that a piece takes; an upper bound on what shards hold.
inline size_t record_slots(size_t num_tokens, size_t symbol_bytes) { return kHeaderBytes / symbol_bytes + num_tokens; }

std::unique_ptr<Shard> make_shard(size_t vocab_size);
inline size_t symbol_bytes(size_t vocab_size) { return vocab_size <= 0x10000 ? 2 : 4; }

}  // namespace gristmill::train
