// Choosing without a branch, where what comes cannot be guessed.
#pragma once
#include <cstdint>

namespace gristmill {

// The same number, of which the compiler knows nothing: it makes no branch on where it came from.
inline uint32_t unguessed(uint32_t value) {
#if defined(__GNUC__)
    __asm__("" : "+r"(value));
#endif
    return value;
}

// a where the condition is 1, b where it is 0.
inline uint32_t chosen(uint32_t condition, uint32_t a, uint32_t b) { return b ^ ((a ^ b) & -condition); }

}  // namespace gristmill
