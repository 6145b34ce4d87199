// The compiled vocabulary, shared by all threads and never changed: token bytes, merge table, coverage cuts.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bloom.hpp"
#include "character_table.hpp"
#include "join_filter.hpp"
#include "memory.hpp"
#include "model_hash.hpp"
#include "short_key.hpp"

namespace gristmill {

// A vocabulary that cannot be compiled; the message is for the user.
struct ModelError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

constexpr uint32_t kNoId = 0xFFFFFFFF;
constexpr uint32_t kNoRank = (1u << 26) - 1;  // a rank and a position of five bits fit 31 bits

// One rule: these two neighbours may become `result`, lowest rank first.
struct Merge {
    uint32_t left, right, rank, result;
};

// Pair of token ids -> merge. A look-up reads one merge and branches on nothing: whether a pair has one cannot be guessed.
class PairTable {
public:
    static constexpr uint32_t kMaxId = (1u << 30) - 1;
    static constexpr uint32_t kNothing = 0xFFFFFFFF;  // an id no pair has: the neighbour of a first or last symbol

    // Of two merges of one pair the later one counts.
    static void drop_repeated(std::vector<Merge>& merges);
    // `known` is what a table of the same merges found, or empty.
    void build(std::span<const Merge> merges, const PerfectHash::Found& known);
    PerfectHash::Found found() const { return hash_.found(); }

    static uint64_t pair(uint32_t left, uint32_t right) { return left | uint64_t{right} << 32; }
    // Where the merge of the pair lies if there is one; it is being fetched.
    uint32_t place(uint64_t pair) const {
        uint32_t place = hash_.place(pair);
        __builtin_prefetch(&merges_[place]);
        return place;
    }
    // What lies there, and its rank for this pair: kNoRank where it is the merge of another.
    const Merge& at(uint32_t place) const { return merges_[place]; }
    static uint32_t rank_for(const Merge& merge, uint64_t wanted) {
        uint64_t difference = pair(merge.left, merge.right) ^ wanted;
        return merge.rank | (-static_cast<uint32_t>(difference != 0) & kNoRank);  // kNoRank is all ones
    }
    // The merge of the pair, or nullptr.
    const Merge* find(uint32_t left, uint32_t right) const {
        const Merge& merge = merges_[hash_.place(pair(left, right))];
        return merge.left == left && merge.right == right ? &merge : nullptr;
    }
    // All merges, in order of rank.
    std::vector<Merge> in_order() const;

private:
    PerfectHash hash_;
    HugeVector<Merge> merges_ = HugeVector<Merge>(1, Merge{kNothing, kNothing, kNoRank, kNoId});
};

// Token bytes -> id.
class TokenTable {
public:
    // index = id; those of `most_absent` bytes and fewer are absent.
    void build(std::span<const std::string_view> tokens, size_t most_absent = 0);
    uint32_t find(std::string_view bytes) const;

private:
    std::span<const std::string_view> tokens_;
    std::vector<uint32_t> slots_;
    size_t mask_ = 0;
};

// The same for tokens of up to 15 bytes: a look-up reads one slot.
class ShortTokens {
public:
    struct Token {
        ShortKey key;
        uint32_t id;
        bool is_reachable;
    };
    // `known` is what a table of the same tokens found, or empty.
    void build(std::span<const std::string_view> tokens, std::span<const uint8_t> is_reachable, const PerfectHash::Found& known);
    PerfectHash::Found found() const { return hash_.found(); }
    // The token of these bytes, or nullptr.
    const Token* find(const ShortKey& key, uint64_t hash) const {
        const Token& token = tokens_[hash_.place(hash)];
        return token.key == key ? &token : nullptr;
    }
    void prefetch(uint64_t hash) const { __builtin_prefetch(&tokens_[hash_.place(hash)]); }

private:
    PerfectHash hash_;
    HugeVector<Token> tokens_ = HugeVector<Token>(1, Token{{}, kNoId, false});
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
    // As bytes, and made of them again; ModelError for bytes that are none.
    void pack(std::string& out) const;
    static CoverFilter unpack(std::string_view packed);
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

    // The same with six bytes of text around the place, most of all for places between characters of three bytes or more. There
    // a token starts or ends closer than three bytes only if it begins or ends inside a character, and those few are known
    // by the two or three bytes they begin or end with.
    bool may_cover_between(const uint8_t* p) const {
        uint32_t low, high;
        std::memcpy(&low, p - 3, 4);
        std::memcpy(&high, p - 1, 4);
        bool is_between = is_between_characters(low);
        bool is_close = across_2_1_.has(low >> 8) | across_1_2_.has(high & 0xFFFFFF) | across_1_1_.has(p[-1], p[0]);
        if (!is_between | is_close) [[unlikely]] return may_cover(p - 3, 6, 3);
        return between_.has(low | uint64_t{high >> 16} << 32);
    }

private:
    // Sets of three bytes; "has" may be wrong.
    struct TripleSet {
        std::vector<uint64_t> bits = std::vector<uint64_t>(1024);
        static uint32_t place(uint32_t triple) { return triple * 0x9E3779B1u >> 16; }
        void add(uint32_t triple) { bits[place(triple) >> 6] |= 1ull << (place(triple) & 63); }
        bool has(uint32_t triple) const { return bits[place(triple) >> 6] >> (place(triple) & 63) & 1; }
    };
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
    // The last of four bytes begins a character of three bytes or more, and the two before it do not begin one: the one before has
    // as many.
    static bool is_between_characters(uint32_t four) { return (four & 0xE0C0C000u) == 0xE0808000u; }
    void add_across(const uint8_t* token, size_t size);
    bool has(uint64_t key) const { return around_.has(key); }
    // Those of one size.
    template <typename Self>
    static auto small_sets(Self& self) {
        return std::array{&self.neighbours_.bits, &self.starts_1_.bits, &self.starts_2_.bits, &self.ends_1_.bits, &self.ends_2_.bits,
                          &self.across_1_1_.bits, &self.across_2_1_.bits, &self.across_1_2_.bits};
    }
    bool may_cover_near_edge(const uint8_t* text, size_t size, size_t at) const;
    // lefts, rights: bit l - 1 set when a token may start (end) l bytes away.
    bool may_cover_closely(uint32_t before, uint32_t after, unsigned lefts, unsigned rights) const;

    Bloom around_;
    Bloom between_;  // of (six bytes) between characters of three bytes or more: small, and running Chinese asks it alone
    PairSet neighbours_, starts_1_, starts_2_, ends_1_, ends_2_;
    // First or last bytes of tokens that begin or end inside a character, so many before and after the place between it and another.
    PairSet across_1_1_;
    TripleSet across_2_1_, across_1_2_;
};

enum class Symbols : uint8_t { bytes, characters };

struct ModelInput {
    Symbols symbols = Symbols::bytes;
    // A piece that is itself a token is that token, whatever the merges say (tiktoken, `ignore_merges`).
    bool whole_piece_first = false;
    // index = id; empty = no such token, or one that no text can produce.
    std::vector<std::string> tokens;
    // Instead, where they lie one after the other and stay until the model is built: their sizes, by id, and their bytes.
    std::vector<uint32_t> packed_sizes;
    std::string_view packed;
    // A token may have several pairs, of one rank or of several; several tokens may share a rank.
    std::vector<Merge> merges;
    // 256; symbols == characters: fallback for characters that are no token.
    std::vector<uint32_t> byte_ids;
    // What ids stand for that no text produces: by id, for decoding alone.
    std::unordered_map<uint32_t, std::string> unproducible;
    // By id, where it is known already, with merges that are pruned already; empty: to be found out.
    std::vector<uint8_t> reachable;
    // Likewise, where the places of pruned merges and of short tokens are known already.
    PerfectHash::Found merge_places, token_places;
    std::optional<CoverFilter> cover;
    // That build tables, 2 at most.
    size_t num_threads = 2;
};

class Model {
public:
    explicit Model(ModelInput input);
    Model(Model&&) = default;  // tables hold views of other members' memory, which moves along
    Model(const Model&) = delete;

    Symbols symbols() const { return symbols_; }
    bool whole_piece_first() const { return whole_piece_first_; }
    const PairTable& pairs() const { return pairs_; }
    // What two neighbouring symbols that a byte each stands for (symbols == characters: ASCII only) become, and when.
    struct Outcome {
        uint32_t rank, result;
    };
    Outcome merge_of_bytes(uint8_t a, uint8_t b) const { return byte_pairs_[a * 256u + b]; }
    // The initial symbol of a byte of text (symbols == characters: of an ASCII character).
    uint32_t symbol_of_byte(uint8_t b) const { return symbols_of_bytes_[b]; }
    // Id of a character below 128; symbols == characters.
    uint32_t ascii_id(uint8_t c) const { return ascii_ids_[c]; }
    uint32_t byte_id(uint8_t b) const { return byte_ids_[b]; }
    const uint32_t* byte_ids() const { return byte_ids_.data(); }
    // symbols == bytes: some byte has no token; text loses it before merging (as `tokenizers` has it).
    bool drops_bytes() const { return drops_bytes_; }
    // symbols == characters.
    uint32_t find_token(std::string_view bytes) const { return tokens_by_bytes_.find(bytes); }
    const ShortTokens& short_tokens() const { return short_tokens_; }
    // Id of a token longer than ShortKey::kMaxBytes that a whole piece (or a part of one) of these bytes is, or kNoId.
    uint32_t find_long(std::string_view bytes, bool is_part) const {
        uint32_t id = bytes.size() > longest_token_ ? kNoId : long_tokens_.find(bytes);
        return id != kNoId && (reachable_[id] || (whole_piece_first_ && !is_part)) ? id : kNoId;
    }
    // By hash_bytes: false where there is surely no such token, without a look at the table of all of them.
    bool may_be_long_token(uint64_t hash) const { return long_hashes_.has(hash); }
    // Is some token the id of a whole piece, though merging its bytes gives others?
    bool has_unreachable_wholes() const { return has_unreachable_wholes_; }
    // Does every merge of whole characters rank behind those that make the characters of three bytes that it takes?
    bool are_characters_first() const { return are_characters_first_; }
    // Does merging the token's own bytes give the token?
    bool is_reachable(uint32_t id) const { return id < reachable_.size() && reachable_[id]; }
    const CoverFilter& cover() const { return cover_; }
    // Built for models of bytes alone.
    const JoinFilter& joins() const { return joins_; }
    // Built for models of characters alone, and not for all of them.
    const CharacterTable& characters() const { return characters_; }
    // The bytes an id stands for in decoded text.
    std::string_view decoded(uint32_t id) const {
        auto odd = odd_decoded_.find(id);
        return odd != odd_decoded_.end() ? odd->second : token(id);
    }
    std::string_view token(uint32_t id) const { return id < tokens_.size() ? tokens_[id] : std::string_view{}; }
    size_t num_ids() const { return tokens_.size(); }

private:
    void take_tokens(const ModelInput& input);
    void check_reachable();
    // Leaves out merges that no text can need (docs/design.md, one way to each token); they are in order.
    void prune_merges(std::vector<Merge>& merges);
    // Tokens that merging does not reach, and that a whole piece may be.
    std::vector<uint32_t> unreachable_wholes() const;
    void index_joins(std::span<const Merge> merges, std::span<const uint32_t> made);
    void look_at_ranks(std::span<const Merge> merges);
    void index_tokens(const PerfectHash::Found& token_places);
    void index_characters(std::span<const Merge> merges, std::span<const uint32_t> made);

    Symbols symbols_;
    bool whole_piece_first_;
    std::vector<char> token_bytes_;  // one after the other
    std::vector<std::string_view> tokens_;
    std::unordered_map<uint32_t, std::string> odd_decoded_;  // by id, where they are not the token's bytes
    TokenTable tokens_by_bytes_;  // symbols == characters
    ShortTokens short_tokens_;
    TokenTable long_tokens_;  // those too long for short_tokens_
    Bloom long_hashes_;
    PairTable pairs_;
    HugeVector<Outcome> byte_pairs_;  // 256 x 256
    uint32_t symbols_of_bytes_[256];
    uint32_t ascii_ids_[128];
    std::vector<uint32_t> byte_ids_;
    bool drops_bytes_ = false;
    std::vector<uint8_t> reachable_;
    std::vector<std::pair<uint32_t, uint32_t>> last_pairs_;  // by id of a reachable token; empty once built
    bool has_unreachable_wholes_ = false;
    bool are_characters_first_ = false;
    CoverFilter cover_;
    JoinFilter joins_;
    CharacterTable characters_;
    size_t longest_token_ = 0;
};

}  // namespace gristmill
