#include "cover_filter.hpp"

#include <algorithm>

#include "model_error.hpp"

namespace gristmill {

namespace {

uint32_t bytes_before(const uint8_t* at, size_t available) {
    uint32_t value = 0;
    for (size_t i = 1; i <= std::min<size_t>(available, 3); ++i) value |= uint32_t{*(at - i)} << 8 * (3 - i);
    return value;
}

uint32_t bytes_after(const uint8_t* at, size_t available) {
    uint32_t value = 0;
    for (size_t i = 0; i < std::min<size_t>(available, 3); ++i) value |= uint32_t{at[i]} << 8 * i;
    return value;
}

struct CoverSizes {
    uint64_t around, between;  // words
};

}  // namespace

void CoverFilter::build(std::span<const std::string_view> tokens, std::span<const uint32_t> ids) {
    size_t num_splits = 0;
    std::vector<uint64_t> between;
    for (uint32_t id : ids) num_splits += tokens[id].size() - 1;
    around_.make_room(num_splits);
    for (uint32_t id : ids) {
        const auto* token = reinterpret_cast<const uint8_t*>(tokens[id].data());
        size_t size = tokens[id].size();
        if (size < 2) continue;
        starts_1_.add(token[0], token[1]);
        ends_1_.add(token[size - 2], token[size - 1]);
        if (size > 2) {
            starts_2_.add(token[0], token[1]);
            ends_2_.add(token[size - 2], token[size - 1]);
        }
        add_across(token, size);
        for (size_t at = 1; at < size; ++at) {
            neighbours_.add(token[at - 1], token[at]);
            unsigned left = static_cast<unsigned>(std::min<size_t>(at, 3));
            unsigned right = static_cast<unsigned>(std::min<size_t>(size - at, 3));
            uint32_t before = bytes_before(token + at, at), after = bytes_after(token + at, size - at);
            around_.add(context_key(before, after, left, right));
            bool is_between = left == 3 && right == 3 && is_between_characters(before | after << 24);
            if (is_between) between.push_back(before | uint64_t{after} << 24);
        }
    }
    between_.make_room(between.size());
    for (uint64_t six : between) between_.add(six);
}

void CoverFilter::pack(std::string& out) const {
    auto append = [&](const void* data, size_t size) { out.append(static_cast<const char*>(data), size); };
    CoverSizes sizes{around_.words.size(), between_.words.size()};
    append(&sizes, sizeof sizes);
    append(around_.words.data(), sizes.around * 8);
    append(between_.words.data(), sizes.between * 8);
    for (const auto* bits : small_sets(*this)) append(bits->data(), bits->size() * 8);
}

CoverFilter CoverFilter::unpack(std::string_view packed) {
    CoverFilter filter;
    CoverSizes sizes{};
    std::memcpy(&sizes, packed.data(), std::min(packed.size(), sizeof sizes));
    uint64_t small = 0, most = packed.size() / 8;
    for (const auto* bits : small_sets(filter)) small += bits->size();
    bool is_whole = sizes.around <= most && sizes.between <= most && packed.size() == sizeof sizes + (sizes.around + sizes.between + small) * 8;
    if (!is_whole || !filter.around_.has_size(sizes.around) || !filter.between_.has_size(sizes.between)) {
        throw ModelError("a compiled vocabulary has no whole filter of the places its tokens cover");
    }
    const char* at = packed.data() + sizeof sizes;
    auto take = [&](auto& words) {
        std::memcpy(words.data(), at, words.size() * 8);
        at += words.size() * 8;
    };
    filter.around_.resize(sizes.around);
    filter.between_.resize(sizes.between);
    take(filter.around_.words);
    take(filter.between_.words);
    for (auto* bits : small_sets(filter)) take(*bits);
    return filter;
}

// What the token shows of itself around a place between two characters of three bytes or more when it begins or ends less than
// three bytes away.
void CoverFilter::add_across(const uint8_t* token, size_t size) {
    auto is_tail = [](uint8_t byte) { return (byte & 0xC0) == 0x80; };
    auto is_lead = [](uint8_t byte) { return byte >= 0xE0; };
    if (size == 2 && is_tail(token[0]) && is_lead(token[1])) across_1_1_.add(token[0], token[1]);
    if (size < 3) return;
    auto three = [](const uint8_t* p) { return uint32_t{p[0]} | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16; };
    const uint8_t* last = token + size - 3;
    if (is_tail(token[0]) && is_lead(token[1])) across_1_2_.add(three(token));
    if (is_tail(token[0]) && is_tail(token[1]) && is_lead(token[2])) across_2_1_.add(three(token));
    if (is_tail(last[0]) && is_tail(last[1]) && is_lead(last[2])) across_2_1_.add(three(last));
    if (is_tail(last[0]) && is_lead(last[1])) across_1_2_.add(three(last));
}

bool CoverFilter::may_cover_closely(uint32_t before, uint32_t after, unsigned lefts, unsigned rights) const {
    for (unsigned left = 1; left <= 3; ++left) {
        if (!(lefts >> (left - 1) & 1)) continue;
        for (unsigned right = 1; right <= 3; ++right) {
            if (rights >> (right - 1) & 1 && has(context_key(before, after, left, right))) return true;
        }
    }
    return false;
}

bool CoverFilter::may_cover_near_edge(const uint8_t* text, size_t size, size_t at) const {
    unsigned lefts = (1u << std::min<size_t>(at, 3)) - 1, rights = (1u << std::min<size_t>(size - at, 3)) - 1;
    return may_cover_closely(bytes_before(text + at, at), bytes_after(text + at, size - at), lefts, rights);
}

}  // namespace gristmill
