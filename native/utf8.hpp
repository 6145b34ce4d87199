// UTF-8: decoding of text known to be valid, and the check that makes it so.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace gristmill {

// Bytes of the character that starts with this lead byte (valid text only).
inline unsigned utf8_length(uint8_t lead) {
    if (lead < 0x80) return 1;
    if (lead < 0xE0) return 2;
    return lead < 0xF0 ? 3 : 4;
}

// Decodes one character of valid UTF-8 and says how many bytes it took.
inline uint32_t utf8_decode(const uint8_t* p, unsigned& length) {
    uint32_t lead = p[0];
    if (lead < 0x80) {
        length = 1;
        return lead;
    }
    if (lead < 0xE0) {
        length = 2;
        return (lead & 0x1F) << 6 | (p[1] & 0x3Fu);
    }
    if (lead < 0xF0) {
        length = 3;
        return (lead & 0x0F) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu);
    }
    length = 4;
    return (lead & 0x07) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}

// Writes a character (not a surrogate) and returns how many bytes it took; room for 4 is needed.
inline unsigned utf8_encode(uint32_t cp, uint8_t* out) {
    if (cp < 0x80) {
        out[0] = static_cast<uint8_t>(cp);
        return 1;
    }
    if (cp < 0x800) {
        out[0] = static_cast<uint8_t>(0xC0 | cp >> 6);
        out[1] = static_cast<uint8_t>(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = static_cast<uint8_t>(0xE0 | cp >> 12);
        out[1] = static_cast<uint8_t>(0x80 | (cp >> 6 & 0x3F));
        out[2] = static_cast<uint8_t>(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = static_cast<uint8_t>(0xF0 | cp >> 18);
    out[1] = static_cast<uint8_t>(0x80 | (cp >> 12 & 0x3F));
    out[2] = static_cast<uint8_t>(0x80 | (cp >> 6 & 0x3F));
    out[3] = static_cast<uint8_t>(0x80 | (cp & 0x3F));
    return 4;
}

// Offset of the first byte that is not part of a valid character, or `size`.
inline size_t utf8_first_invalid(const uint8_t* text, size_t size) {
    auto tail = [](uint8_t b) { return (b & 0xC0) == 0x80; };
    size_t i = 0;
    while (i < size) {
        if (i + 32 <= size) {
            uint64_t words[4];
            std::memcpy(words, text + i, 32);
            if (((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080ull) == 0) {
                i += 32;
                continue;
            }
        }
        uint8_t lead = text[i];
        if (lead < 0x80) {
            ++i;
        } else if (lead >= 0xE1 && lead <= 0xEF && lead != 0xED) {  // the common case: no special second byte
            if (i + 3 > size || !tail(text[i + 1]) || !tail(text[i + 2])) return i;
            i += 3;
        } else if (lead >= 0xC2 && lead < 0xE0) {
            if (i + 2 > size || !tail(text[i + 1])) return i;
            i += 2;
        } else if (lead == 0xE0 || lead == 0xED) {  // no overlong forms, no surrogates
            if (i + 3 > size || !tail(text[i + 2])) return i;
            uint8_t second = text[i + 1];
            if (lead == 0xE0 ? second < 0xA0 || second > 0xBF : second < 0x80 || second > 0x9F) return i;
            i += 3;
        } else if (lead >= 0xF0 && lead <= 0xF4) {
            if (i + 4 > size || !tail(text[i + 2]) || !tail(text[i + 3])) return i;
            uint8_t second = text[i + 1];
            if (second < (lead == 0xF0 ? 0x90 : 0x80) || second > (lead == 0xF4 ? 0x8F : 0xBF)) return i;
            i += 4;
        } else {
            return i;
        }
    }
    return size;
}

inline bool utf8_is_valid(std::string_view text) {
    return utf8_first_invalid(reinterpret_cast<const uint8_t*>(text.data()), text.size()) == text.size();
}

// Bytes of the ill-formed sequence at `at` that one U+FFFD stands for (the longest start of a valid character, or one
// byte), as Python's errors="replace" has it.
inline size_t utf8_invalid_length(const uint8_t* text, size_t size, size_t at) {
    uint8_t lead = text[at];
    unsigned wanted = lead >= 0xC2 && lead < 0xE0 ? 2 : lead >= 0xE0 && lead < 0xF0 ? 3 : lead >= 0xF0 && lead < 0xF5 ? 4 : 1;
    size_t length = 1;
    for (; length < wanted && at + length < size; ++length) {
        uint8_t b = text[at + length];
        uint8_t low = 0x80, high = 0xBF;
        if (length == 1) {
            if (lead == 0xE0) low = 0xA0;
            if (lead == 0xED) high = 0x9F;
            if (lead == 0xF0) low = 0x90;
            if (lead == 0xF4) high = 0x8F;
        }
        if (b < low || b > high) break;
    }
    return length;
}

}  // namespace gristmill
