// BPE of pieces that are in no table: one thread for up to 32 bytes, many for more.
#pragma once
#include "words.h"

// Rank of the merge of two neighbours, or NO_RANK. Entry: left << 43 | right << 22 | rank; all ones where empty.
LANE u32 rank_of(const Work& w, u32 left, u32 right) {
    u64 key = (u64)left << 21 | right;
    u32 at = (u32)((key * 0x9E3779B97F4A7C15ull) >> 32) & w.pair_mask;
    for (;;) {
        u64 entry = w.pairs[at];
        if (entry >> 22 == key) return (u32)entry & 0x3FFFFF & NO_RANK;
        if (entry == ~0ull) return NO_RANK;
        at = (at + 1) & w.pair_mask;
    }
}

LANE Part make_part(u32 rank, u32 id) { return (Part)rank << PART_BITS | id; }
LANE u32 rank_in(Part part) { return (u32)(part >> PART_BITS); }
LANE u32 id_in(Part part) { return (u32)(part & PART_ID); }

// Merges text[0, size) in parts[0], parts[stride], ...: the best pair, leftmost first, one at a time. A part has
// the rank of the merge with its right neighbour. Returns how many are left.
LANE u32 merge_short(const Work& w, const u8* text, u32 size, Part* parts, u32 stride) {
    u32 best = NO_RANK, byte = text[0];
    for (u32 i = 0; i < size; ++i) {
        u32 next = 0, rank = NO_RANK;
        if (i + 1 < size) {
            next = text[i + 1];
            rank = w.byte_ranks[byte << 8 | next] & NO_RANK;
        }
        parts[i * stride] = make_part(rank, w.byte_ids[byte]);
        best = rank < best ? rank : best;
        byte = next;
    }
    while (best != NO_RANK) {
        // One sweep: everything moves left behind the merge, and the next best rank is found on the way.
        u32 merging = best, at = 0, lowest = NO_RANK, previous = NO_RANK;
        for (;; ++at) {
            u32 rank = rank_in(parts[at * stride]);
            if (rank == merging) break;
            lowest = min(lowest, previous);
            previous = rank;
        }
        u32 id = w.results[merging], rank = NO_RANK;
        if (at) {
            u32 before = id_in(parts[(at - 1) * stride]);
            u32 joined = rank_of(w, before, id);
            parts[(at - 1) * stride] = make_part(joined, before);
            lowest = min(lowest, joined);
        }
        if (at + 2 < size) rank = rank_of(w, id, id_in(parts[(at + 2) * stride]));
        parts[at * stride] = make_part(rank, id);
        lowest = min(lowest, rank);
        for (u32 i = at + 2; i < size; ++i) {
            Part part = parts[i * stride];
            parts[(i - 1) * stride] = part;
            lowest = min(lowest, rank_in(part));
        }
        --size;
        best = lowest;
    }
    return size;
}

#define BOUND (NO_RANK - 1)  // rank that stands for: not known yet

// The rank of a part whose right neighbour is known; those of parts that were not merged stay as they are.
LANE u32 rank_beside(const Work& w, Part part, Part next) {
    if (rank_in(part) != BOUND && rank_in(next) != BOUND) return rank_in(part);
    return rank_of(w, id_in(part), id_in(next));
}

LANE Part first_part(const Work& w, const u8* text, u32 at, u32 size) {
    u32 rank = at + 1 < size ? w.byte_ranks[(u32)text[at] << 8 | text[at + 1]] & NO_RANK : NO_RANK;
    return make_part(rank, w.byte_ids[text[at]]);
}

// Rounds: all pairs of the best rank at once, left to right where they overlap. That is the order of one at a time
// unless a merge makes a pair of a better rank than its own; then `is_odd` is set, and the CPU must do it.

// 32 parts side by side in a round: which of them take their right neighbour, and which are taken.
struct Row {
    u32 takes, taken;
};

// `equal`: parts whose pair is of the best rank; `carried`: the first part is taken by the row before. In a run of such
// parts every second one takes, from the first on; adding its first bit to a run shows where it ends.
LANE Row choose_pairs(u32 equal, u32 carried) {
    const u32 even = 0x55555555u;
    equal &= ~carried;
    u32 starts = equal & ~(equal << 1);
    u32 from_even = equal & ~(equal + (starts & even));
    u32 takes = (from_even & even) | (equal & ~from_even & ~even);
    return {takes, takes << 1 | carried};
}

// The last rounds of a warp: up to 32 parts, one a lane, which stay where they are while others go. Returns how many are
// left in `parts`.
LANE u32 merge_in_registers(const Work& w, Part* parts, u32 size, u32& odd) {
    u32 lane = threadIdx.x & 31, beyond = ~1u << lane, left = size == 32 ? FULL : (1u << size) - 1;
    Part part = lane < size ? parts[lane] : make_part(NO_RANK, 0);
    u32 id = id_in(part), rank = rank_in(part);
    for (u32 best; (best = __reduce_min_sync(FULL, rank)) != NO_RANK;) {
        u32 joined = w.results[best], rest = __ballot_sync(FULL, rank == best), takes = 0;
        while (rest) {  // left to right: of pairs that overlap the first is merged
            u32 taker = rest & (0 - rest), behind = left & (0 - (taker << 1));
            u32 taken = behind & (0 - behind);
            takes |= taker;
            left &= ~taken;
            rest &= ~(taker | taken);
        }
        if (takes >> lane & 1) id = joined;
        u32 behind = left & beyond, next = behind ? __ffs(behind) - 1 : lane;
        u32 next_id = __shfl_sync(FULL, id, next);
        if (!behind || !(left >> lane & 1)) {
            rank = NO_RANK;
        } else if ((takes >> lane | takes >> next) & 1) {
            rank = rank_of(w, id, next_id);
            odd |= rank < best;
        }
    }
    __syncwarp();
    if (left >> lane & 1) parts[__popc(left & ~beyond) - 1] = make_part(NO_RANK, id);
    __syncwarp();
    return __popc(left);
}

// One warp merges text[0, size) in `parts`. Returns how many are left.
LANE u32 merge_by_warp(const Work& w, const u8* text, u32 size, Part* parts, bool* is_odd) {
    u32 lane = threadIdx.x & 31, below = (1u << lane) - 1, lowest = NO_RANK, odd = 0;
    for (u32 i = lane; i < size; i += 32) {
        parts[i] = first_part(w, text, i, size);
        lowest = min(lowest, rank_in(parts[i]));
    }
    __syncwarp();
    while (size > 32) {
        u32 best = __reduce_min_sync(FULL, lowest), previous = NO_RANK;
        if (best == NO_RANK) break;
        u32 id = w.results[best], first = FULL, num_kept = 0;
        u32 carried = 0;  // the row's first part is taken by the row before
        lowest = NO_RANK;
        for (u32 base = 0; base < size; base += 32) {
            u32 i = base + lane;
            Part part = i < size ? parts[i] : make_part(NO_RANK, 0);
            u32 equal = __ballot_sync(FULL, rank_in(part) == best);
            if (first == FULL && !equal) {  // rows before the first merge stay, but for the rank of the last part
                lowest = min(lowest, previous);
                previous = rank_in(part);
                continue;
            }
            if (first == FULL) first = num_kept = base;
            Row row = choose_pairs(equal, carried);
            carried = row.takes >> 31;
            bool is_kept = i < size && !(row.taken >> lane & 1);
            u32 kept = __ballot_sync(FULL, is_kept);
            __syncwarp();
            if (is_kept) parts[num_kept + __popc(kept & below)] = row.takes >> lane & 1 ? make_part(BOUND, id) : part;
            num_kept += __popc(kept);
            __syncwarp();
        }
        size = num_kept;
        for (u32 base = first ? first - 32 : 0; base < size; base += 32) {
            u32 i = base + lane, rank = NO_RANK;
            Part part = i < size ? parts[i] : 0;
            if (i + 1 < size) rank = rank_beside(w, part, parts[i + 1]);
            odd |= rank < best;
            lowest = min(lowest, rank);
            __syncwarp();  // a part is read by its left neighbour before it changes
            if (i < size) parts[i] = make_part(rank, id_in(part));
        }
        __syncwarp();
    }
    if (size <= 32) size = merge_in_registers(w, parts, size, odd);
    *is_odd = __any_sync(FULL, odd);
    return size;
}

#define MOST_THREADS 512u
#define ALL 0x80000000u

// What the threads of a block share while they merge one piece.
struct Team {
    u32 sums[MOST_THREADS / 32];
    u32 runs[MOST_THREADS / 32];  // pairs to merge at the end of each warp's share; ALL: the whole share
};

// Sum of the values of all warps before this one; `total` of all.
LANE u32 sum_before(u32 value, Team& team, u32& total) {
    u32 warp = threadIdx.x >> 5, before = 0;
    __syncthreads();
    if ((threadIdx.x & 31) == 0) team.sums[warp] = value;
    __syncthreads();
    total = 0;
    for (u32 i = 0; i < blockDim.x / 32; ++i) {
        if (i < warp) before += team.sums[i];
        total += team.sums[i];
    }
    return before;
}

LANE u32 min_of_block(u32 value, Team& team) {
    value = __reduce_min_sync(FULL, value);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) team.sums[threadIdx.x >> 5] = value;
    __syncthreads();
    u32 lowest = FULL;
    for (u32 i = 0; i < blockDim.x / 32; ++i) lowest = min(lowest, team.sums[i]);
    return lowest;
}

// Is the first part of this warp's share taken by the one before it? It is after an odd number of pairs in a row.
LANE u32 is_first_taken(const Part* parts, u32 begin, u32 end, u32 best, Team& team) {
    u32 lane = threadIdx.x & 31, run = 0;
    for (u32 base = begin; base < end; base += 32) {  // from the end: lane 0 has the last part
        u32 i = base - begin + lane;
        u32 differs = ~__ballot_sync(FULL, i < end - begin && rank_in(parts[end - 1 - i]) == best);
        run += differs ? __ffs(differs) - 1 : 32;
        if (differs) break;
    }
    if (lane == 0) team.runs[threadIdx.x >> 5] = run | (run == end - begin ? ALL : 0);
    __syncthreads();
    u32 length = 0;
    for (u32 i = threadIdx.x >> 5; i-- > 0;) {
        length += team.runs[i] & ~ALL;
        if (!(team.runs[i] & ALL)) break;
    }
    return length & 1;
}

// A block's parts with the pairs of the best rank merged, from one memory to another. Returns how many are left.
LANE u32 merge_round(const Part* __restrict__ from, Part* __restrict__ to, u32 size, u32 best, u32 id, Team& team) {
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, below = (1u << lane) - 1;
    u32 share = (size + blockDim.x - 1) / blockDim.x * 32, begin = min(warp * share, size), end = min(begin + share, size);
    u32 first = is_first_taken(from, begin, end, best, team), carried = first, num_kept = 0;
#pragma unroll 4
    for (u32 base = begin; base < end; base += 32) {
        bool is_inside = base + lane < end;
        Row row = choose_pairs(__ballot_sync(FULL, is_inside && rank_in(from[base + lane]) == best), carried);
        num_kept += __popc(__ballot_sync(FULL, is_inside && !(row.taken >> lane & 1)));
        carried = row.takes >> 31;
    }
    u32 total, at = sum_before(num_kept, team, total);
    carried = first;
#pragma unroll 4
    for (u32 base = begin; base < end; base += 32) {
        bool is_inside = base + lane < end;
        Part part = is_inside ? from[base + lane] : make_part(NO_RANK, 0);
        Row row = choose_pairs(__ballot_sync(FULL, rank_in(part) == best), carried);
        bool is_kept = is_inside && !(row.taken >> lane & 1);
        u32 kept = __ballot_sync(FULL, is_kept);
        if (is_kept) to[at + __popc(kept & below)] = row.takes >> lane & 1 ? make_part(BOUND, id) : part;
        at += __popc(kept);
        carried = row.takes >> 31;
    }
    __syncthreads();
    return total;
}

// One block merges text[0, size) in from[0, size), with `to` as large. Returns how many parts are left in `from`.
LANE u32 merge_by_block(const Work& w, const u8* text, u32 size, Part* from, Part* to, Team& team, bool* is_odd) {
    u32 lowest = NO_RANK, odd = 0;
    for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
        from[i] = first_part(w, text, i, size);
        lowest = min(lowest, rank_in(from[i]));
    }
    for (u32 best = min_of_block(lowest, team); best != NO_RANK; best = min_of_block(lowest, team)) {
        size = merge_round(from, to, size, best, w.results[best], team);
        lowest = NO_RANK;
#pragma unroll 4
        for (u32 i = threadIdx.x; i < size; i += blockDim.x) {
            u32 rank = i + 1 < size ? rank_beside(w, to[i], to[i + 1]) : NO_RANK;
            odd |= rank < best;
            lowest = min(lowest, rank);
            from[i] = make_part(rank, id_in(to[i]));
        }
        __syncthreads();
    }
    *is_odd = min_of_block(odd ? 0u : 1u, team) == 0;
    return size;
}
