// Whether bytes are UTF-8, at the speed of memory where the processor has AVX2.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gristmill {

// What `utf8_first_invalid`, its slow twin, gives: offset of the first byte that is not part of a valid character, or
// `size`.
size_t utf8_find_invalid(const uint8_t* text, size_t size);

}  // namespace gristmill
