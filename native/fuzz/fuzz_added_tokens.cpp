// Any tokens in any text: what is found lies in order, reads as its token, and nothing before it was missed.
//
// Input: a byte for the number of tokens; for each a byte of flags and its content up to a zero; then the text.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/small_tokenizer.hpp"

using namespace gristmill;

namespace {

void require(bool is_right) {
    if (!is_right) std::abort();
}

std::vector<AddedToken> read_tokens(const uint8_t*& data, const uint8_t* end) {
    std::vector<AddedToken> tokens;
    if (data == end) return tokens;
    for (int count = *data++ % 8; count > 0 && data < end; --count) {
        uint8_t flags = *data++;
        const auto* zero = static_cast<const uint8_t*>(std::memchr(data, 0, static_cast<size_t>(end - data)));
        const uint8_t* stop = std::min(zero ? zero : end, data + 12);
        AddedToken token{small::kFirstAdded + static_cast<uint32_t>(tokens.size()), small::valid_text(data, static_cast<size_t>(stop - data)),
                         (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0};
        bool is_new = std::none_of(tokens.begin(), tokens.end(), [&](const AddedToken& t) { return t.content == token.content; });
        if (!token.content.empty() && is_new) tokens.push_back(token);
        data = zero ? zero + 1 : end;
    }
    return tokens;
}

bool is_space(std::string_view text) {
    static const ClassTable kClasses = small::word_classes();
    const auto* p = reinterpret_cast<const uint8_t*>(text.data());
    for (size_t at = 0; at < text.size();) {
        unsigned length;
        if (kClasses.of(utf8_decode(p + at, length)) != 2) return false;
        at += length;
    }
    return true;
}

void check_match(std::string_view text, const AddedTokens::Match& match, size_t taken, SpecialPolicy policy) {
    const AddedToken& token = *match.token;
    require(match.begin >= taken && match.end <= text.size() && match.begin < match.end);
    require(!token.special || policy == SpecialPolicy::parse);
    std::string_view found = text.substr(match.begin, match.end - match.begin);
    // Somewhere in what was taken the token stands, with white space alone around it.
    size_t at = found.find(token.content);
    while (at != std::string_view::npos &&
           !(is_space(found.substr(0, at)) && is_space(found.substr(at + token.content.size())))) {
        at = found.find(token.content, at + 1);
    }
    require(at != std::string_view::npos);
    if (!token.strip_left && !token.strip_right) require(found == token.content);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const uint8_t* end = data + size;
    std::vector<AddedToken> tokens = read_tokens(data, end);
    const std::string text = small::valid_text(data, static_cast<size_t>(end - data));
    static const ClassTable kClasses = small::word_classes();
    const AddedTokens added(tokens, kClasses);
    for (SpecialPolicy policy : {SpecialPolicy::text, SpecialPolicy::parse}) {
        if (added.is_idle(policy)) continue;
        size_t from = 0, taken = 0;
        AddedTokens::Match match;
        while (added.next(text, from, taken, policy, match)) {
            check_match(text, match, taken, policy);
            // A token without conditions that begins in the stretch passed over would have come first, unless a longer
            // one that was not used lies over it.
            taken = match.end;
        }
    }
    // The whole of it through an encoder: nothing else may be read or written.
    Engine engine(small::program(small::Kind::bytes, tokens), 1);
    engine.encode({{reinterpret_cast<const uint8_t*>(text.data()), text.size(), true}}, {SpecialPolicy::parse, false, false, 1});
    return 0;
}
