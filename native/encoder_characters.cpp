#include "encoder_characters.hpp"

#include <algorithm>
#include <cstring>

#include "merge_few.hpp"
#include "utf8.hpp"

namespace gristmill {

namespace {
const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

// Where the character before a place begins.
size_t start_before(std::string_view text, size_t at) {
    do --at;
    while ((text[at] & 0xC0) == 0x80);
    return at;
}
}  // namespace

bool CharacterEncoder::is_dense(std::string_view text) {
    size_t size = std::min(text.size(), kLookedAt);
    uint8_t count = 0;  // of lead bytes from U+3000 to the end of Hangul; a byte, so that the compiler counts 16 at a time
    for (size_t i = 0; i < size; ++i) count = static_cast<uint8_t>(count + (static_cast<uint8_t>(text[i] - 0xE3) < 11));
    return count * size_t{6} >= size;  // half of its bytes
}

CharacterEncoder::Character CharacterEncoder::character_at(const uint8_t* p) const {
    unsigned length;
    uint32_t number = utf8_decode(p, length);
    if (number < CharacterTable::kNumbered) return {number, table_.entries().of(number), length};
    return {number, table_.entry_beyond(model_.find_token({reinterpret_cast<const char*>(p), length})), length};
}

size_t CharacterEncoder::cut_from(std::string_view text, size_t at) const {
    const uint8_t* bytes = bytes_of(text);
    while (at < text.size() && (bytes[at] & 0xC0) == 0x80) ++at;
    if (at == 0 || at >= text.size()) return std::min(at, text.size());
    for (Character before = character_at(bytes + start_before(text, at)); at < text.size();) {
        Character here = character_at(bytes + at);
        if (!table_.entries().may_join<false>(before.number, before.entry, here.number, here.entry)) return at;
        at += here.length;
        before = here;
    }
    return text.size();
}

void CharacterEncoder::encode(std::string_view text, IdBuffer& out) {
    while (!text.empty()) {
        uint32_t* ids = out.reserve(std::min(text.size(), kBlock + 4) + kSlack);
        Block block = table_.joins_often() ? write_symbols<true>(text, ids) : write_symbols<false>(text, ids);
        if (block.num_bytes) {
            uint32_t* end = block.num_joints ? merge_joints(text, block, ids) : ids + block.num_symbols;
            out.commit(end);
        } else {  // a part longer than a block
            block.num_bytes = cut_from(text, kBlock);
            ids = out.reserve(block.num_bytes + 4);
            out.commit(parts_.encode_alone(text.substr(0, block.num_bytes), ids));
        }
        text.remove_prefix(block.num_bytes);
    }
}

// Nothing here waits on a guess but what kind of character comes next: whether a character has a token, and whether one may
// join it, cannot be guessed.
template <bool kJoinsOften>
CharacterEncoder::Block CharacterEncoder::write_symbols(std::string_view text, uint32_t* symbols) {
    const CharacterTable::Entries entries = table_.entries();
    const uint32_t* byte_ids = model_.byte_ids();
    const uint8_t *p = bytes_of(text), *const begin = p, *const end = p + std::min(text.size(), kBlock);
    uint32_t* out = symbols;
    Joint* joint = joints_;
    uint32_t number = 0, entry = 0;  // of the character before
    auto join = [&](uint32_t here, uint32_t its_entry) __attribute__((always_inline)) {
        *joint = {static_cast<uint32_t>(out - symbols) - 1, static_cast<uint32_t>(p - begin)};
        joint += entries.may_join<kJoinsOften>(number, entry, here, its_entry);
        number = here;
        entry = its_entry;
    };
    while (p < end) {
        if ((p[0] & 0xF0) == 0xE0) [[likely]] {
            uint32_t here = (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
            join(here, entries.of(here));
            uint32_t id = entry & CharacterTable::kIdMask, by_bytes = unguessed(id == CharacterTable::kNoToken);
            out[0] = chosen(by_bytes, byte_ids[p[0]], id);
            out[1] = byte_ids[p[1]];
            out[2] = byte_ids[p[2]];
            out += 1 + 2 * by_bytes;
            p += 3;
        } else if (p[0] < 0x80) {
            join(p[0], entries.of(p[0]));
            *out++ = entry & CharacterTable::kIdMask;
            ++p;
        } else {
            Character other = character_at(p);
            join(other.number, other.entry);
            out = write_other(p, other, out);
            p += other.length;
        }
    }
    size_t size = static_cast<size_t>(p - begin), num_symbols = static_cast<size_t>(out - symbols), num_joints = static_cast<size_t>(joint - joints_);
    if (size == text.size()) return {size, num_symbols, num_joints};
    // What comes next may join the last part: it is left for the next block.
    size_t last = start_before(text, size);
    num_symbols -= (entry & CharacterTable::kIdMask) == CharacterTable::kNoToken ? size - last : 1;
    for (; num_joints && joints_[num_joints - 1].offset == last; last = start_before(text, last)) num_symbols = joints_[--num_joints].symbol;
    return {last, num_symbols, num_joints};
}

uint32_t* CharacterEncoder::write_other(const uint8_t* p, const Character& character, uint32_t* out) const {
    uint32_t id = character.entry & CharacterTable::kIdMask;
    if (id != CharacterTable::kNoToken) {
        *out = id;
        return out + 1;
    }
    return std::transform(p, p + character.length, out, [this](uint8_t byte) { return model_.byte_id(byte); });
}

uint32_t* CharacterEncoder::merge_joints(std::string_view text, const Block& block, uint32_t* out) {
    const PairTable& pairs = model_.pairs();
    std::memcpy(symbols_, out, block.num_symbols * sizeof(uint32_t));
    for (size_t j = 0; j < block.num_joints; ++j) {
        uint32_t symbol = joints_[j].symbol;
        places_[j] = pairs.place(PairTable::pair(symbols_[symbol], symbols_[symbol + 1]));
    }
    uint32_t from = 0;
    joints_[block.num_joints].symbol = 0xFFFFFFFF;
    for (size_t j = 0, next; j < block.num_joints; j = next) {
        uint32_t first = joints_[j].symbol;
        for (next = j + 1; joints_[next].symbol == first + (next - j);) ++next;
        out = copy_few<kSlack>(symbols_ + from, first - from, out);
        size_t count = next - j + 1;
        from = first + static_cast<uint32_t>(count);
        if (count == 2) {
            out = merge_two(pairs, symbols_ + first, places_[j], out);
        } else if (count == 3) {
            out = merge_three(pairs, symbols_ + first, places_ + j, out);
        } else if (count <= kFewAtOnce && bytes_of(text)[joints_[j].offset] >= 0x80) {  // words are remembered
            out = merge_few(pairs, symbols_ + first, places_ + j, count, out);
        } else {
            size_t begin = start_before(text, joints_[j].offset), last = joints_[next - 1].offset;
            out = parts_.encode_alone(text.substr(begin, last + utf8_length(bytes_of(text)[last]) - begin), out);
        }
    }
    return std::copy(symbols_ + from, symbols_ + block.num_symbols, out);
}

}  // namespace gristmill
