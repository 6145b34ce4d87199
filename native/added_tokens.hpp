// Added tokens: strings found in text before anything else, leftmost first and longest among those.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "split.hpp"

namespace gristmill {

struct AddedToken {
    uint32_t id;
    std::string content;  // as it stands in the text it is looked for in (normalised where that applies)
    bool special, single_word, strip_left, strip_right;
};

// How text that spells a special token is read.
enum class SpecialPolicy : uint8_t { text, parse };

class AddedTokens {
public:
    // `word_class` says of a code point: bit 0 word character, bit 1 white space.
    AddedTokens(std::vector<AddedToken> tokens, ClassTable word_class);

    struct Match {
        size_t begin, end;  // with the white space it takes
        const AddedToken* token;
    };
    // The next match in text at or after `from`; false if there is none. `taken` is where the last match ended:
    // white space before it is not taken twice. `from` moves past what was looked at.
    bool next(std::string_view text, size_t& from, size_t taken, SpecialPolicy policy, Match& match) const;
    const std::vector<AddedToken>& tokens() const { return tokens_; }
    // Nothing here can match under this policy.
    bool is_idle(SpecialPolicy policy) const;

private:
    struct Node {
        std::vector<std::pair<uint8_t, uint32_t>> children;  // sorted by byte
        uint32_t token = 0xFFFFFFFF;
    };
    bool may_begin(std::string_view text, size_t at) const;
    size_t find_candidate(std::string_view text, size_t from) const;
    uint32_t longest_at(std::string_view text, size_t at) const;
    bool stands_alone(std::string_view text, size_t begin, size_t end) const;
    unsigned class_before(std::string_view text, size_t at, size_t& start) const;
    unsigned class_at(std::string_view text, size_t at, size_t& end) const;

    std::vector<AddedToken> tokens_;
    ClassTable word_class_;
    std::vector<Node> nodes_;
    std::vector<uint8_t> first_bytes_;
    std::vector<uint64_t> first_pairs_;  // 256 x 256 bits: some token starts so
    bool has_plain_ = false;
};

}  // namespace gristmill
