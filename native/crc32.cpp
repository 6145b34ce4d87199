#include "crc32.hpp"

#include <array>
#include <bit>
#include <cstring>

namespace gristmill {

namespace {
constexpr size_t kStep = 16;  // bytes summed at once
using Tables = std::array<std::array<uint32_t, 256>, kStep>;

// tables[k][b]: what byte b does to the sum when k bytes follow it.
constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t b = 0; b < 256; ++b) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        tables[0][b] = crc;
    }
    for (size_t k = 1; k < kStep; ++k) {
        for (size_t b = 0; b < 256; ++b) tables[k][b] = tables[k - 1][b] >> 8 ^ tables[0][tables[k - 1][b] & 255];
    }
    return tables;
}
constexpr Tables kTables = make_tables();
static_assert(std::endian::native == std::endian::little);
}  // namespace

uint32_t crc32(uint32_t crc, const uint8_t* bytes, size_t size) {
    crc = ~crc;
    for (; size >= kStep; size -= kStep, bytes += kStep) {
        uint64_t words[2];
        std::memcpy(words, bytes, kStep);
        words[0] ^= crc;
        crc = 0;
        for (unsigned k = 0; k < 8; ++k) crc ^= kTables[15 - k][words[0] >> 8 * k & 255] ^ kTables[7 - k][words[1] >> 8 * k & 255];
    }
    for (; size; --size, ++bytes) crc = crc >> 8 ^ kTables[0][(crc ^ *bytes) & 255];
    return ~crc;
}

}  // namespace gristmill
