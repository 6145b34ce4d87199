#include "train_alphabet.hpp"

#include <algorithm>
#include <stdexcept>

#include "utf8.hpp"

namespace gristmill::train {

namespace {

constexpr uint32_t kNotACharacter = UINT32_MAX;
constexpr size_t kNumCharacters = 0x110000;

// The character at `at`, which moves on; a byte that is part of none stands for itself.
uint32_t read_character(const uint8_t* text, size_t size, size_t& at) {
    size_t length = std::min<size_t>(utf8_length(text[at]), size - at);
    if (utf8_first_invalid(text + at, length) < length) {
        ++at;
        return kNotACharacter;
    }
    unsigned taken;
    uint32_t character = utf8_decode(text + at, taken);
    at += taken;
    return character;
}

}  // namespace

std::vector<std::pair<uint32_t, uint64_t>> count_symbols(const Pieces& pieces, SymbolKind kind) {
    std::vector<uint64_t> counts(kind == SymbolKind::bytes ? 256 : kNumCharacters);
    for (size_t i = 0; i < pieces.size; ++i) {
        const uint8_t* piece = pieces.begin(i);
        size_t size = pieces.length(i);
        for (size_t at = 0; at < size;) {
            uint32_t symbol = kind == SymbolKind::bytes ? piece[at++] : read_character(piece, size, at);
            if (symbol == kNotACharacter) continue;
            uint64_t sum = counts[symbol] + pieces.counts[i];
            counts[symbol] = sum < pieces.counts[i] ? UINT64_MAX : sum;
        }
    }
    std::vector<std::pair<uint32_t, uint64_t>> found;
    for (uint32_t symbol = 0; symbol < counts.size(); ++symbol) {
        if (counts[symbol]) found.emplace_back(symbol, counts[symbol]);
    }
    return found;
}

Alphabet::Alphabet(SymbolKind kind) : kind_(kind), tokens_(kind == SymbolKind::bytes ? 256 : kNumCharacters, kNoToken) {}

void Alphabet::set(uint32_t symbol, uint32_t token) {
    if (symbol >= tokens_.size()) throw std::invalid_argument("a symbol of the alphabet is out of range");
    tokens_[symbol] = token;
}

uint32_t Alphabet::next_character(const uint8_t* piece, size_t size, size_t& at) const {
    uint32_t character = read_character(piece, size, at);
    return character == kNotACharacter ? kNoToken : tokens_[character];
}

}  // namespace gristmill::train
