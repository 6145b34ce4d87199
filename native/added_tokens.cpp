#include "added_tokens.hpp"

#include <algorithm>
#include <bit>

#include "utf8.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill {

namespace {
constexpr uint32_t kNone = 0xFFFFFFFF;
constexpr unsigned kWord = 1, kSpace = 2;
}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, ClassTable word_class)
    : tokens_(std::move(tokens)), word_class_(std::move(word_class)), nodes_(1), first_pairs_(256 * 256 / 64) {
    for (uint32_t index = 0; index < tokens_.size(); ++index) {
        const AddedToken& token = tokens_[index];
        if (token.content.empty()) continue;
        has_plain_ |= !token.special;
        uint32_t node = 0;
        for (char c : token.content) {
            auto byte = static_cast<uint8_t>(c);
            auto& children = nodes_[node].children;
            auto it = std::lower_bound(children.begin(), children.end(), std::pair{byte, 0u});
            if (it != children.end() && it->first == byte) {
                node = it->second;
            } else {
                auto child = static_cast<uint32_t>(nodes_.size());
                children.insert(it, {byte, child});
                nodes_.emplace_back();
                node = child;
            }
        }
        nodes_[node].token = index;
        auto first = static_cast<uint8_t>(token.content[0]);
        if (std::find(first_bytes_.begin(), first_bytes_.end(), first) == first_bytes_.end()) first_bytes_.push_back(first);
        for (unsigned second = 0; second < 256; ++second) {
            if (token.content.size() > 1 && second != static_cast<uint8_t>(token.content[1])) continue;
            unsigned pair = first * 256u + second;
            first_pairs_[pair >> 6] |= 1ull << (pair & 63);
        }
    }
}

bool AddedTokens::is_idle(SpecialPolicy policy) const {
    return first_bytes_.empty() || (policy == SpecialPolicy::text && !has_plain_);
}

bool AddedTokens::may_begin(std::string_view text, size_t at) const {
    uint8_t second = at + 1 < text.size() ? static_cast<uint8_t>(text[at + 1]) : 0;
    unsigned pair = static_cast<uint8_t>(text[at]) * 256u + second;
    return first_pairs_[pair >> 6] >> (pair & 63) & 1;
}

// The first place at or after `from` where some token might begin, or the end. Nearly all text is passed over here, so
// up to four first bytes are looked for sixteen places at a time.
size_t AddedTokens::find_candidate(std::string_view text, size_t from) const {
#if defined(__SSE2__)
    if (first_bytes_.size() <= 4) {
        __m128i wanted[4];
        for (size_t k = 0; k < 4; ++k) {
            wanted[k] = _mm_set1_epi8(static_cast<char>(first_bytes_[std::min(k, first_bytes_.size() - 1)]));
        }
        for (; from + 16 <= text.size(); from += 16) {
            __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text.data() + from));
            __m128i hits = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, wanted[0]), _mm_cmpeq_epi8(bytes, wanted[1])),
                                        _mm_or_si128(_mm_cmpeq_epi8(bytes, wanted[2]), _mm_cmpeq_epi8(bytes, wanted[3])));
            for (auto found = static_cast<unsigned>(_mm_movemask_epi8(hits)); found; found &= found - 1) {
                size_t at = from + static_cast<size_t>(std::countr_zero(found));
                if (may_begin(text, at)) return at;
            }
        }
    }
#endif
    while (from < text.size() && !may_begin(text, from)) ++from;
    return from;
}

uint32_t AddedTokens::longest_at(std::string_view text, size_t at) const {
    uint32_t node = 0, longest = kNone;
    for (; at < text.size(); ++at) {
        const auto& children = nodes_[node].children;
        auto byte = static_cast<uint8_t>(text[at]);
        auto it = std::lower_bound(children.begin(), children.end(), std::pair{byte, 0u});
        if (it == children.end() || it->first != byte) break;
        node = it->second;
        if (nodes_[node].token != kNone) longest = nodes_[node].token;
    }
    return longest;
}

unsigned AddedTokens::class_before(std::string_view text, size_t at, size_t& start) const {
    start = at - 1;
    while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    unsigned length;
    return word_class_.of(utf8_decode(reinterpret_cast<const uint8_t*>(text.data()) + start, length));
}

unsigned AddedTokens::class_at(std::string_view text, size_t at, size_t& end) const {
    unsigned length;
    unsigned cls = word_class_.of(utf8_decode(reinterpret_cast<const uint8_t*>(text.data()) + at, length));
    end = at + length;
    return cls;
}

bool AddedTokens::stands_alone(std::string_view text, size_t begin, size_t end) const {
    size_t ignored;
    if (begin > 0 && class_before(text, begin, ignored) & kWord) return false;
    return end == text.size() || !(class_at(text, end, ignored) & kWord);
}

bool AddedTokens::next(std::string_view text, size_t& from, size_t taken, SpecialPolicy policy, Match& match) const {
    while ((from = find_candidate(text, from)) < text.size()) {
        uint32_t index = longest_at(text, from);
        if (index == kNone) {
            ++from;
            continue;
        }
        const AddedToken& token = tokens_[index];
        size_t begin = from, end = from + token.content.size();
        from = end;  // also when the match is not used: matches never overlap
        if (token.special && policy == SpecialPolicy::text) continue;
        if (token.single_word && !stands_alone(text, begin, end)) continue;
        size_t step;
        if (token.strip_left) {
            while (begin > taken && class_before(text, begin, step) & kSpace) begin = step;
            begin = std::max(begin, taken);
        }
        if (token.strip_right) {
            while (end < text.size() && class_at(text, end, step) & kSpace) end = step;
        }
        match = {begin, end, &token};
        return true;
    }
    return false;
}

}  // namespace gristmill
