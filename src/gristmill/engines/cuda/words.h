// Tables of pieces with their ids: words of up to 15 bytes in 32 bytes each, phrases of up to 31 in 64 bytes each.
//
// An entry is its key (bytes, zeros, and the length in the last byte) and a value: a header (first id, number of ids,
// flags) and the other ids. Keys are compared in full. A key lies in one of four places; MORE at the first says
// that the others must be looked at.
#pragma once
#include "boundaries.h"

#define WORD_WORDS 4   // of a key
#define PHRASE_WORDS 8
#if NARROW
#define WORD_IDS 7     // that a value has room for
#define PHRASE_IDS 15
#else
#define WORD_IDS 5
#define PHRASE_IDS 10
#endif

// `length` bytes of text at `at` as a key of `size` words.
template <int size>
LANE void load_key(const u32* words, u32 at, u32 length, u32* key) {
    const u32* from = words + (at >> 2);
    u32 shift = (at & 3) * 8, low = from[0];
#pragma unroll
    for (int i = 0; i < size; ++i) {
        u32 high = from[i + 1];
        // The bytes that belong to the key: a shift by 32 or more leaves nothing.
        u32 kept = 8 * min(max((int)length - 4 * i, 0), 4);
        key[i] = __funnelshift_r(low, high, shift) & ~__funnelshift_lc(0u, FULL, kept);
        low = high;
    }
    key[size - 1] |= length << 24;
}

template <int size>
LANE u32 hash_key(const u32* key, u32 seed) {
    u32 hash = seed;
#pragma unroll
    for (int i = 0; i < size; ++i) hash = (hash ^ key[i]) * 0x9E3779B1u + (hash >> 15);
    hash ^= hash >> 15;
    hash *= 0x2C1B3C6Du;
    return hash ^ hash >> 13;
}

// The four places of a key, the first one first.
template <int size>
LANE u32 place_of(const u32* key, u32 bits, int attempt) {
    u32 hash = hash_key<size>(key, attempt < 2 ? 0u : 0x85EBCA77u) >> (32 - bits);
    return attempt & 1 ? hash ^ 1 : hash;
}

template <int size>
LANE bool is_key(const u32* entry, const u32* key) {
    u32 differs = 0;
#pragma unroll
    for (int i = 0; i < size; i += 4) {
        uint4 four = *(const uint4*)(entry + i);
        differs |= (four.x ^ key[i]) | (four.y ^ key[i + 1]) | (four.z ^ key[i + 2]) | (four.w ^ key[i + 3]);
    }
    return differs == 0;
}

// The value that lies with a key at a place; false where another key does. Both are asked for at once: they share a
// sector. `header` is the place's own, whatever key it has.
template <int size>
LANE bool read_place(const u32* entry, const u32* key, u32* value, u32& header) {
    uint4 first = *(const uint4*)(entry + size);
    header = first.x;
    if (!is_key<size>(entry, key)) return false;
    value[0] = first.x, value[1] = first.y, value[2] = first.z, value[3] = first.w;
#pragma unroll
    for (int i = 4; i < size; ++i) value[i] = entry[size + i];
    return true;
}

// The value of a key; false where it has none.
template <int size>
LANE bool find_key(const u32* table, u32 bits, const u32* key, u32* value) {
    u32 header;
    if (read_place<size>(table + (u64)place_of<size>(key, bits, 0) * (2 * size), key, value, header)) return true;
    if (!(header & MORE)) return false;
#pragma unroll 1
    for (int attempt = 1; attempt < 4; ++attempt) {
        if (read_place<size>(table + (u64)place_of<size>(key, bits, attempt) * (2 * size), key, value, header)) return true;
    }
    return false;
}

LANE u32 count_of(u32 header) { return (header >> 24 & 15) + 1; }

// Id number i of a value.
LANE u32 id_of(const u32* value, u32 i) {
    if (i == 0) return value[0] & ID_MASK;
#if NARROW
    return value[1 + ((i - 1) >> 1)] >> 16 * ((i - 1) & 1) & 0xFFFF;
#else
    u32 bit = 24 * (i - 1), word = 1 + (bit >> 5);
    u32 high = (bit & 31) > 8 ? value[word + 1] : 0;
    return __funnelshift_r(value[word], high, bit & 31) & 0xFFFFFF;
#endif
}

// A piece with its ids for later batches. Nothing reads the table meanwhile, so claiming the place is enough.
template <int size>
LANE void insert_key(u32* table, u32 bits, const u32* key, const u32* ids, u32 count, u32* num_learned) {
    for (int attempt = 0; attempt < 4; ++attempt) {
        u32* entry = table + (u64)place_of<size>(key, bits, attempt) * (2 * size);
        u32 found = atomicCAS(entry + size - 1, 0u, key[size - 1]);
        if (found) {
            // Another thread may still be writing this very key: then it gets a second place, which does no harm.
            if (is_key<size>(entry, key)) return;
            continue;
        }
        for (int i = 0; i < size - 1; ++i) entry[i] = key[i];
        for (u32 i = 1; i < count; ++i) {
            u32 bit = (NARROW ? 16 : 24) * (i - 1), word = size + 1 + (bit >> 5);
            entry[word] |= ids[i] << (bit & 31);
            if ((bit & 31) > 8 && !NARROW) entry[word + 1] |= ids[i] >> (32 - (bit & 31));
        }
        // The flag MORE of this place may be set by another thread.
        atomicOr(entry + size, ids[0] | (count - 1) << 24);
        if (attempt) atomicOr(table + (u64)place_of<size>(key, bits, 0) * (2 * size) + size, MORE);
        atomicAdd(num_learned, 1u);
        return;
    }
}
