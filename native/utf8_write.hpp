// Strings whose characters have 1, 2 or 4 bytes each, as Python holds them, written as UTF-8.
#pragma once
#include <cstddef>
#include <cstdint>

#include "utf8.hpp"

namespace gristmill {

// Bytes that a character of so many takes at most.
template <typename Unit>
constexpr size_t kMostUtf8Bytes = sizeof(Unit) == 1 ? 2 : sizeof(Unit) == 2 ? 3 : 4;

constexpr bool is_surrogate(uint32_t code) { return code - 0xD800u < 0x800u; }

template <typename Unit>
struct Utf8Written {
    const Unit* read;  // the first that was not
    uint8_t* end;      // of what was written
};

// Writes characters up to the first surrogate, or all; `out` has room for the most they can take.
template <typename Unit>
Utf8Written<Unit> write_utf8(const Unit* from, const Unit* end, uint8_t* out) {
    constexpr ptrdiff_t kBlock = 16;  // the loops over one become a few vector instructions
    while (from < end) {
        uint32_t code = *from;
        if (code >= 0x80) {
            if (is_surrogate(code)) break;
            out += utf8_encode(code, out);
            ++from;
            continue;
        }
        for (; end - from >= kBlock; from += kBlock, out += kBlock) {
            uint32_t any = 0;
            for (ptrdiff_t i = 0; i < kBlock; ++i) any |= from[i];
            if (any >= 0x80) break;
            for (ptrdiff_t i = 0; i < kBlock; ++i) out[i] = static_cast<uint8_t>(from[i]);
        }
        while (from < end && *from < 0x80) *out++ = static_cast<uint8_t>(*from++);
    }
    return {from, out};
}

}  // namespace gristmill
