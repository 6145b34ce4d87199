#include "join_filter.hpp"

#include <algorithm>

namespace gristmill {

namespace {
const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
bool is_tail(uint8_t byte) { return (byte & 0xC0) == 0x80; }
bool is_lead_of_three(uint8_t byte) { return (byte & 0xF0) == 0xE0; }

uint32_t number_of(const uint8_t* bytes, size_t count) {
    uint32_t number = 0;
    for (size_t i = 0; i < count; ++i) number |= uint32_t{bytes[i]} << 8 * i;
    return number;
}

uint32_t key_of(const uint8_t* bytes, size_t count) { return number_of(bytes, count) | static_cast<uint32_t>(count) << 24; }

// Characters of one byte may always join one another.
constexpr uint32_t kAscii = 1u << (JoinFilter::kNumBits - 1);
constexpr uint32_t kNumWhole = 7, kNumInside = JoinFilter::kNumBits - 1 - kNumWhole;

// One bit for what a token shows before a place: of the lower ones where that is a whole character.
uint32_t bit_of(uint32_t key, bool is_whole) {
    uint32_t mixed = key * 0x9E3779B1u >> 16;
    return 1u << (is_whole ? mixed % kNumWhole : kNumWhole + mixed % kNumInside);
}

// How many bytes of a character a token shows before (behind) a place; 0: of one that has neither one byte nor three.
size_t shown_before(std::string_view token, size_t at) {
    const uint8_t* p = bytes_of(token) + at;
    if (p[-1] < 0x80) return 1;
    if (at >= 3 && is_lead_of_three(p[-3]) && is_tail(p[-2]) && is_tail(p[-1])) return 3;
    return at <= 2 && std::all_of(p - at, p, is_tail) ? at : 0;
}

size_t shown_behind(std::string_view token, size_t at) {
    const uint8_t* p = bytes_of(token) + at;
    if (p[0] < 0x80) return 1;
    size_t count = std::min<size_t>(token.size() - at, 3);
    return is_lead_of_three(p[0]) && std::all_of(p + 1, p + count, is_tail) ? count : 0;
}
}  // namespace

void JoinFilter::build(std::span<const std::string_view> tokens, std::span<const uint32_t> made, std::span<const uint32_t> whole) {
    std::vector<uint64_t> pairs;
    auto add = [&](std::string_view token) {
        for (size_t at = 1; at < token.size(); ++at) {
            if ((bytes_of(token)[at - 1] | bytes_of(token)[at]) >= 0x80) add_place(token, at, pairs);
        }
    };
    for (uint32_t id : made) add(tokens[id]);
    for (uint32_t id : whole) {
        add(tokens[id]);
        if (tokens[id].size() <= 3) odd_.push_back(key_of(bytes_of(tokens[id]), tokens[id].size()));
    }
    std::sort(odd_.begin(), odd_.end());
    // Most pairs stand in many tokens: room is made for those that are different, or nearly so many.
    Bloom counted;
    counted.make_room(pairs.size());
    size_t num_different = 0;
    for (uint64_t pair : pairs) {
        num_different += !counted.has(pair);
        counted.add(pair);
    }
    pairs_.make_room(num_different);
    for (uint64_t pair : pairs) pairs_.add(pair);
}

void JoinFilter::add_place(std::string_view token, size_t at, std::vector<uint64_t>& pairs) {
    const uint8_t* p = bytes_of(token) + at;
    size_t before = shown_before(token, at), behind = shown_behind(token, at);
    if (!before || !behind) return;  // no such place in a text
    bool is_whole_before = !is_tail(p[-1]) || before == 3, is_whole_behind = p[0] < 0x80 || behind == 3;
    if (is_whole_before && is_whole_behind) {
        pairs.push_back(pair(number_of(p - before, before), number_of(p, behind)));
        return;
    }
    uint32_t key = key_of(p - before, before), bit = bit_of(key, is_whole_before);
    before_.add(key, bit);
    behind_.add(key_of(p, behind), bit);
}

JoinFilter::Sides JoinFilter::sides_of(const uint8_t* character, size_t length) const {
    Sides sides{};
    if (length == 1) sides.before = sides.behind = kAscii;
    for (size_t count = 1; count <= length; ++count) {
        sides.before |= before_.of(key_of(character + length - count, count));
        sides.behind |= behind_.of(key_of(character, count));
    }
    return sides;
}

bool JoinFilter::is_odd(const uint8_t* character, size_t length) const {
    return std::binary_search(odd_.begin(), odd_.end(), key_of(character, length));
}

}  // namespace gristmill
