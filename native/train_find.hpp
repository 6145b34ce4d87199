// Where a pair stands among the tokens of a piece, without a branch for every token: most pieces have few, and how many is
// what a processor cannot guess. Each function has its plain twin, which is also what other processors run.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace gristmill::train {

constexpr size_t kReadableBeyond = 32;  // slots behind the last token of a piece that may be read and written back

struct PairPlaces {
    unsigned first;  // size or more where there is none
    bool is_only;    // false also where that was not looked for
};

template <typename Symbol>
PairPlaces find_pairs_plainly(const Symbol* tokens, unsigned size, Symbol left, Symbol right) {
    unsigned first = 0;
    while (first + 1 < size && !(tokens[first] == left && tokens[first + 1] == right)) ++first;
    return {first + 1 < size ? first : size, false};
}

// Removes the token at `at`.
template <typename Symbol>
void close_gap_plainly(Symbol* tokens, unsigned at, unsigned size) {
    for (unsigned i = at; i + 1 < size; ++i) tokens[i] = tokens[i + 1];
}

template <typename Symbol>
PairPlaces find_pairs(const Symbol* tokens, unsigned size, Symbol left, Symbol right) {
    return find_pairs_plainly(tokens, size, left, right);
}

template <typename Symbol>
void close_gap(Symbol* tokens, unsigned at, unsigned size) {
    close_gap_plainly(tokens, at, size);
}

#if defined(__SSE2__)

constexpr unsigned kAtOnce = 16;  // pairs looked at together

// A bit for each of 16 pairs.
inline unsigned match_pairs(const uint16_t* tokens, __m128i left, __m128i right) {
    auto at = [&](int i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(tokens + i)); };
    __m128i low = _mm_and_si128(_mm_cmpeq_epi16(at(0), left), _mm_cmpeq_epi16(at(1), right));
    __m128i high = _mm_and_si128(_mm_cmpeq_epi16(at(8), left), _mm_cmpeq_epi16(at(9), right));
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(low, high)));
}

template <>
inline PairPlaces find_pairs(const uint16_t* tokens, unsigned size, uint16_t left, uint16_t right) {
    __m128i lefts = _mm_set1_epi16(static_cast<short>(left)), rights = _mm_set1_epi16(static_cast<short>(right));
    for (unsigned begin = 0; begin + 1 < size; begin += kAtOnce) {
        unsigned num_pairs = size - 1 - begin, found = match_pairs(tokens + begin, lefts, rights);
        if (num_pairs < kAtOnce) found &= (1u << num_pairs) - 1;
        if (!found) continue;
        bool is_only = num_pairs <= kAtOnce && (found & (found - 1)) == 0;
        return {begin + static_cast<unsigned>(std::countr_zero(found)), is_only};
    }
    return {size, false};
}

template <>
inline void close_gap(uint16_t* tokens, unsigned at, unsigned size) {
    // What lies behind the piece is overwritten in passing.
    __m128i behind = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tokens + size));
    for (unsigned i = at; i + 1 < size; i += 8) {
        __m128i moved = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tokens + i + 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(tokens + i), moved);
    }
    _mm_storeu_si128(reinterpret_cast<__m128i*>(tokens + size), behind);
}

#endif

}  // namespace gristmill::train
