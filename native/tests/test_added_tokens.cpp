// Added tokens found fast against their slow twin.
#include <string>
#include <vector>

#include "tests/chance.hpp"
#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;

void test_added_tokens_are_found_leftmost_and_longest() {
    const std::vector<AddedToken> tokens = small::added_tokens();
    std::vector<std::string> parts = {"a", "_", " ", "  ", "\n", "\xE3\x80\x80", "\xC3\xA9", "<", "s>", "x", "th", "-"};
    for (const AddedToken& token : tokens) parts.insert(parts.end(), 2, token.content);
    Chance chance(6);
    for (size_t kept = 0; kept <= tokens.size(); ++kept) {
        std::vector<AddedToken> some(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(kept));
        const AddedTokens added(some, small::word_classes());
        for (int round = 0; round < 3000; ++round) {
            auto copy = exact(chance.text(parts, chance.below(12)));
            std::string_view text(reinterpret_cast<const char*>(copy.data()), copy.size());
            for (SpecialPolicy policy : {SpecialPolicy::text, SpecialPolicy::parse}) {
                auto fast = small::find_fast(added, text, policy), slow = small::find_slowly(some, text, policy);
                check(fast == slow, "the same tokens at the same places", text);
            }
        }
    }
}

}  // namespace

int main() {
    test_added_tokens_are_found_leftmost_and_longest();
    return num_failures ? 1 : 0;
}
