// The compiled vocabulary, shared by all threads and never changed: token bytes, merge table, coverage cuts.
#pragma once
#include <algorithm>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bloom.hpp"
#include "character_table.hpp"
#include "cover_filter.hpp"
#include "join_filter.hpp"
#include "memory.hpp"
#include "model_error.hpp"
#include "model_hash.hpp"
#include "short_key.hpp"

namespace gristmill {

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
    // index = id; shorter ones are absent, and those that are empty.
    void build(std::span<const std::string_view> tokens, size_t least_bytes = 1);
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
    uint32_t find_token(std::string_view bytes) const {
        assert(symbols_ == Symbols::characters);
        return tokens_by_bytes_.find(bytes);
    }
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
