// The compiled vocabulary, shared by all threads and never changed: token bytes, merge table, coverage cuts.
#pragma once
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "memory.hpp"
#include "short_key.hpp"

namespace gristmill {

// A vocabulary that cannot be compiled; the message is for the user.
struct ModelError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr uint32_t kNoId = 0xFFFFFFFF;
constexpr uint32_t kNoRank = 0xFFFFFFFF;

// Pair of token ids -> merge rank. One 8-byte slot an entry: left (20 bits), right (20 bits), rank (24 bits).
class PairTable {
public:
    static constexpr uint32_t kMaxId = (1u << 20) - 1;
    static constexpr uint32_t kMaxRank = (1u << 24) - 2;

    void reserve(size_t num_pairs);
    void insert(uint32_t left, uint32_t right, uint32_t rank);  // a later insert of the same pair replaces
    uint32_t find(uint32_t left, uint32_t right) const {
        uint64_t key = uint64_t{left} << 20 | right;
        for (size_t i = home(key);; i = (i + 1) & mask_) {
            uint64_t slot = slots_[i];
            if (slot >> 24 == key) return static_cast<uint32_t>(slot) & 0xFFFFFF;
            if (slot == kEmpty) return kNoRank;
        }
    }
    void prefetch(uint32_t left, uint32_t right) const { __builtin_prefetch(&slots_[home(uint64_t{left} << 20 | right)]); }

private:
    static constexpr uint64_t kEmpty = ~0ull;
    size_t home(uint64_t key) const { return static_cast<size_t>(key * 0x9E3779B97F4A7C15ull >> shift_); }
    HugeVector<uint64_t> slots_{kEmpty, kEmpty};
    size_t mask_ = 1, count_ = 0;
    unsigned shift_ = 63;
};

// Token bytes -> id.
class TokenTable {
public:
    void build(std::span<const std::string_view> tokens);  // index = id; empty views are absent
    uint32_t find(std::string_view bytes) const;

private:
    std::span<const std::string_view> tokens_;
    std::vector<uint32_t> slots_;
    size_t mask_ = 0;
};

// The same for tokens of up to 15 bytes, one cache miss a look-up.
class ShortTokens {
public:
    struct Slot {
        ShortKey key{0, 0};
        uint32_t id = kNoId;
        bool is_reachable = false;
    };
    void build(std::span<const std::string_view> tokens, std::span<const uint8_t> is_reachable);
    const Slot* find(const ShortKey& key, uint64_t hash) const {
        for (size_t i = hash >> shift_;; i = (i + 1) & mask_) {
            if (slots_[i].key == key) return &slots_[i];
            if (slots_[i].key.high == 0) return nullptr;
        }
    }
    void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_]); }

private:
    HugeVector<Slot> slots_;
    size_t mask_ = 0;
    unsigned shift_ = 63;
};

// Says of a position in a text whether some token could cover it. "Yes" may be wrong, "no" never is, so where it
// says no, merging the two sides apart gives the same tokens (docs/design.md, coverage cuts).
//
// A token that covers a position starts 1, 2, or 3 and more bytes before it and ends as many after it: nine cases,
// each a set of (bytes before, bytes after) in one Bloom filter. Four small exact tables of byte pairs tell first
// whether any token starts or ends so close; inside running Chinese, say, few do, and one probe decides.
class CoverFilter {
public:
    void build(std::span<const std::string_view> tokens, std::span<const uint32_t> ids);
    // Do these two bytes stand side by side in some token?
    bool are_neighbours(uint8_t a, uint8_t b) const { return neighbours_.has(a, b); }
    // May a token lie across `at` in text[0, size)? 0 < at < size.
    bool may_cover(const uint8_t* text, size_t size, size_t at) const {
        const uint8_t* p = text + at;
        if (!neighbours_.has(p[-1], p[0])) return false;
        if (at < 3 || size - at < 3) return may_cover_near_edge(text, size, at);
        uint32_t before = uint32_t{p[-3]} | uint32_t{p[-2]} << 8 | uint32_t{p[-1]} << 16;
        uint32_t after = uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16;
        if (has(context_key(before, after, 3, 3))) return true;
        unsigned lefts = 4 | starts_1_.has(p[-1], p[0]) | starts_2_.has(p[-2], p[-1]) << 1;
        unsigned rights = 4 | ends_1_.has(p[-1], p[0]) | ends_2_.has(p[0], p[1]) << 1;
        return (lefts | rights) != 4 && may_cover_closely(before, after, lefts, rights);
    }

private:
    // 256 x 256 bits.
    struct PairSet {
        std::vector<uint64_t> bits = std::vector<uint64_t>(1024);
        void add(uint8_t a, uint8_t b) { bits[(a << 8 | b) >> 6] |= 1ull << (b & 63); }
        unsigned has(uint8_t a, uint8_t b) const { return bits[(a << 8 | b) >> 6] >> (b & 63) & 1; }
    };
    // Bytes around a position: the last `left` before it, the first `right` after it, and both counts, as one number.
    // before/after hold three bytes each, the nearest to the position highest/lowest.
    static uint64_t context_key(uint32_t before, uint32_t after, unsigned left, unsigned right) {
        uint64_t kept = before >> 8 * (3 - left);
        uint64_t first = after & ((1u << 8 * right) - 1);
        return kept | first << 24 | uint64_t{left} << 48 | uint64_t{right} << 50;
    }
    void add(uint64_t key);
    bool has(uint64_t key) const {
        uint64_t h = key * 0x9E3779B97F4A7C15ull;
        uint64_t bits = 1ull << (h >> 20 & 63) | 1ull << (h >> 26 & 63);
        return (words_[h >> shift_] & bits) == bits;
    }
    bool may_cover_near_edge(const uint8_t* text, size_t size, size_t at) const;
    // lefts, rights: bit l - 1 set when a token may start (end) l bytes away.
    bool may_cover_closely(uint32_t before, uint32_t after, unsigned lefts, unsigned rights) const;

    HugeVector<uint64_t> words_{0, 0};
    unsigned shift_ = 63;
    PairSet neighbours_, starts_1_, starts_2_, ends_1_, ends_2_;
};

enum class Symbols : uint8_t { bytes, characters };

struct ModelInput {
    Symbols symbols = Symbols::bytes;
    // A piece that is itself a token is that token, whatever the merges say (tiktoken, `ignore_merges`).
    bool whole_piece_first = false;
    // index = id; empty = no such token, or one that no text can produce.
    std::vector<std::string> tokens;
    // Lowest rank first. A token may have several pairs, of one rank or of several; several tokens may share a rank.
    struct Merge {
        uint32_t left, right, result, rank;
    };
    std::vector<Merge> merges;
    // 256; symbols == characters: fallback for characters that are no token.
    std::vector<uint32_t> byte_ids;
    // What ids stand for that no text produces: by id, for decoding alone.
    std::unordered_map<uint32_t, std::string> unproducible;
};

class Model {
public:
    explicit Model(ModelInput input);

    Symbols symbols() const { return symbols_; }
    bool whole_piece_first() const { return whole_piece_first_; }
    const PairTable& pairs() const { return pairs_; }
    // Rank of two neighbouring symbols that a byte each stands for (symbols == characters: ASCII only).
    uint32_t rank_of_bytes(uint8_t a, uint8_t b) const { return byte_pair_ranks_[a * 256u + b]; }
    // Id of a character below 128; symbols == characters.
    uint32_t ascii_id(uint8_t c) const { return ascii_ids_[c]; }
    // What merging two neighbours of that rank gives.
    uint32_t result_of(uint32_t rank, uint32_t left, uint32_t right) const {
        uint32_t id = result_of_rank_[rank];
        return id != kTied ? id : tied_results_.at(uint64_t{left} << 32 | right);
    }
    // Do pairs of this rank make different tokens (SentencePiece pieces of one score)? Then they go left to right.
    bool is_tied(uint32_t rank) const { return result_of_rank_[rank] == kTied; }
    void prefetch_result_of(uint32_t rank) const { __builtin_prefetch(&result_of_rank_[rank]); }
    uint32_t byte_id(uint8_t b) const { return byte_ids_[b]; }
    // symbols == bytes: some byte has no token; text loses it before merging (as `tokenizers` has it).
    bool drops_bytes() const { return drops_bytes_; }
    uint32_t character_id(std::string_view character) const { return tokens_by_bytes_.find(character); }
    uint32_t find_token(std::string_view bytes) const { return tokens_by_bytes_.find(bytes); }
    const ShortTokens& short_tokens() const { return short_tokens_; }
    // Does merging the token's own bytes give the token?
    bool is_reachable(uint32_t id) const { return reachable_[id]; }
    const CoverFilter& cover() const { return cover_; }
    // The bytes an id stands for in decoded text.
    std::string_view decoded(uint32_t id) const { return id < decoded_.size() ? decoded_[id] : std::string_view{}; }
    std::string_view token(uint32_t id) const { return id < tokens_.size() ? tokens_[id] : std::string_view{}; }
    size_t num_ids() const { return tokens_.size(); }
    size_t longest_token() const { return longest_token_; }

private:
    static constexpr uint32_t kTied = kNoId - 1;
    void check_reachable();

    Symbols symbols_;
    bool whole_piece_first_;
    std::vector<std::string> token_bytes_;
    std::vector<std::string_view> tokens_;
    std::vector<std::string> decoded_;
    TokenTable tokens_by_bytes_;
    ShortTokens short_tokens_;
    PairTable pairs_;
    HugeVector<uint32_t> byte_pair_ranks_;  // 256 x 256
    uint32_t ascii_ids_[128];
    HugeVector<uint32_t> result_of_rank_;
    std::unordered_map<uint64_t, uint32_t> tied_results_;  // left << 32 | right, for ranks that several tokens share
    std::vector<uint32_t> byte_ids_;
    bool drops_bytes_ = false;
    std::vector<uint8_t> reachable_;
    CoverFilter cover_;
    size_t longest_token_ = 0;
};

}  // namespace gristmill
