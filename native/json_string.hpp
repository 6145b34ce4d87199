// Strings of JSON: passed over or unescaped, sixteen bytes at a time, or 64 (json_unescape.hpp).
//
// The text is known to be UTF-8. `end` is where the line ends: there stands a line feed, which no string holds, or the
// buffer ends. So whole blocks are loaded up to the end of the buffer, and none is looked at past the line.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

#include "json_unescape.hpp"
#include "utf8.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill {

constexpr size_t kBlock = 16;

// The character each short escape stands for; 0: none.
constexpr uint8_t short_escape(uint8_t letter) {
    switch (letter) {
        case '"': case '\\': case '/': return letter;
        case 'b': return '\b';
        case 'f': return '\f';
        case 'n': return '\n';
        case 'r': return '\r';
        case 't': return '\t';
        default: return 0;
    }
}

// A string being read: at first just after its opening quote, at last just after its closing one.
struct JsonString {
    const uint8_t* at;
    const uint8_t* end;         // of the line
    const uint8_t* buffer_end;  // what may be loaded
    const uint8_t* lone = nullptr;  // the first escape that is half a surrogate pair
    const char* expected = nullptr;  // what should stand at `at`, if the string is wrong
    bool has_escapes = false;

    // To the first quote, backslash or control character.
    template <bool is_copied>
    void pass_plain(uint8_t*& out) {
#if defined(__SSE2__)
        const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1F);
        while (buffer_end - at >= static_cast<ptrdiff_t>(kBlock)) {
            __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
            if constexpr (is_copied) _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
            __m128i stops = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash)),
                                         _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
            auto found = static_cast<unsigned>(_mm_movemask_epi8(stops));
            size_t passed = found ? static_cast<size_t>(std::countr_zero(found)) : kBlock;
            at += passed;
            if constexpr (is_copied) out += passed;
            if (found) return;
        }
#endif
        for (; at < buffer_end && *at >= 0x20 && *at != '"' && *at != '\\'; ++at) {
            if constexpr (is_copied) *out++ = *at;
        }
    }

    // The number of four hex digits `skip` bytes on, or -1.
    int hex_at(ptrdiff_t skip) const {
        if (end - at < skip + 4) return -1;
        int value = 0;
        for (ptrdiff_t i = skip; i < skip + 4; ++i) {
            int digit = at[i] - '0', letter = (at[i] | 0x20) - 'a';
            if (digit >= 0 && digit <= 9) value = value << 4 | digit;
            else if (letter >= 0 && letter <= 5) value = value << 4 | (letter + 10);
            else return -1;
        }
        return value;
    }

    // `at` is at the backslash of \uXXXX.
    template <bool is_copied>
    bool read_code_point(uint8_t*& out) {
        int unit = hex_at(2);
        if (unit < 0) {
            expected = "four hex digits after \\u";
            return false;
        }
        auto cp = static_cast<uint32_t>(unit);
        const uint8_t* begin = at;
        at += 6;
        if (cp - 0xD800u < 0x800u) {
            int second = cp < 0xDC00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex_at(2) : -1;
            if (second >= 0xDC00 && second <= 0xDFFF) {
                cp = 0x10000 + ((cp - 0xD800) << 10) + (static_cast<uint32_t>(second) - 0xDC00);
                at += 6;
            } else {
                if (!lone) lone = begin;
                cp = 0xFFFD;  // never seen: a text with a lone surrogate is not used
            }
        }
        if constexpr (is_copied) out += utf8_encode(cp, out);
        return true;
    }

    // To just after the closing quote; false: `expected` says what is wrong at `at`. When copied, `out` needs room for
    // the text as it stands in the line and kUnescapeSlack more.
    template <bool is_copied>
    bool read(uint8_t*& out) {
        for (;;) {
            if constexpr (is_copied) has_escapes |= unescape_blocks(at, buffer_end, out);
            pass_plain<is_copied>(out);
            if (at < end && *at == '"') {
                ++at;
                return true;
            }
            if (at >= end || *at != '\\') {
                expected = at >= end ? "the closing quote of a string" : "no control character in a string";
                return false;
            }
            has_escapes = true;
            uint8_t letter = end - at >= 2 ? at[1] : 0;
            if (uint8_t meant = short_escape(letter)) {
                at += 2;
                if constexpr (is_copied) *out++ = meant;
            } else if (letter != 'u') {
                expected = "a known escape after \\";
                return false;
            } else if (!read_code_point<is_copied>(out)) {
                return false;
            }
        }
    }
};

}  // namespace gristmill
