// From counted pieces to the shards of a training.
#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "train.hpp"

namespace gristmill::train {

namespace {

constexpr uint64_t kShardSlots = uint64_t{1} << 31;  // places are 32-bit numbers
constexpr uint64_t kSmallCount = 1 << 16;
constexpr size_t kAhead = 16;  // pieces

// Most frequent first: records that merges visit together then lie together. Equal counts keep their order.
std::vector<uint32_t> order_by_count(const Pieces& pieces) {
    std::vector<uint32_t> order(pieces.size), large;
    std::vector<size_t> begins(kSmallCount + 1);
    for (size_t i = 0; i < pieces.size; ++i) {
        uint64_t count = pieces.counts[i];
        if (count >= kSmallCount) {
            large.push_back(static_cast<uint32_t>(i));
        } else {
            ++begins[count];
        }
    }
    std::stable_sort(large.begin(), large.end(),
                     [&](uint32_t a, uint32_t b) { return pieces.counts[a] > pieces.counts[b]; });
    std::copy(large.begin(), large.end(), order.begin());
    size_t begin = large.size();
    for (size_t count = kSmallCount; count-- > 0;) begin += std::exchange(begins[count], begin);
    for (size_t i = 0; i < pieces.size; ++i) {
        if (pieces.counts[i] < kSmallCount) order[begins[pieces.counts[i]]++] = static_cast<uint32_t>(i);
    }
    return order;
}

int64_t text_bytes_of(const Pieces& pieces) {
    unsigned __int128 total = 0;
    for (size_t i = 0; i < pieces.size; ++i) total += static_cast<unsigned __int128>(pieces.counts[i]) * pieces.length(i);
    if (total > INT64_MAX) throw std::length_error("the pieces occur more than 2^63 times");
    return static_cast<int64_t>(total);
}

}  // namespace

Learner::Learner(const Pieces& pieces, const Alphabet& alphabet, const Setup& setup)
    : setup_(setup), vocabulary_(setup.tokens), lowest_(std::max<int64_t>(1, setup.min_frequency)) {
    size_t num_ids = std::max<size_t>(setup.vocab_size, vocabulary_.size());
    if (num_ids >= UINT32_MAX || pieces.size >= UINT32_MAX) throw std::length_error("more than 4 billion tokens or pieces");
    lengths_.assign(num_ids, 0);
    has_followers_.assign(num_ids, false);
    left_round_.assign(num_ids, 0);
    right_round_.assign(num_ids, 0);
    tied_round_.assign(num_ids, 0);
    for (uint32_t token : alphabet.tokens()) {
        if (token == Alphabet::kNoToken) continue;
        if (token >= vocabulary_.size()) throw std::invalid_argument("the alphabet has an id that no token has");
        lengths_[token] = 1;
    }
    for (const Rule& rule : setup_.known) {
        if (std::max({rule.left, rule.right, rule.token}) >= vocabulary_.size()) {
            throw std::invalid_argument("a known merge has an id that no token has");
        }
        lengths_[rule.token] = lengths_[rule.left] + lengths_[rule.right];
        has_followers_[rule.left] = has_followers_[rule.right] = true;
    }
    text_bytes_ = text_bytes_of(pieces);
    load(pieces, alphabet);
}

void Learner::forget_pieces() {
    is_built_ = is_finished_ = true;
    shards_.clear();
    pairs_ = PairTable();
    queue_ = PairQueue<IsBefore>(IsBefore{this});
}

void Learner::load(const Pieces& pieces, const Alphabet& alphabet) {
    std::vector<uint32_t> order = order_by_count(pieces);
    size_t num_ids = lengths_.size(), width = symbol_bytes(num_ids);
    uint64_t num_bytes = pieces.size ? static_cast<uint64_t>(pieces.offsets[pieces.size] - pieces.offsets[0]) : 0;
    uint64_t least = (num_bytes + record_slots(0, width) * pieces.size) / kShardSlots + 1;
    unsigned num_threads = std::max(1u, setup_.num_threads);
    size_t num_shards = (least + num_threads - 1) / num_threads * num_threads;
    for (size_t i = 0; i < num_shards; ++i) shards_.push_back(make_shard(num_ids));
    team_ = std::make_unique<Team>(num_threads);
    scratch_.resize(team_->size());
    for (Scratch& scratch : scratch_) {
        scratch.sums.assign(num_ids, 0);
        scratch.made.assign(num_ids, kNoPair);
    }
    team_->run([&](unsigned thread) {
        for (size_t i = thread; i < num_shards; i += team_->size()) fill_shard(i, order, pieces, alphabet);
    });
}

// Every so manieth piece, the most frequent first.
void Learner::fill_shard(size_t index, const std::vector<uint32_t>& order, const Pieces& pieces, const Alphabet& alphabet) {
    Shard& shard = *shards_[index];
    size_t step = shards_.size(), num_slots = 0, width = symbol_bytes(lengths_.size());
    for (size_t i = index; i < order.size(); i += step) {
        size_t length = pieces.length(order[i]);
        if (length > 1 && length <= kLongest) num_slots += record_slots(length, width);
    }
    shard.reserve(num_slots);
    std::vector<uint32_t> scratch;
    for (size_t i = index; i < order.size() && pieces.counts[order[i]]; i += step) {
        if (i + kAhead * step < order.size()) __builtin_prefetch(pieces.begin(order[i + kAhead * step]));
        alphabet.for_each_stretch(pieces.begin(order[i]), pieces.length(order[i]), scratch,
                                  [&](const uint32_t* tokens, size_t size) { shard.add(tokens, size, pieces.counts[order[i]]); });
    }
}

uint64_t memory_needed(uint64_t num_pieces, uint64_t num_symbols, size_t vocab_size, unsigned num_threads) {
    uint64_t records = num_pieces * kHeaderBytes + num_symbols * symbol_bytes(vocab_size);
    uint64_t lists = num_symbols * sizeof(uint32_t);
    uint64_t noted = lists * 3 / 8;         // neighbours of the most frequent pair, and lists not yet moved down
    uint64_t by_token = vocab_size * 256;   // spellings, and what each shard counts by token
    return records + lists + noted + by_token * (1 + num_threads) + (uint64_t{64} << 20);
}

}  // namespace gristmill::train
