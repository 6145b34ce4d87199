// From a tokenizer file's own terms to the ids, bytes and pairs that `Model` compiles.
#pragma once
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "model.hpp"

namespace gristmill {

using Strings = std::vector<std::string_view>;

// What the strings of a vocabulary stand for.
enum class TokenText : uint8_t {
    bytes,       // themselves, any bytes (tiktoken)
    byte_level,  // each character stands for a byte (GPT-2's table)
    plain,       // themselves, text in characters
    marks,       // the same, with U+2581 for a space
};

struct VocabularyInput {
    Strings tokens;  // as in the file
    std::vector<uint32_t> ids;
    TokenText text = TokenText::bytes;
    bool byte_fallback = false;
    bool whole_piece_first = false;
};

// BPE by a merge list, highest priority first; the same pair twice: the later one counts.
ModelInput from_merges(const VocabularyInput& vocabulary,
                       const std::vector<std::pair<std::string_view, std::string_view>>& merges);

// BPE by rank: any two neighbours whose concatenation is a token may merge, lowest rank first. `ranks` goes with
// `tokens`; tokens of equal rank go left to right.
// `byte_ids`: 256, or none for a vocabulary of bytes.
ModelInput from_ranks(const VocabularyInput& vocabulary, const std::vector<uint32_t>& ranks,
                      const std::vector<uint32_t>& byte_ids = {});

}  // namespace gristmill
