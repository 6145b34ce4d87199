// Whether bytes are UTF-8, at the speed of memory where the processor has AVX2 or more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

// What `utf8_first_invalid`, its slow twin, gives: offset of the first byte that is not part of a valid character, or
// `size`.
size_t utf8_find_invalid(const uint8_t* text, size_t size);

// The ways this processor has to say whether all of a text is valid; the last is the fastest.
using Utf8Check = bool (*)(const uint8_t* text, size_t size);
const std::vector<Utf8Check>& utf8_checks();

}  // namespace gristmill
