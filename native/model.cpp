#include "model.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <tuple>

#include "merge.hpp"
#include "threads.hpp"
#include "utf8.hpp"

namespace gristmill {

namespace {

bool is_before(const Merge& a, const Merge& b) {
    return std::tuple(a.rank, a.left, a.right) < std::tuple(b.rank, b.left, b.right);
}

}  // namespace

void PairTable::drop_repeated(std::vector<Merge>& merges) {
    auto pair_of = [](const Merge& merge) { return std::pair(merge.left, merge.right); };
    std::stable_sort(merges.begin(), merges.end(), [&](const Merge& a, const Merge& b) {
        return pair_of(a) != pair_of(b) ? pair_of(a) < pair_of(b) : a.rank < b.rank;
    });
    auto is_repeated = [&](const Merge& later, const Merge& earlier) { return pair_of(later) == pair_of(earlier); };
    merges.erase(merges.begin(), std::unique(merges.rbegin(), merges.rend(), is_repeated).base());
}

void PairTable::build(std::span<const Merge> merges, const PerfectHash::Found& known) {
    if (known.buckets.empty()) {
        std::vector<uint64_t> pairs;
        for (const Merge& merge : merges) pairs.push_back(pair(merge.left, merge.right));
        if (!hash_.build(pairs)) throw ModelError("no perfect hash was found for its merges");
    } else if (!hash_.take(merges.size(), known)) {
        throw ModelError("the places kept of its merges are of other merges");
    }
    merges_.assign(hash_.num_places(), {kNothing, kNothing, kNoRank, kNoId});
    for (const Merge& merge : merges) {
        Merge& at = merges_[hash_.place(pair(merge.left, merge.right))];
        if (at.left != kNothing) throw ModelError("two of its merges have one place");
        at = merge;
    }
}

std::vector<Merge> PairTable::in_order() const {
    std::vector<Merge> merges;
    std::copy_if(merges_.begin(), merges_.end(), std::back_inserter(merges), [](const Merge& m) { return m.left != kNothing; });
    std::sort(merges.begin(), merges.end(), is_before);
    return merges;
}

void TokenTable::build(std::span<const std::string_view> tokens, size_t least_bytes) {
    tokens_ = tokens;
    auto is_there = [&](std::string_view token) { return token.size() >= least_bytes; };
    auto count = static_cast<size_t>(std::count_if(tokens.begin(), tokens.end(), is_there));
    size_t size = std::bit_ceil(std::max<size_t>(count * 2, 16));
    slots_.assign(size, kNoId);
    mask_ = size - 1;
    for (uint32_t id = 0; id < tokens.size(); ++id) {
        if (!is_there(tokens[id])) continue;
        size_t i = (hash_bytes(tokens[id]) >> 32) & mask_;
        while (slots_[i] != kNoId) {
            if (tokens[slots_[i]] == tokens[id]) {
                throw ModelError("two ids (" + std::to_string(slots_[i]) + ", " + std::to_string(id) +
                                 ") have the same token");
            }
            i = (i + 1) & mask_;
        }
        slots_[i] = id;
    }
}

uint32_t TokenTable::find(std::string_view bytes) const {
    for (size_t i = (hash_bytes(bytes) >> 32) & mask_;; i = (i + 1) & mask_) {
        uint32_t id = slots_[i];
        if (id == kNoId || tokens_[id] == bytes) return id;
    }
}

void ShortTokens::build(std::span<const std::string_view> tokens, std::span<const uint8_t> is_reachable,
                        const PerfectHash::Found& known) {
    auto each_key = [&](const auto& take) {
        for (uint32_t id = 0; id < tokens.size(); ++id) {
            if (tokens[id].empty() || tokens[id].size() > ShortKey::kMaxBytes) continue;
            take(id, ShortKey::load_safely(reinterpret_cast<const uint8_t*>(tokens[id].data()), tokens[id].size()));
        }
    };
    if (known.buckets.empty()) {
        std::vector<uint64_t> hashes;
        each_key([&](uint32_t, const ShortKey& key) { hashes.push_back(key.hash()); });
        if (!hash_.build(hashes)) throw ModelError("no perfect hash was found for its tokens");
    } else {
        size_t num_keys = 0;
        each_key([&](uint32_t, const ShortKey&) { ++num_keys; });
        if (!hash_.take(num_keys, known)) throw ModelError("the places kept of its tokens are of other tokens");
    }
    tokens_.assign(hash_.num_places(), {{}, kNoId, false});
    each_key([&](uint32_t id, const ShortKey& key) {
        Token& at = tokens_[hash_.place(key.hash())];
        if (at.id != kNoId) throw ModelError("two of its tokens have one place");
        at = {key, id, is_reachable[id] != 0};
    });
}

Model::Model(ModelInput input)
    : symbols_(input.symbols),
      whole_piece_first_(input.whole_piece_first),
      byte_ids_(std::move(input.byte_ids)) {
    take_tokens(input);
    for (const Merge& merge : input.merges) {
        if (merge.rank >= kNoRank) throw ModelError("a merge has a rank over 67 million");
    }
    bool is_pruned = input.reachable.size() == tokens_.size();
    auto build_both = [&](const auto& build) {
        if (input.num_threads > 1) return run_threads(2, build);
        for (size_t i : {0, 1}) build(i);
    };
    build_both([&](size_t i) {
        if (i == 1) {
            if (symbols_ == Symbols::characters) return tokens_by_bytes_.build(tokens_);
            if (!is_pruned) TokenTable().build(tokens_);  // refuses a token that has two ids
            return;
        }
        if (!is_pruned) PairTable::drop_repeated(input.merges);
        if (!std::is_sorted(input.merges.begin(), input.merges.end(), is_before)) {
            std::sort(input.merges.begin(), input.merges.end(), is_before);
        }
        pairs_.build(input.merges, is_pruned ? input.merge_places : PerfectHash::Found{});
    });
    for (auto token : tokens_) longest_token_ = std::max(longest_token_, token.size());
    std::vector<uint32_t> ids_of_bytes(256, kNoId);  // of tokens that are a byte each
    for (uint32_t id = 0; id < tokens_.size(); ++id) {
        if (tokens_[id].size() == 1) ids_of_bytes[static_cast<uint8_t>(tokens_[id][0])] = id;
    }
    if (symbols_ == Symbols::bytes) {
        byte_ids_ = ids_of_bytes;
        drops_bytes_ = std::find(byte_ids_.begin(), byte_ids_.end(), kNoId) != byte_ids_.end();
    } else {
        if (byte_ids_.size() != 256) throw ModelError("a model of characters needs byte fallback");
        for (unsigned b = 0; b < 256; ++b) {
            bool is_token = b < 0x80 && ids_of_bytes[b] != kNoId;
            if (byte_ids_[b] == kNoId && !is_token) throw ModelError("byte fallback lacks a token for byte " + std::to_string(b));
        }
    }
    odd_decoded_ = std::move(input.unproducible);
    for (unsigned b = 0; b < 256 && symbols_ == Symbols::characters; ++b) {
        if (byte_ids_[b] != kNoId) odd_decoded_[byte_ids_[b]] = std::string(1, static_cast<char>(b));
    }
    std::copy_n(ids_of_bytes.begin(), 128, ascii_ids_);
    for (unsigned b = 0; b < 256; ++b) {
        bool is_character = symbols_ == Symbols::characters && b < 128 && ascii_ids_[b] != kNoId;
        symbols_of_bytes_[b] = is_character ? ascii_ids_[b] : byte_ids_[b];
    }
    byte_pairs_.resize(256 * 256, {kNoRank, kNoId});
    for (unsigned a = 0; a < 256; ++a) {
        for (unsigned b = 0; b < 256; ++b) {
            bool is_bytes = symbols_ == Symbols::bytes;
            if (!is_bytes && (a >= 128 || b >= 128)) continue;
            uint32_t left = is_bytes ? byte_ids_[a] : ascii_ids_[a], right = is_bytes ? byte_ids_[b] : ascii_ids_[b];
            const Merge* merge = left == kNoId || right == kNoId ? nullptr : pairs_.find(left, right);
            if (merge) byte_pairs_[a * 256 + b] = {merge->rank, merge->result};
        }
    }
    if (is_pruned) {
        reachable_ = std::move(input.reachable);
    } else {
        check_reachable();
        prune_merges(input.merges);
    }
    has_unreachable_wholes_ = !unreachable_wholes().empty();
    build_both([&](size_t i) {
        if (i == 1) return index_tokens(input.token_places);
        std::vector<bool> is_result(tokens_.size());
        for (const Merge& merge : input.merges) is_result[merge.result] = true;
        std::vector<uint32_t> results;
        for (uint32_t id = 0; id < tokens_.size(); ++id) {
            if (is_result[id]) results.push_back(id);
        }
        if (input.cover) {
            cover_ = std::move(*input.cover);
        } else {
            cover_.build(tokens_, results);
        }
        index_characters(input.merges, results);
        if (symbols_ == Symbols::bytes) index_joins(input.merges, results);
    });
}

void Model::take_tokens(const ModelInput& input) {
    std::vector<uint32_t> sizes = input.packed_sizes;
    token_bytes_.assign(input.packed.begin(), input.packed.end());
    for (const std::string& token : input.tokens) {
        sizes.push_back(static_cast<uint32_t>(token.size()));
        token_bytes_.insert(token_bytes_.end(), token.begin(), token.end());
    }
    tokens_.reserve(sizes.size());
    const char* at = token_bytes_.data();
    for (uint32_t size : sizes) {
        tokens_.emplace_back(at, size);
        at += size;
    }
}

std::vector<uint32_t> Model::unreachable_wholes() const {
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; whole_piece_first_ && id < tokens_.size(); ++id) {
        if (!reachable_[id] && !tokens_[id].empty()) ids.push_back(id);
    }
    return ids;
}

void Model::index_joins(std::span<const Merge> merges, std::span<const uint32_t> made) {
    look_at_ranks(merges);
    joins_.build(tokens_, made, unreachable_wholes());
}

void Model::look_at_ranks(std::span<const Merge> merges) {
    // By id, ranks being one more: of the merge that makes the token, and of the last one that a character waits for.
    std::vector<uint32_t> rank_of(tokens_.size()), made_at(tokens_.size());
    for (const Merge& merge : merges) rank_of[merge.result] = std::max(rank_of[merge.result], merge.rank + 1);
    for (const Merge& merge : merges) {
        std::string_view token = tokens_[merge.result];
        if (token.size() != 3 || static_cast<uint8_t>(token[0]) < 0xE0) continue;
        made_at[merge.result] = std::max({rank_of[merge.result], rank_of[merge.left], rank_of[merge.right], made_at[merge.result]});
    }
    are_characters_first_ = std::all_of(merges.begin(), merges.end(), [&](const Merge& merge) {
        return merge.rank >= std::max(made_at[merge.left], made_at[merge.right]) || !utf8_is_valid(tokens_[merge.result]);
    });
}

void Model::index_tokens(const PerfectHash::Found& token_places) {
    short_tokens_.build(tokens_, reachable_, token_places);
    long_tokens_.build(tokens_, ShortKey::kMaxBytes + 1);
    auto is_long = [](std::string_view token) { return token.size() > ShortKey::kMaxBytes; };
    long_hashes_.make_room(static_cast<size_t>(std::count_if(tokens_.begin(), tokens_.end(), is_long)));
    for (auto token : tokens_) {
        if (is_long(token)) long_hashes_.add(hash_bytes(token));
    }
}

// Only where tokens are made of whole characters, each of which is a token: then a character is one symbol, or bytes that nothing joins.
void Model::index_characters(std::span<const Merge> merges, std::span<const uint32_t> made) {
    if (symbols_ != Symbols::characters || whole_piece_first_) return;
    std::vector<bool> is_byte(tokens_.size());
    for (uint32_t id : byte_ids_) {
        if (id < is_byte.size()) is_byte[id] = true;
    }
    for (const Merge& merge : merges) {
        bool is_joined = tokens_[merge.left].size() + tokens_[merge.right].size() == tokens_[merge.result].size();
        if (!is_joined || !reachable_[merge.result] || is_byte[merge.left] || is_byte[merge.right]) return;
    }
    characters_.build(tokens_, made, byte_ids_);
}

void Model::check_reachable() {
    reachable_.assign(tokens_.size(), 0);
    last_pairs_.resize(tokens_.size());
    MergeScratch scratch;
    std::vector<uint32_t> ids;
    for (uint32_t id = 0; id < tokens_.size(); ++id) {
        std::string_view token = tokens_[id];
        if (token.empty()) continue;
        if (token.size() <= kShortSymbols) {
            uint32_t out[kShortSymbols];
            reachable_[id] = merge_short(*this, token, out, &last_pairs_[id]) == 1 && out[0] == id;
        } else {
            ids.clear();
            merge_long(*this, token, scratch, ids, &last_pairs_[id]);
            reachable_[id] = ids.size() == 1 && ids[0] == id;
        }
    }
}

void Model::prune_merges(std::vector<Merge>& merges) {
    std::vector<Merge> needed;
    for (const Merge& merge : merges) {
        std::string_view left = token(merge.left), right = token(merge.right), whole = token(merge.result);
        bool is_joined = !left.empty() && !right.empty() && left.size() + right.size() == whole.size() &&
                         whole.starts_with(left) && whole.ends_with(right);
        if (!is_joined) {  // what the argument needs
            needed = merges;
            break;
        }
        if (reachable_[merge.result] && last_pairs_[merge.result] == std::pair(merge.left, merge.right)) needed.push_back(merge);
    }
    if (needed.size() < merges.size()) {
        merges = std::move(needed);
        pairs_.build(merges, {});
    }
    std::vector<std::pair<uint32_t, uint32_t>>().swap(last_pairs_);
}

}  // namespace gristmill
