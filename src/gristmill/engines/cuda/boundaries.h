// Where pieces begin: bytes to classes, classes through both automata (gristmill/pattern/bimachine.py), cuts.
#pragma once
#include "work.h"

// The automata where every lane reaches them fast.
struct Automata {
    u8 byte_class[256];
    u8 forward_step[NUM_FORWARD << CLASS_BITS];
    u32 backward_step[NUM_BACKWARD << CLASS_BITS];  // next state | which forward states a piece ends after << 5
    u8 forward_extend[NUM_FORWARD_ELEMENTS << CLASS_BITS];
    u8 backward_extend[NUM_BACKWARD_ELEMENTS << CLASS_BITS];
};

LANE u32 unaligned(const u32* words, u32 at) {
    return __funnelshift_r(words[at >> 2], words[(at >> 2) + 1], (at & 3) * 8);
}

// Top bit of each of four bytes -> four bits.
LANE u32 gather_bits(u32 word) { return ((word & 0x80808080u) * 0x00204081u) >> 28; }

// The character that begins with these bytes; it is not checked.
LANE u32 decode(u32 bytes) {
    u32 lead = bytes & 255, second = bytes >> 8 & 63, third = bytes >> 16 & 63, fourth = bytes >> 24 & 63;
    if (lead < 0xE0) return (lead & 31) << 6 | second;
    if (lead < 0xF0) return (lead & 15) << 12 | second << 6 | third;
    return (lead & 7) << 18 | second << 12 | third << 6 | fourth;
}

LANE u32 class_of_character(const Work& w, u32 point) {
    if (point > 0x10FFFF) point = 0x10FFFF;
    return w.class_of[(u32)w.class_page[point >> 8] << 8 | (point & 255)];
}

// Is it no character, though its bytes follow the pattern of one?
LANE bool is_wrong(u32 lead, u32 point) {
    if (lead < 0xE0) return point < 0x80;
    if (lead < 0xF0) return point < 0x800 || (point >> 11) == 0x1B;
    return lead > 0xF4 || point < 0x10000 || point > 0x10FFFF;
}

// Class byte of any byte of the text, from device memory: for the few that no tile has loaded.
LANE u32 class_at(const Work& w, u64 at) {
    const u8* p = w.text + at;
    u32 byte = p[0];
    if (byte < 0x80) return w.byte_class[byte];
    if (byte < 0xC0) return IDENTITY;
    return class_of_character(w, decode(byte | (u32)p[1] << 8 | (u32)p[2] << 16 | (u32)p[3] << 24));
}

LANE bool begins_document(const Work& w, u64 at) { return w.doc_bits[at >> 5] >> (at & 31) & 1; }

LANE u32 class_in(const u32* classes, int i) { return classes[i >> 2] >> (i & 3) * 8 & CLASS_MASK; }

// The element of bytes of which a lane has the classes, and where documents begin among them.
LANE u32 forward_of(const Automata& a, const u32* classes, u32 docs, int size) {
    u32 element = 0;
    for (int i = 0; i < size; ++i) {
        if (docs >> i & 1) element = a.forward_extend[element << CLASS_BITS | RESET];
        element = a.forward_extend[element << CLASS_BITS | class_in(classes, i)];
    }
    return element;
}

LANE u32 backward_of(const Automata& a, const u32* classes, u32 docs, int size) {
    u32 element = 0;
    for (int i = size - 1; i >= 0; --i) {
        element = a.backward_extend[element << CLASS_BITS | class_in(classes, i)];
        if (docs >> i & 1) element = a.backward_extend[element << CLASS_BITS | RESET];
    }
    return element;
}

// The same once more for eight bytes in registers: most lanes need no more.
LANE u32 forward_of_eight(const Automata& a, const u32* classes, u32 docs) {
    u32 element = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (docs >> i & 1) element = a.forward_extend[element << CLASS_BITS | RESET];
        element = a.forward_extend[element << CLASS_BITS | class_in(classes, i)];
    }
    return element;
}

LANE u32 backward_of_eight(const Automata& a, const u32* classes, u32 docs) {
    u32 element = 0;
#pragma unroll
    for (int i = 7; i >= 0; --i) {
        element = a.backward_extend[element << CLASS_BITS | class_in(classes, i)];
        if (docs >> i & 1) element = a.backward_extend[element << CLASS_BITS | RESET];
    }
    return element;
}

// What a lane found in its 32 bytes that are not ASCII.
struct Wide {
    u32 continuation;  // bytes inside characters
    u32 cuts;          // characters that no token can reach across the start of
    u64 expected;      // bytes that must be inside characters, by the leads seen
    bool is_flagged;
};

LANE bool has_bit(const u32* bits, u32 at) { return bits[at >> 5] >> (at & 31) & 1; }

// Is this in the filter: `left` bytes before a place and `right` at it, 3 meaning 3 or more?
LANE bool has_context(const Work& w, u32 before, u32 after, u32 left, u32 right) {
    u32 near = before >> 8 * (3 - left), far = after & ((1u << 8 * right) - 1);
    u32 hash = (near * 0x9E3779B1u) ^ (far * 0x85EBCA77u) ^ ((left * 4 + right) * 0x27D4EB2Fu);
    hash = (hash ^ hash >> 15) * 0x2C1B3C6Du;
    return has_bit(w.cut_contexts, hash >> (32 - CUT_BITS));
}

// May some token lie across the start of this character? words: the tile's text; at: where in it. Four bytes around it
// mostly say no; six say it more often, by where tokens begin and end, and are asked where there was no cut for long.
LANE bool may_cover(const Work& w, const u32* words, u32 at, bool is_long) {
    u32 around = unaligned(words, at - 2);
    if (!has_bit(w.cut_pairs, around >> 8 & 0xFFFF) && !has_bit(w.cut_windows, (around * 0x9E3779B1u) >> (32 - CUT_BITS))) {
        return false;
    }
    if (!is_long) return true;
    u32 before = unaligned(words, at - 3) & 0xFFFFFF, after = unaligned(words, at) & 0xFFFFFF;
    if (has_context(w, before, after, 3, 3)) return true;
    // Bits 0 to 2: a token may begin (end) 1, 2, 3 bytes before (behind) the place.
    u32 here = w.cut_near[around >> 8 & 0xFFFF];
    u32 lefts = 4 | (here & 1) | (w.cut_near[around & 0xFFFF] >> 1 & 2);
    u32 rights = 4 | (here >> 1 & 1) | (w.cut_near[around >> 16] >> 2 & 2);
    if ((lefts | rights) == 4) return false;
    bool is_covered = false;
#pragma unroll 1
    for (u32 kind = 0; kind < 8; ++kind) {
        u32 left = kind / 3, right = kind % 3;
        if (lefts >> left & rights >> right & 1) is_covered |= has_context(w, before, after, left + 1, right + 1);
    }
    return is_covered;
}

// Does a combining mark stand before this place? Four bytes before it are there.
LANE bool follows_mark(const Work& w, const u32* words, u32 at) {
    for (u32 start = at - 1; start >= at - 4; --start) {
        u32 bytes = unaligned(words, start);
        if ((bytes & 0xC0) == 0x80) continue;
        return (bytes & 0x80) && (class_of_character(w, decode(bytes)) & MARK_BIT);
    }
    return true;
}

// Classes of the characters that are not ASCII into `classes` (bytes), and all that goes with them.
// `words` is the tile's text with some of what is around it, `text` the lane's part of it, at the place `at`.
LANE Wide find_wide(const Work& w, const u32* words, const u32* text, u32 at, u8* classes) {
    u32 leads = 0, high = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        high |= gather_bits(text[i]) << 4 * i;
        leads |= gather_bits(text[i] & text[i] << 1) << 4 * i;
    }
    Wide found = {high & ~leads, 0, 0, false};
    u32 uncut = 0, next = 0;  // where the characters side by side began that have no cut among them; where they end
    for (u32 rest = leads; rest; rest &= rest - 1) {
        u32 i = __ffs(rest) - 1;
        if (i != next) uncut = i;
        u32 bytes = unaligned(words, at + i), lead = bytes & 255, point = decode(bytes);
        u32 length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        u32 cls = class_of_character(w, point);
        classes[i] = (u8)(cls & CLASS_MASK);
        found.expected |= (u64)((1u << (length - 1)) - 1) << (i + 1);
        found.is_flagged |= is_wrong(lead, point) || (cls & FLAG_BIT);
        if (cls & MARK_BIT) found.is_flagged |= follows_mark(w, words, at + i);
        next = i + length;
        if (!may_cover(w, words, at + i, i - uncut >= UNCUT)) {
            found.cuts |= 1u << i;
            uncut = i;
        }
    }
    return found;
}

// Does an added token begin at a byte that some added token begins with?
LANE bool may_be_added(const Work& w, const u32* words, u32 at) {
    u32 bytes = unaligned(words, at);
    for (u32 i = 0; i < w.num_prefixes; ++i) {
        if ((bytes & w.prefixes[2 * i]) == w.prefixes[2 * i + 1]) return true;
    }
    return false;
}

// Bit i: a piece begins at byte i of the lane. The states are those before its first and behind its last byte.
// Where class and state have room in a byte, the states are kept beside the classes, which saves registers.
#define BESIDE (CLASS_BITS == 4 && NUM_FORWARD <= 16)
LANE u32 find_pieces(const Automata& a, u32* classes, u32 docs, u32 forward, u32 backward) {
    u32 before[BESIDE ? 1 : 8], pieces = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        int word = i >> 2, shift = (i & 3) * 8;
        if (docs >> i & 1) forward = 0;
        u32 cls = classes[word] >> shift & CLASS_MASK;
#if BESIDE
        classes[word] = (classes[word] & ~(0xF0u << shift)) | forward << (shift + 4);
#else
        before[word] = (shift ? before[word] : 0) | forward << shift;
#endif
        forward = a.forward_step[forward << CLASS_BITS | cls];
    }
#pragma unroll
    for (int i = 31; i >= 0; --i) {
        int word = i >> 2, shift = (i & 3) * 8;
        u32 step = a.backward_step[backward << CLASS_BITS | (classes[word] >> shift & CLASS_MASK)];
        u32 state = BESIDE ? classes[word] >> (shift + 4) & 15 : before[BESIDE ? 0 : word] >> shift & 31;
        pieces |= (step >> 5 >> state & 1) << i;
        backward = docs >> i & 1 ? 0 : step & 31;
    }
    (void)before;
    return pieces;
}
