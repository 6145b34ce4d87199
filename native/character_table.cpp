#include "character_table.hpp"

#include "utf8.hpp"

namespace gristmill {

namespace {
const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
}  // namespace

void CharacterTable::build(std::span<const std::string_view> tokens, std::span<const uint32_t> made, std::span<const uint32_t> byte_ids) {
    if (tokens.size() > kNoToken) return;
    for (uint32_t id : made) {
        if (!utf8_is_valid(tokens[id])) return;
    }
    entries_.assign(kNumbered, kNoToken);
    // A character of one byte is one id, whether it is a token or not.
    for (uint32_t c = 0; c < 0x80; ++c) entries_[c] = byte_ids[c] & kIdMask;
    for (uint32_t id = 0; id < tokens.size(); ++id) {
        if (tokens[id].empty() || utf8_length(bytes_of(tokens[id])[0]) != tokens[id].size() || !utf8_is_valid(tokens[id])) continue;
        unsigned length;
        uint32_t character = utf8_decode(bytes_of(tokens[id]), length);
        if (character < kNumbered) entries_[character] = id;
    }
    joined_.make_room(made.size() / 8);  // vocabularies have a different pair for nine tokens or so
    for (uint32_t id : made) {
        unsigned length;
        uint32_t before = utf8_decode(bytes_of(tokens[id]), length);
        for (size_t at = length; at < tokens[id].size(); at += length) {
            uint32_t character = utf8_decode(bytes_of(tokens[id]) + at, length);
            add_pair(before, character);
            before = character;
        }
    }
    size_t num_tokens = 0, num_joining = 0;
    for (uint32_t c = 0x800; c < kNumbered; ++c) {
        num_tokens += (entries_[c] & kIdMask) != kNoToken;
        num_joining += (entries_[c] & kIdMask) != kNoToken && (entries_[c] & ~kIdMask) == (kJoinsLeft | kJoinsRight);
    }
    joins_often_ = num_joining > num_tokens / 20;
}

void CharacterTable::add_pair(uint32_t left, uint32_t right) {
    (left < kNumbered ? entries_[left] : beyond_) |= kJoinsRight;
    (right < kNumbered ? entries_[right] : beyond_) |= kJoinsLeft;
    joined_.add(pair(left, right));
}

}  // namespace gristmill
