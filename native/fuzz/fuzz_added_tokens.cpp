// Any stretches of a text as its added tokens, with any flags: found where the slow twin finds them, and encoded.
//
// Input: three bytes a token (where it begins, its size, its flags), four tokens; then the text.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/small_tokenizer.hpp"

using namespace gristmill;

namespace {

constexpr size_t kTokens = 4, kHeader = 3 * kTokens;

std::vector<AddedToken> choose_tokens(const uint8_t* header, const uint8_t* text, size_t size) {
    std::vector<AddedToken> tokens;
    for (size_t i = 0; i < kTokens; ++i) {
        size_t begin = header[3 * i] % (size + 1), flags = header[3 * i + 2];
        std::string content = small::valid_text(text + begin, std::min<size_t>(1 + header[3 * i + 1] % 8, size - begin));
        bool is_known = std::any_of(tokens.begin(), tokens.end(), [&](auto& token) { return token.content == content; });
        if (content.empty() || is_known) continue;
        auto id = static_cast<uint32_t>(small::kFirstAdded + i);
        tokens.push_back({id, content, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0, (flags & 8) != 0});
    }
    return tokens;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size < kHeader) return 0;
    const std::vector<AddedToken> tokens = choose_tokens(data, data + kHeader, size - kHeader);
    const std::string text = small::valid_text(data + kHeader, size - kHeader);
    const AddedTokens added(tokens, small::word_classes());
    for (SpecialPolicy policy : {SpecialPolicy::text, SpecialPolicy::parse}) {
        if (small::find_fast(added, text, policy) == small::find_slowly(tokens, text, policy)) continue;
        std::fprintf(stderr, "other tokens than the slow twin finds\n");
        std::abort();
    }
    Engine engine(small::program(small::Kind::bytes, tokens), 1);
    engine.encode({{data + kHeader, size - kHeader, false}}, {SpecialPolicy::parse, true, false, 1});
    return 0;
}
