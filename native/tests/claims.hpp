// What a test claims, and how many of its claims failed.
#pragma once
#include <cstdio>
#include <string_view>

namespace gristmill {

inline int num_failures = 0;

// Prints a claim that is wrong, with the first bytes of the text it is about.
inline void check(bool is_right, const char* claim, std::string_view text = {}) {
    if (is_right) return;
    ++num_failures;
    std::fprintf(stderr, "failed: %s", claim);
    for (unsigned char c : text.substr(0, 120)) std::fprintf(stderr, " %02x", c);
    std::fprintf(stderr, "\n");
}

}  // namespace gristmill
