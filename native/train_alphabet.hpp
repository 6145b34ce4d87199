// Pieces as they come from counting, and the symbols they are made of before the first merge.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace gristmill::train {

// Flat arrays of the caller.
struct Pieces {
    const uint8_t* bytes;
    const int64_t* offsets;  // size + 1
    const uint64_t* counts;
    size_t size;

    const uint8_t* begin(size_t i) const { return bytes + offsets[i]; }
    size_t length(size_t i) const { return static_cast<size_t>(offsets[i + 1] - offsets[i]); }
};

enum class SymbolKind { bytes, characters };

// Symbols that occur, rising, and how often.
std::vector<std::pair<uint32_t, uint64_t>> count_symbols(const Pieces& pieces, SymbolKind kind);

// From symbols to token ids. A piece is cut where a symbol has none: nothing can be merged across it.
class Alphabet {
public:
    static constexpr uint32_t kNoToken = UINT32_MAX;

    explicit Alphabet(SymbolKind kind);
    void set(uint32_t symbol, uint32_t token);
    const std::vector<uint32_t>& tokens() const { return tokens_; }

    // Calls f(tokens, size) for each stretch of a piece that has at least two tokens.
    template <typename F>
    void for_each_stretch(const uint8_t* piece, size_t size, std::vector<uint32_t>& scratch, const F& f) const {
        scratch.clear();
        for (size_t at = 0; at < size;) {
            uint32_t token = next_token(piece, size, at);
            if (token != kNoToken) {
                scratch.push_back(token);
                continue;
            }
            if (scratch.size() > 1) f(scratch.data(), scratch.size());
            scratch.clear();
        }
        if (scratch.size() > 1) f(scratch.data(), scratch.size());
    }

private:
    uint32_t next_token(const uint8_t* piece, size_t size, size_t& at) const {
        if (kind_ == SymbolKind::bytes) return tokens_[piece[at++]];
        return next_character(piece, size, at);
    }
    uint32_t next_character(const uint8_t* piece, size_t size, size_t& at) const;

    SymbolKind kind_;
    std::vector<uint32_t> tokens_;  // by symbol
};

}  // namespace gristmill::train
