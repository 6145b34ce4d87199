// A byte and the one before it tell nearly every fault: 32 pairs are looked up at a time, in three tables of sixteen
// entries (the halves of the first byte, the upper half of the second), each with a bit a rule. What is left is whether
// the second byte after E0..FF and the third after F0..FF go on with the character. The method is that of J. Keiser and
// D. Lemire, "Validating UTF-8 In Less Than One Instruction Per Byte" (2021).
#include "utf8_check.hpp"

#include <array>
#include <cstring>

#include "utf8.hpp"

#if defined(__x86_64__) && defined(__GNUC__)
#define GRISTMILL_HAS_X86_PATHS 1
#include <immintrin.h>
#endif

namespace gristmill {

#if defined(GRISTMILL_HAS_X86_PATHS)
namespace {

constexpr size_t kWide = 32;

// A pair of bytes is wrong when all three of its halves are in these sets: bit n is the half with value n.
struct PairRule {
    uint16_t first_upper, first_lower, second_upper;
};

constexpr uint16_t kAny = 0xFFFF, kTail = 0x0F00;  // a tail is 80..BF
constexpr PairRule kRules[8] = {
    {0xF000, kAny, static_cast<uint16_t>(~kTail)},  // a lead and no tail
    {0x00FF, kAny, kTail},                          // a tail after ASCII
    {0x1000, 0x0003, kTail},                        // C0, C1: two bytes where one will do
    {0x4000, 0x0001, 0x0300},                       // E0 80..9F: three where two will do
    {0x4000, 0x2000, 0x0C00},                       // ED A0..BF: surrogates
    {0x8000, 0xFFF0, 0x0E00},                       // F4 90..BF and F5..FF 90..BF: past U+10FFFF
    {0x8000, 0xFFE1, 0x0100},                       // F0 80..8F: four where three will do; F5..FF 80..8F: past the end
    {0x0F00, kAny, kTail},                          // two tails: wrong unless the lead is two or three bytes back
};

// Entry n: the rules whose set of this half holds n.
constexpr std::array<uint8_t, 16> table_of(uint16_t PairRule::*half) {
    std::array<uint8_t, 16> table{};
    for (unsigned rule = 0; rule < 8; ++rule) {
        for (unsigned value = 0; value < 16; ++value) {
            table[value] = static_cast<uint8_t>(table[value] | (kRules[rule].*half >> value & 1) << rule);
        }
    }
    return table;
}

constexpr auto kFirstUpper = table_of(&PairRule::first_upper);
constexpr auto kFirstLower = table_of(&PairRule::first_lower);
constexpr auto kSecondUpper = table_of(&PairRule::second_upper);

__attribute__((target("avx2"))) inline __m256i twice(const std::array<uint8_t, 16>& table) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table.data())));
}

// The bytes `distance` before those of `bytes`.
template <int distance>
__attribute__((target("avx2"))) inline __m256i before(__m256i bytes, __m256i previous) {
    return _mm256_alignr_epi8(bytes, _mm256_permute2x128_si256(previous, bytes, 0x21), 16 - distance);
}

// Not zero where a byte does not go with those before it.
__attribute__((target("avx2"))) inline __m256i faults_of(__m256i bytes, __m256i previous) {
    const __m256i lower = _mm256_set1_epi8(0x0F);
    __m256i first = before<1>(bytes, previous);
    __m256i first_upper = _mm256_and_si256(_mm256_srli_epi16(first, 4), lower);
    __m256i second_upper = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), lower);
    __m256i pairs = _mm256_and_si256(
        _mm256_and_si256(_mm256_shuffle_epi8(twice(kFirstUpper), first_upper),
                         _mm256_shuffle_epi8(twice(kFirstLower), _mm256_and_si256(first, lower))),
        _mm256_shuffle_epi8(twice(kSecondUpper), second_upper));
    // The top bit, that of two tails, is to be set just where a lead two or three bytes back asks for a tail.
    __m256i third = _mm256_subs_epu8(before<2>(bytes, previous), _mm256_set1_epi8(0xE0 - 0x80));
    __m256i fourth = _mm256_subs_epu8(before<3>(bytes, previous), _mm256_set1_epi8(0xF0 - 0x80));
    __m256i asked = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(static_cast<char>(0x80)));
    return _mm256_xor_si256(pairs, asked);
}

__attribute__((target("avx2"))) bool is_valid_avx2(const uint8_t* text, size_t size) {
    __m256i previous = _mm256_setzero_si256(), faults = previous;
    bool was_ascii = true;
    size_t at = 0;
    for (; at + kWide <= size; at += kWide) {
        __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + at));
        bool is_ascii = _mm256_movemask_epi8(bytes) == 0;
        if (!is_ascii || !was_ascii) faults = _mm256_or_si256(faults, faults_of(bytes, previous));
        was_ascii = is_ascii;
        previous = bytes;
    }
    // The rest, with zeros after it: a character that is cut short is then a lead without its tail.
    uint8_t rest[kWide] = {};
    if (at < size) std::memcpy(rest, text + at, size - at);
    __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rest));
    faults = _mm256_or_si256(faults, faults_of(bytes, previous));
    return _mm256_testz_si256(faults, faults);
}

// The same for 64 bytes.
#define GRISTMILL_AVX512 __attribute__((target("avx512f,avx512bw,bmi2")))

GRISTMILL_AVX512 inline __m512i four_times(const std::array<uint8_t, 16>& table) {
    // All lanes by a mask, as g++ 12 takes its own unmasked intrinsics for uses of what was never set.
    return _mm512_maskz_broadcast_i32x4(0xFFFF, _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.data())));
}

template <int distance>
GRISTMILL_AVX512 inline __m512i before(__m512i bytes, __m512i previous) {
    return _mm512_alignr_epi8(bytes, _mm512_maskz_alignr_epi32(0xFFFF, bytes, previous, 12), 16 - distance);
}

GRISTMILL_AVX512 inline __m512i faults_of(__m512i bytes, __m512i previous) {
    const __m512i lower = _mm512_set1_epi8(0x0F);
    __m512i first = before<1>(bytes, previous);
    __m512i first_upper = _mm512_and_si512(_mm512_srli_epi16(first, 4), lower);
    __m512i second_upper = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), lower);
    __m512i pairs = _mm512_and_si512(
        _mm512_and_si512(_mm512_shuffle_epi8(four_times(kFirstUpper), first_upper),
                         _mm512_shuffle_epi8(four_times(kFirstLower), _mm512_and_si512(first, lower))),
        _mm512_shuffle_epi8(four_times(kSecondUpper), second_upper));
    __m512i third = _mm512_subs_epu8(before<2>(bytes, previous), _mm512_set1_epi8(0xE0 - 0x80));
    __m512i fourth = _mm512_subs_epu8(before<3>(bytes, previous), _mm512_set1_epi8(0xF0 - 0x80));
    __m512i asked = _mm512_and_si512(_mm512_or_si512(third, fourth), _mm512_set1_epi8(static_cast<char>(0x80)));
    return _mm512_xor_si512(pairs, asked);
}

GRISTMILL_AVX512 bool is_valid_avx512(const uint8_t* text, size_t size) {
    constexpr size_t kBytes = 64;
    __m512i previous = _mm512_setzero_si512(), faults = previous;
    bool was_ascii = true;
    size_t at = 0;
    for (; at + kBytes <= size; at += kBytes) {
        __m512i bytes = _mm512_loadu_si512(text + at);
        bool is_ascii = _mm512_movepi8_mask(bytes) == 0;
        if (!is_ascii || !was_ascii) faults = _mm512_or_si512(faults, faults_of(bytes, previous));
        was_ascii = is_ascii;
        previous = bytes;
    }
    __m512i bytes = _mm512_maskz_loadu_epi8(_bzhi_u64(~0ull, static_cast<unsigned>(size - at)), text + at);
    faults = _mm512_or_si512(faults, faults_of(bytes, previous));
    return _mm512_test_epi8_mask(faults, faults) == 0;
}

}  // namespace
#endif

const std::vector<Utf8Check>& utf8_checks() {
    static const std::vector<Utf8Check> checks = [] {
        std::vector<Utf8Check> found{[](const uint8_t* text, size_t size) { return utf8_first_invalid(text, size) == size; }};
#if defined(GRISTMILL_HAS_X86_PATHS)
        if (__builtin_cpu_supports("avx2")) found.push_back(is_valid_avx2);
        // Processors that have the last of these are no slower for using registers of 64 bytes.
        bool has_avx512 = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("avx512vbmi2");
        if (has_avx512) found.push_back(is_valid_avx512);
#endif
        return found;
    }();
    return checks;
}

size_t utf8_find_invalid(const uint8_t* text, size_t size) {
    static const Utf8Check is_valid = utf8_checks().back();
    return is_valid(text, size) ? size : utf8_first_invalid(text, size);  // which byte it is, is asked rarely
}

}  // namespace gristmill
