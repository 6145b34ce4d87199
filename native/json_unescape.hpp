// The inside of a JSON string, 64 bytes at a time, where the processor can move bytes about (AVX-512 VBMI2).
#pragma once
#include <cstddef>
#include <cstdint>

namespace gristmill {

constexpr size_t kUnescapeSlack = 64;  // bytes that may be written past the end of what is unescaped

// From `at`, which is inside a string and after no backslash, to `out`: plain text and short escapes, up to what is left to others (the
// end of the string, \u, two backslashes side by side, what is wrong) or to less than a block before `end`. Moves both on.
// Returns whether there was an escape.
bool unescape_blocks(const uint8_t*& at, const uint8_t* end, uint8_t*& out);

}  // namespace gristmill
