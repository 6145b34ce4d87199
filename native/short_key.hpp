// Keys of tables: a short string of bytes as two machine words, and a hash for longer ones.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace gristmill {

inline uint64_t hash_bytes(std::string_view bytes) {
    uint64_t h = bytes.size() * 0x9E3779B97F4A7C15ull;
    size_t i = 0;
    uint64_t word;
    for (; i + 8 <= bytes.size(); i += 8) {
        std::memcpy(&word, bytes.data() + i, 8);
        h = std::rotl((h ^ word) * 0xD6E8FEB86659FD93ull, 29);
    }
    word = 0;
    if (i < bytes.size()) std::memcpy(&word, bytes.data() + i, bytes.size() - i);
    h = (h ^ word) * 0xD6E8FEB86659FD93ull;
    return (h ^ h >> 29) * 0x9E3779B97F4A7C15ull;
}

// Up to 15 bytes and their count in the last one.
struct ShortKey {
    uint64_t low, high;
    bool operator==(const ShortKey& other) const { return ((low ^ other.low) | (high ^ other.high)) == 0; }

    static constexpr size_t kMaxBytes = 15;
    static constexpr uint64_t kPart = uint64_t{0x10} << 56;  // may be set in `high` to tell two meanings of the same bytes apart
    // Stands for bytes that are too many, by their hash: equal to no key of bytes, all of which have a count.
    static ShortKey of_long(uint64_t hash, size_t size, bool is_part) { return {hash, kPart | uint64_t{is_part} << 32 | size}; }
    bool is_long() const { return high >> 56 == kPart >> 56; }
    size_t size() const { return is_long() ? static_cast<uint32_t>(high) : high >> 56 & kMaxBytes; }
    bool is_part() const { return is_long() ? high >> 32 & 1 : (high & kPart) != 0; }
    ShortKey as_whole() const { return {low, high & ~kPart}; }

    // The same for both meanings.
    uint64_t hash() const { return as_whole().hash_of_whole(); }
    uint64_t hash_of_whole() const { return low * 0x9E3779B97F4A7C15ull ^ std::rotl(high * 0xD6E8FEB86659FD93ull, 17); }

    // Needs 16 readable bytes at p.
    static ShortKey load(const uint8_t* p, size_t size) {
        ShortKey key;
        std::memcpy(&key.low, p, 8);
        std::memcpy(&key.high, p + 8, 8);
        key.low &= kMask[size].low;
        key.high = (key.high & kMask[size].high) | uint64_t{size} << 56;
        return key;
    }
    static ShortKey load_safely(const uint8_t* p, size_t size) {
        uint8_t bytes[16] = {};
        std::memcpy(bytes, p, size);
        return load(bytes, size);
    }

private:
    struct Mask {
        uint64_t low, high;
    };
    static const Mask kMask[16];
};

}  // namespace gristmill
