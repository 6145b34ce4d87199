// Texts made by chance, the same ones every time.
#pragma once
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill {

class Chance {
public:
    explicit Chance(uint32_t seed) : random_(seed) {}
    size_t below(size_t limit) { return random_() % limit; }
    // `count` parts one after the other.
    std::string text(const std::vector<std::string>& parts, size_t count) {
        std::string out;
        for (; count > 0; --count) out += parts[below(parts.size())];
        return out;
    }

private:
    std::mt19937 random_;
};

inline const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

// On the heap and of exact size, so that AddressSanitizer sees a read past its end.
inline std::vector<uint8_t> exact(std::string_view text) { return {bytes_of(text), bytes_of(text) + text.size()}; }

inline const std::vector<std::string> kParts = {
    "a", "b", "c", "z", "t", "h", "e", "the", " the", " ", "  ", "\n", "\r\n", "1", "23", ".", "'s", "ing", "another",
    "\xC3\xA9", "\xE6\xB0\xB4", "\xE8\xBB\x8A", "\xF0\x9F\x99\x82", "\xE2\x96\x81", "\xE2\x80\x8D", "quick", "brown",
    "aaaaaaaa", "unreachable", "<s>", "<x>", "zzzz", "qqqqqqqqqqqq", "\xE6\xB0\xB4\xE8\xBB\x8A\xE6\xB0\xB4\xE8\xBB\x8A"};

}  // namespace gristmill
