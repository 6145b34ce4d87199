#include "json_unescape.hpp"

#include <array>
#include <bit>

#include "json_string.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define GRISTMILL_HAS_VBMI2_PATH 1
#include <immintrin.h>
#endif

namespace gristmill {

#if defined(GRISTMILL_HAS_VBMI2_PATH)
namespace {

constexpr ptrdiff_t kWide = 64;

// What an ASCII letter after a backslash stands for; 0: none.
constexpr auto kMeanings = [] {
    std::array<uint8_t, 128> meanings{};
    for (size_t letter = 0; letter < meanings.size(); ++letter) meanings[letter] = short_escape(static_cast<uint8_t>(letter));
    return meanings;
}();

// A backslash begins an escape unless it is what one stands for, which takes two side by side: the first of those is a stop.
__attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt"))) bool unescape_wide(const uint8_t*& at, const uint8_t* end,
                                                                                                     uint8_t*& out) {
    const __m512i quote = _mm512_set1_epi8('"'), backslash = _mm512_set1_epi8('\\'), space = _mm512_set1_epi8(' ');
    const __m512i low_meanings = _mm512_loadu_si512(kMeanings.data()), high_meanings = _mm512_loadu_si512(kMeanings.data() + kWide);
    bool has_escapes = false;
    while (end - at >= kWide) {
        __m512i bytes = _mm512_loadu_si512(at);
        uint64_t slashes = _mm512_cmpeq_epi8_mask(bytes, backslash), escaped = slashes << 1;
        uint64_t stops = (_mm512_cmpeq_epi8_mask(bytes, quote) & ~escaped) | _mm512_cmplt_epu8_mask(bytes, space);
        if (slashes) {
            __m512i meanings = _mm512_permutex2var_epi8(low_meanings, bytes, high_meanings);
            uint64_t wrong = escaped & (_mm512_testn_epi8_mask(meanings, meanings) | _mm512_movepi8_mask(bytes));
            stops |= (slashes & slashes >> 1) | wrong >> 1 | (slashes & 1ull << 63);
            bytes = _mm512_mask_mov_epi8(bytes, escaped, meanings);
        }
        auto passed = static_cast<unsigned>(std::countr_zero(stops));  // 64 where there are none
        uint64_t inside = _bzhi_u64(~0ull, passed), kept = inside & ~slashes;
        _mm512_storeu_si512(out, _mm512_maskz_compress_epi8(kept, bytes));
        has_escapes |= (slashes & inside) != 0;
        out += std::popcount(kept);
        at += passed;
        if (passed + 1 < kWide) break;  // an escape may be cut by the end of the block
    }
    return has_escapes;
}

}  // namespace
#endif

bool unescape_blocks([[maybe_unused]] const uint8_t*& at, [[maybe_unused]] const uint8_t* end, [[maybe_unused]] uint8_t*& out) {
#if defined(GRISTMILL_HAS_VBMI2_PATH)
    static const bool has_vbmi2 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vbmi") &&
                                  __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("bmi2");
    if (has_vbmi2) return unescape_wide(at, end, out);
#endif
    return false;
}

}  // namespace gristmill
