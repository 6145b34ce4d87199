// The states of both automata at the edges of every tile.
#pragma once
#include "merges.h"

// The CPU must look at documents that have a byte in these parts of the tile, 32 bytes each.
LANE void flag_parts(const Work& w, u32 tile, u32 parts) {
    atomicOr(&w.tile_flags[tile], parts);
    atomicAdd(&w.counters[NUM_FLAGGED], 1u);
}

LANE void flag_piece(const Work& w, u32 at) { flag_parts(w, at / TILE, 1u << (at % TILE >> 5)); }

KERNEL clear(Work w) {
    u32 first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (u32 i = first; i < w.num_tiles * TILE_WORDS + BEHIND / 32; i += step) w.doc_bits[i] = 0;
    for (u32 i = first; i < w.num_tiles; i += step) {
        w.first_doc[i] = FULL;
        w.tile_flags[i] = 0;
    }
    for (u32 i = first; i < BEHIND; i += step) w.text[(u64)w.num_bytes + i] = 0;
    if (first < NUM_COUNTERS) w.counters[first] = 0;
}

KERNEL mark_documents(Work w) {
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > w.num_docs) return;
    u32 at = i < w.num_docs ? w.starts[i] : w.num_bytes;
    atomicOr(&w.doc_bits[at >> 5], 1u << (at & 31));
    if (i < w.num_docs) atomicMin(&w.first_doc[at / TILE], i);
}

LANE u32 join_forward(const Work& w, u32 first, u32 then) { return w.forward_join[first * NUM_FORWARD_ELEMENTS + then]; }
LANE u32 join_backward(const Work& w, u32 first, u32 then) { return w.backward_join[first * NUM_BACKWARD_ELEMENTS + then]; }

// The element of the tile for each automaton: from the end (the beginning) of the tile as far back (on) as it takes
// until nothing beyond can matter, which is a few bytes mostly.
KERNEL summarize_tiles(Work w) {
    u32 tile = blockIdx.x * blockDim.x + threadIdx.x;
    if (tile >= w.num_tiles) return;
    u64 begin = (u64)tile * TILE;
    u32 forward = 0, backward = 0;
    for (u64 at = begin + TILE; at > begin && !(w.forward_value[forward] & CONSTANT);) {
        --at;
        forward = join_forward(w, w.forward_extend[class_at(w, at) & CLASS_MASK], forward);
        if (begins_document(w, at)) forward = join_forward(w, w.forward_extend[RESET], forward);
    }
    for (u64 at = begin + 32; at < begin + 32 + TILE && !(w.backward_value[backward] & CONSTANT); ++at) {
        if (begins_document(w, at)) backward = join_backward(w, w.backward_extend[RESET], backward);
        backward = join_backward(w, w.backward_extend[class_at(w, at) & CLASS_MASK], backward);
    }
    w.forward_tile[tile] = (u8)forward;
    w.backward_tile[tile] = (u8)backward;
}

// Elements of all lanes before this one, and of all behind it, joined; `forward` and `backward` are its own.
LANE void join_lanes(const Work& w, u32 lane, u32& forward, u32& backward) {
    for (u32 step = 1; step < 32; step <<= 1) {
        u32 before = __shfl_up_sync(FULL, forward, step), behind = __shfl_down_sync(FULL, backward, step);
        if (lane >= step) forward = join_forward(w, before, forward);
        if (lane + step < 32) backward = join_backward(w, behind, backward);
    }
}

// The elements of items [begin, end) joined, from two arrays of elements.
LANE void join_items(const Work& w, const u8* forwards, const u8* backwards, u32 begin, u32 end, u32& forward, u32& backward) {
    forward = backward = 0;
    for (u32 i = begin; i < end; ++i) forward = join_forward(w, forward, forwards[i]);
    for (u32 i = end; i-- > begin;) backward = join_backward(w, backward, backwards[i]);
}

KERNEL join_groups(Work w) {
    u32 lane = threadIdx.x & 31, group = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (group * GROUP >= w.num_tiles) return;
    u32 begin = min(group * GROUP + lane * 32, w.num_tiles), end = min(begin + 32, w.num_tiles), forward, backward;
    join_items(w, w.forward_tile, w.backward_tile, begin, end, forward, backward);
    join_lanes(w, lane, forward, backward);
    if (lane == 31) w.forward_group[group] = (u8)forward;
    if (lane == 0) w.backward_group[group] = (u8)backward;
}

// Replaces every item's elements by those of all before it, and of all behind it; `from_left` and `from_right` is what
// comes before the first and behind the last lane's.
LANE void settle_items(const Work& w, u8* forwards, u8* backwards, u32 begin, u32 end, u32 from_left, u32 from_right) {
    u32 lane = threadIdx.x & 31, forward, backward;
    join_items(w, forwards, backwards, begin, end, forward, backward);
    join_lanes(w, lane, forward, backward);
    u32 before = __shfl_up_sync(FULL, forward, 1), behind = __shfl_down_sync(FULL, backward, 1);
    forward = join_forward(w, from_left, lane ? before : 0);
    backward = join_backward(w, from_right, lane < 31 ? behind : 0);
    for (u32 i = begin; i < end; ++i) {
        u32 own = forwards[i];
        forwards[i] = (u8)forward;
        forward = join_forward(w, forward, own);
    }
    for (u32 i = end; i-- > begin;) {
        u32 own = backwards[i];
        backwards[i] = (u8)backward;
        backward = join_backward(w, backward, own);
    }
}

// One warp.
KERNEL scan_groups(Work w) {
    u32 num_groups = (w.num_tiles + GROUP - 1) / GROUP, share = (num_groups + 31) / 32;
    u32 begin = min(threadIdx.x * share, num_groups);
    settle_items(w, w.forward_group, w.backward_group, begin, min(begin + share, num_groups), 0, 0);
}

KERNEL settle_tiles(Work w) {
    u32 lane = threadIdx.x & 31, group = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (group * GROUP >= w.num_tiles) return;
    u32 begin = min(group * GROUP + lane * 32, w.num_tiles);
    settle_items(w, w.forward_tile, w.backward_tile, begin, min(begin + 32, w.num_tiles), w.forward_group[group],
                 w.backward_group[group]);
}
