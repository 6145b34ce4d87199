// The CRC-32 of zlib and PNG, so that any language can check a file.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gristmill {

// Goes on from `crc`, which is 0 at first.
uint32_t crc32(uint32_t crc, const uint8_t* bytes, size_t size);

}  // namespace gristmill
