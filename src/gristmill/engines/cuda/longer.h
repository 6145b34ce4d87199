// Pieces that are too long for one warp: merged in sections that overlap, many side by side.
//
// Near its ends a section may get other tokens than the piece has there. Where two neighbours have the same token at
// the same place, the one's tokens up to it and the other's from it on are the piece's: any two tokens side by side are
// so in the merging of some section, and a row of tokens of which that holds throughout is what merging gives
// (docs/design.md says why). A piece in which two neighbours share no token is merged by one block.
#pragma once
#include "tiles.h"

#define OVERLAP (SECTION_BYTES - SECTION_STEP)

// The last section is never short: tokens at the end of a run of one character are others than those before.
LANE u32 num_sections(u32 size) { return size <= LAST_BYTES ? 1 : (size - LAST_BYTES + SECTION_STEP - 1) / SECTION_STEP + 1; }

// Bytes to the end of the piece at `at`; more than `most` where it has more.
LANE u32 piece_size(const Work& w, u32 at, u32 most) {
    u32 next = at + 1, word = next >> 5, bits = w.piece_bits[word] >> (next & 31);
    if (bits) return __ffs(bits);
    do {
        bits = w.piece_bits[++word];
    } while (!bits && (word << 5) <= at + most);
    return bits ? (word << 5) + __ffs(bits) - 1 - at : most + 1;
}

// The size of a piece of any length, found by a warp.
LANE u32 size_by_warp(const Work& w, u32 at) {
    u32 next = at + 1;
    for (u32 base = (next >> 5) + (threadIdx.x & 31);; base += 128) {
        u32 found = FULL;
#pragma unroll
        for (u32 word = base; word < base + 128; word += 32) {
            u32 bits = word <= w.num_bytes >> 5 ? w.piece_bits[word] : 0;
            if (word == next >> 5) bits &= FULL << (next & 31);
            if (bits) found = min(found, (word << 5) + __ffs(bits) - 1);
        }
        found = __reduce_min_sync(FULL, found);
        if (found != FULL) return found - at;
    }
}

LANE void finish_missed(const Work& w, u32 item, u32 at, u32 count) {
    w.miss_ids[item] = count;
    if (count != 1) atomicAdd(&w.num_ids[at / TILE], count - 1);
}

// A warp puts a piece, and all its sections, where they are found.
LANE void cut_in_sections(const Work& w, u32 item, u32 size) {
    u32 lane = threadIdx.x & 31, count = num_sections(size);
    u32 piece = 0, first = 0;
    if (lane == 0) {
        piece = atomicAdd(&w.counters[NUM_LONGER], 1u);
        first = atomicAdd(&w.counters[NUM_SECTIONS], count);
        w.longer_items[piece] = item;
        w.longer_bytes[piece] = size;
        w.longer_section[piece] = first;
    }
    piece = __shfl_sync(FULL, piece, 0);
    first = __shfl_sync(FULL, first, 0);
    for (u32 i = lane; i < count; i += 32) w.section_piece[first + i] = piece;
}

// Of a piece at a place in the text, what lies between two places of its own.
struct Section {
    u32 piece, number, at, begin, end;
    bool is_last;
};

LANE Section find_section(const Work& w, u32 index) {
    Section s;
    s.piece = w.section_piece[index];
    s.number = index - w.longer_section[s.piece];
    s.at = w.missed[w.longer_items[s.piece]] & ~MISSED;
    s.begin = s.number * SECTION_STEP;
    u32 size = w.longer_bytes[s.piece] & ~UNJOINED;
    s.is_last = s.begin + LAST_BYTES >= size;
    s.end = s.is_last ? size : s.begin + SECTION_BYTES;
    return s;
}

// By place in the piece: the token that begins there in the section, and 1; or 0.
LANE Part* tokens_of(const Work& w, u32 at, u32 number) { return (Part*)w.scratch + (u64)(number & 1) * w.num_bytes + at; }

// A warp writes the tokens of a section where they begin.
LANE void spread_tokens(const Work& w, const Part* parts, u32 count, Part* to, u32 size) {
    u32 lane = threadIdx.x & 31, before = 0;
    for (u32 i = lane; i < size; i += 32) to[i] = 0;
    __syncwarp();
    for (u32 base = 0; base < count; base += 32) {
        bool is_active = base + lane < count;
        u32 id = is_active ? id_in(parts[base + lane]) : 0, bytes = is_active ? 1 : 0;
        if (is_active && id < w.num_tokens) bytes = w.token_bytes[id];
        u32 upto = bytes;
        for (u32 step = 1; step < 32; step <<= 1) {
            u32 other = __shfl_up_sync(FULL, upto, step);
            if (lane >= step) upto += other;
        }
        if (is_active) to[before + upto - bytes] = (Part)id + 1;
        before += __shfl_sync(FULL, upto, 31);
    }
    __syncwarp();
}

#define SECTION_WARPS 4u

KERNEL __launch_bounds__(SECTION_WARPS * 32) merge_sections(Work w) {
    __shared__ Part parts[SECTION_WARPS][LAST_BYTES];
    u32 warp = threadIdx.x >> 5, total = w.counters[NUM_SECTIONS];
    for (u32 i = blockIdx.x * SECTION_WARPS + warp; i < total; i += gridDim.x * SECTION_WARPS) {
        Section s = find_section(w, i);
        bool is_odd;
        u32 left = merge_by_warp(w, w.text + s.at + s.begin, s.end - s.begin, parts[warp], &is_odd);
        spread_tokens(w, parts[warp], left, tokens_of(w, s.at, s.number) + s.begin, s.end - s.begin);
        if (is_odd && (threadIdx.x & 31) == 0) flag_piece(w, s.at);
    }
}

// From where on the tokens of a section count: the first that the section before has too. FULL: there is none.
LANE u32 joined_from(const Work& w, u32 at, u32 number) {
    if (number == 0) return 0;
    const Part *own = tokens_of(w, at, number), *before = tokens_of(w, at, number - 1);
    u32 begin = number * SECTION_STEP;
    for (u32 base = begin; base < begin + OVERLAP; base += 32) {
        u32 i = base + (threadIdx.x & 31);
        u32 same = __ballot_sync(FULL, own[i] != 0 && own[i] == before[i]);
        if (same) return base + __ffs(same) - 1;
    }
    return FULL;
}

// A warp a section: where its tokens begin and end to count, and how many they are.
KERNEL join_sections(Work w) {
    u32 lane = threadIdx.x & 31, total = w.counters[NUM_SECTIONS], step = gridDim.x * blockDim.x >> 5;
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; i < total; i += step) {
        Section s = find_section(w, i);
        u32 from = joined_from(w, s.at, s.number), until = s.is_last ? s.end : joined_from(w, s.at, s.number + 1);
        const Part* own = tokens_of(w, s.at, s.number);
        u32 count = 0;
        for (u32 base = from; base < min(until, s.end); base += 32) {
            count += __popc(__ballot_sync(FULL, base + lane < min(until, s.end) && own[base + lane] != 0));
        }
        if (lane) continue;
        w.section_from[i] = from;
        w.section_ids[i] = count;
        if (from == FULL) atomicOr(&w.longer_bytes[s.piece], UNJOINED);
    }
}

// A block replaces numbers by the sums of those before each; returns the sum of all.
LANE u32 scan_by_block(u32* numbers, u32 count, Team& team) {
    u32 lane = threadIdx.x & 31, sum = 0;
    for (u32 base = 0; base < count; base += blockDim.x) {
        u32 i = base + threadIdx.x, own = i < count ? numbers[i] : 0, upto = own, total;
        for (u32 step = 1; step < 32; step <<= 1) {
            u32 other = __shfl_up_sync(FULL, upto, step);
            if (lane >= step) upto += other;
        }
        u32 before = sum_before(__shfl_sync(FULL, upto, 31), team, total);
        if (i < count) numbers[i] = sum + before + upto - own;
        sum += total;
    }
    return sum;
}

// A block merges a whole piece, in shared memory or in as much other memory as the piece is long.
LANE void merge_whole(const Work& w, u32 item, u32 at, u32 size, Part* near, Team& team) {
    Part* scratch = (Part*)w.scratch;
    Part* from = size <= BLOCK_BYTES ? near : scratch + at;
    Part* to = size <= BLOCK_BYTES ? near + BLOCK_BYTES : scratch + w.num_bytes + at;
    bool is_odd;
    u32 left = merge_by_block(w, w.text + at, size, from, to, team, &is_odd);
    for (u32 j = threadIdx.x; j < left; j += blockDim.x) w.arena[at + j] = id_in(from[j]);
    if (threadIdx.x == 0) {
        finish_missed(w, item, at, left);
        if (is_odd) flag_piece(w, at);
    }
}

// A block a piece: where the ids of its sections go, or its ids where the sections do not join.
KERNEL __launch_bounds__(MOST_THREADS) merge_longer_pieces(Work w) {
    __shared__ Part near[2 * BLOCK_BYTES];
    __shared__ Team team;
    for (u32 i = blockIdx.x; i < w.counters[NUM_LONGER]; i += gridDim.x) {
        u32 item = w.longer_items[i], at = w.missed[item] & ~MISSED, size = w.longer_bytes[i];
        if (size & UNJOINED) {
            merge_whole(w, item, at, size & ~UNJOINED, near, team);
        } else {
            u32 total = scan_by_block(w.section_ids + w.longer_section[i], num_sections(size), team);
            if (threadIdx.x == 0) {
                finish_missed(w, item, at, total);
                w.miss_ids[item] = total | IN_SECTIONS;
            }
        }
        __syncthreads();
    }
}

// Id number `to` of the batch; in two parts where the host wants it so, which saves a quarter of the way there.
LANE void store_id(const Work& w, u32 to, u32 id) {
    if (!NARROW && w.out_high) {
        ((u16*)w.out)[to] = (u16)id;
        w.out_high[to] = (u8)(id >> 16);
    } else {
        ((Id*)w.out)[to] = (Id)id;
    }
}

// A warp a section: its ids where they belong. `pack` has left at the piece where the first of all goes.
KERNEL place_sections(Work w) {
    u32 lane = threadIdx.x & 31, total = w.counters[NUM_SECTIONS], step = gridDim.x * blockDim.x >> 5;
    for (u32 i = (blockIdx.x * blockDim.x + threadIdx.x) >> 5; i < total; i += step) {
        Section s = find_section(w, i);
        if (w.longer_bytes[s.piece] & UNJOINED) continue;
        u32 to = w.arena[s.at] + w.section_ids[i], until = s.is_last ? s.end : w.section_from[i + 1];
        const Part* own = tokens_of(w, s.at, s.number);
        for (u32 base = w.section_from[i]; base < until; base += 32) {
            Part token = base + lane < until ? own[base + lane] : 0;
            u32 tokens = __ballot_sync(FULL, token != 0);
            if (token != 0) store_id(w, to + __popc(tokens & ((1u << lane) - 1)), (u32)(token - 1));
            to += __popc(tokens);
        }
    }
}
