// One tile: its pieces, their ids by table, the others to a queue.
#pragma once
#include "states.h"

// What one warp needs of shared memory.
struct alignas(16) Room {
    u32 text[264];  // 16 bytes before the tile (the last 4 are there), 1024 of it, 16 behind (the first 4)
    u32 classes[256];
    u16 list[1008];
};

// What a lane knows of its 32 bytes once they have been read.
struct Chunk {
    u32 text[8];
    u32 classes[8];
    u32 docs;
    u32 continuation;
    u32 cuts;
};

LANE void load_chunk(const Work& w, Room& room, u32 tile, u32 lane, Chunk& c) {
    const u8* from = w.text + (u64)tile * TILE + lane * 32;
    uint4 low = *(const uint4*)from, high = *(const uint4*)(from + 16);
    *(uint4*)(room.text + 4 + lane * 8) = low;
    *(uint4*)(room.text + 8 + lane * 8) = high;
    if (lane == 0) room.text[3] = *(const u32*)(from - 4);
    if (lane == 31) room.text[260] = *(const u32*)(from + 32);
    c.text[0] = low.x, c.text[1] = low.y, c.text[2] = low.z, c.text[3] = low.w;
    c.text[4] = high.x, c.text[5] = high.y, c.text[6] = high.z, c.text[7] = high.w;
    c.docs = w.doc_bits[tile * TILE_WORDS + lane];
    c.continuation = c.cuts = 0;
    __syncwarp();
}

// Bytes inside a character that begins before the tile.
LANE u32 carried(u32 before) {
    u32 third = before >> 8 & 255, second = before >> 16 & 255, first = before >> 24;
    u32 bytes = first >= 0xF0 ? 7 : first >= 0xE0 ? 3 : first >= 0xC0 ? 1 : 0;
    bytes |= second >= 0xF0 ? 3 : second >= 0xE0 ? 1 : 0;
    return bytes | (third >= 0xF0 ? 1 : 0);
}

// Classes of all bytes; true where the CPU must look at the document.
LANE bool classify(const Work& w, const Automata& a, Room& room, u32 lane, Chunk& c) {
    u32 high = 0, flags = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        u32 word = c.text[i];
        high |= word & 0x80808080u;
        c.classes[i] = (u32)a.byte_class[word & 255] | (u32)a.byte_class[word >> 8 & 255] << 8 |
                       (u32)a.byte_class[word >> 16 & 255] << 16 | (u32)a.byte_class[word >> 24] << 24;
        flags |= c.classes[i] & 0x80808080u;
    }
    bool is_flagged = false;
    if (flags) {
        for (u32 at = 16 + lane * 32; at < 48 + lane * 32; ++at) {
            if (a.byte_class[unaligned(room.text, at) & 255] & FLAG_BIT) is_flagged |= may_be_added(w, room.text, at);
        }
    }
    if (!__any_sync(FULL, high)) return is_flagged;
    u64 expected = 0;
    if (high) {
        u32* classes = room.classes + lane * 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) classes[i] = c.classes[i];
        Wide found = find_wide(w, room.text, c.text, 16 + lane * 32, (u8*)classes);
#pragma unroll
        for (int i = 0; i < 8; ++i) c.classes[i] = classes[i];
        c.continuation = found.continuation;
        c.cuts = found.cuts;
        expected = found.expected;
        is_flagged |= found.is_flagged;
    }
    u32 from_left = __shfl_up_sync(FULL, (u32)(expected >> 32), 1);
    u32 inside = (u32)expected | (lane ? from_left : carried(room.text[3]));
    return is_flagged || inside != c.continuation || (inside & c.docs);
}

// The states before the first and behind the last byte of the lane. Eight bytes mostly decide; where they do not
// for some lane, whole lanes are joined.
LANE void find_states(const Work& w, const Automata& a, Room& room, u32 tile, u32 lane, const Chunk& c, u32& forward, u32& backward) {
    u32 before[2] = {__shfl_up_sync(FULL, c.classes[6], 1), __shfl_up_sync(FULL, c.classes[7], 1)};
    u32 behind[2] = {__shfl_down_sync(FULL, c.classes[0], 1), __shfl_down_sync(FULL, c.classes[1], 1)};
    u32 docs_before = __shfl_up_sync(FULL, c.docs, 1) >> 24, docs_behind = __shfl_down_sync(FULL, c.docs, 1);
    u32 left = lane ? forward_of_eight(a, before, docs_before) : (u32)w.forward_tile[tile];
    u32 right = lane < 31 ? backward_of_eight(a, behind, docs_behind) : (u32)w.backward_tile[tile];
    u32 left_value = w.forward_value[left], right_value = w.backward_value[right];
    if (!__all_sync(FULL, (!lane || (left_value & CONSTANT)) && (lane == 31 || (right_value & CONSTANT)))) {
        u32* classes = room.classes + lane * 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) classes[i] = c.classes[i];
        u32 own_forward = forward_of(a, classes, c.docs, 32), own_backward = backward_of(a, classes, c.docs, 32);
        if (lane == 0) own_forward = join_forward(w, left, own_forward);
        if (lane == 31) own_backward = join_backward(w, right, own_backward);
        join_lanes(w, lane, own_forward, own_backward);
        u32 from_left = __shfl_up_sync(FULL, own_forward, 1), from_right = __shfl_down_sync(FULL, own_backward, 1);
        if (lane) left_value = w.forward_value[from_left];
        if (lane < 31) right_value = w.backward_value[from_right];
    }
    forward = left_value & 31;
    backward = right_value & 31;
}

// No token has two spaces side by side: then long runs of them may be cut anywhere.
LANE u32 cut_spaces(const Room& room, u32 lane) {
    u32 spaces = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        u32 other = room.text[4 + lane * 8 + i] ^ 0x20202020u;
        spaces |= gather_bits(~(((other & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | other)) << 4 * i;
    }
    u32 before = __shfl_up_sync(FULL, spaces, 1) >> 31;
    if (lane == 0) before = room.text[3] >> 24 == ' ';  // the tile before must see the same cut
    return spaces & (spaces << 1 | before) & 0x11111111u;
}

// Starts of pieces, in order, into the list; behind the tile's own stands where the last one ends, or NONE. Returns
// how many there are.
LANE u32 list_pieces(const Work& w, Room& room, u32 tile, u32 lane, u32 pieces) {
    u32 begin = tile * TILE + lane * 32;
    u32 inside = begin >= w.num_bytes ? 0 : w.num_bytes - begin >= 32 ? FULL : (1u << (w.num_bytes - begin)) - 1;
    u32 listed = pieces & (inside | inside << 1 | (begin <= w.num_bytes ? 1u : 0u));
    if (lane == 31) listed &= 0u - listed;
    u32 count = __popc(listed), sum = count;
#pragma unroll
    for (u32 step = 1; step < 32; step <<= 1) {
        u32 other = __shfl_up_sync(FULL, sum, step);
        if (lane >= step) sum += other;
    }
    u32 at = sum - count, total = __shfl_sync(FULL, sum, 31);
    u32 own = __reduce_add_sync(FULL, lane < 31 ? __popc(listed & inside) : 0);
    for (u32 rest = listed; rest; rest &= rest - 1) room.list[at++] = (u16)(lane * 32 + __ffs(rest) - 1);
    if (lane == 0 && total == own) room.list[own] = NONE;
    __syncwarp();
    return own;
}

// Bit `at` of what the lanes of the warp hold, 32 bits each.
LANE bool bit_of_tile(u32 bits, u32 at) { return __shfl_sync(FULL, bits, at >> 5 & 31) >> (at & 31) & 1; }

// Ids of the listed pieces to the stage, those in no table to the queue.
LANE void look_up(const Work& w, Room& room, u32 tile, u32 lane, u32 num_pieces, u32 docs, u32 pattern) {
    u32* stage = w.stage + (u64)tile * STAGE;
    u32 num_staged = 0, num_missed = 0, below = (1u << lane) - 1;
    for (u32 base = 0; base < num_pieces; base += 32) {
        u32 k = base + lane;
        bool is_active = k < num_pieces;
        u32 at = is_active ? room.list[k] : 0, length = is_active ? room.list[k + 1] - at : FULL;
        u32 value[WORD_WORDS];
        bool is_found = false;
        if (length <= WORD_BYTES) {
            u32 key[WORD_WORDS];
            load_key<WORD_WORDS>(room.text, 16 + at, length, key);
            is_found = find_key<WORD_WORDS>(w.words, w.word_bits, key, value);
        }
        u32 header = is_found ? value[0] : 0;
        bool is_whole = false;
        if (w.has_whole_only && __any_sync(FULL, is_active && (!is_found || (header & WHOLE_ONLY)))) {
            bool begins = bit_of_tile(pattern, at), ends = bit_of_tile(pattern, length <= SHORT_BYTES ? at + length : at);
            is_whole = begins && ends && length <= SHORT_BYTES;
            if ((header & WHOLE_ONLY) && !is_whole) is_found = false;
        }
        bool is_missed = is_active && !is_found;
        u32 first = bit_of_tile(docs, at) ? FIRST : 0;
        u32 num_ids = is_found ? count_of(header) : is_active ? 1 : 0;
        u32 slot = num_staged + lane, total = min(32u, num_pieces - base);
        if (__any_sync(FULL, num_ids > 1)) {
            u32 sum = num_ids;
#pragma unroll
            for (u32 step = 1; step < 32; step <<= 1) {
                u32 other = __shfl_up_sync(FULL, sum, step);
                if (lane >= step) sum += other;
            }
            slot = num_staged + sum - num_ids;
            total = __shfl_sync(FULL, sum, 31);
#pragma unroll
            for (u32 i = 1; i < WORD_IDS; ++i) {
                if (i < num_ids) stage[slot + i] = id_of(value, i);
            }
        }
        if (is_active) stage[slot] = first | (is_missed ? MISSED : header & ID_MASK);
        num_staged += total;
        u32 misses = __ballot_sync(FULL, is_missed);
        if (is_missed) room.list[num_missed + __popc(misses & below)] = (u16)(at | (is_whole ? 0x8000u : 0));
        num_missed += __popc(misses);
        __syncwarp();
    }
    u32 queue = 0;
    if (lane == 0) {
        if (num_missed) queue = atomicAdd(&w.counters[NUM_MISSED], num_missed);
        w.staged[tile] = num_staged;
        w.num_ids[tile] = num_staged;
        w.miss_base[tile] = queue;
    }
    queue = __shfl_sync(FULL, queue, 0);
    if (lane == 0 && num_missed && queue + num_missed > w.max_missed) flag_parts(w, tile, FULL);
    for (u32 i = lane; i < num_missed; i += 32) {
        u32 entry = room.list[i];
        if (queue + i < w.max_missed) w.missed[queue + i] = (tile * TILE + (entry & 0x7FFF)) | (entry & 0x8000 ? MISSED : 0);
    }
    __syncwarp();
}

LANE void encode_tile(const Work& w, const Automata& a, Room& room, u32 tile, u32 lane) {
    Chunk c;
    load_chunk(w, room, tile, lane, c);
    bool is_flagged = classify(w, a, room, lane, c);
    u32 flagged = __ballot_sync(FULL, is_flagged);
    if (flagged && lane == 0) flag_parts(w, tile, flagged);
    u32 forward, backward;
    find_states(w, a, room, tile, lane, c, forward, backward);
    u32 pattern = find_pieces(a, c.classes, c.docs, forward, backward);
    pattern = (pattern & ~c.continuation) | c.docs;
    u32 pieces = pattern | c.cuts;
    if (w.space_cut) pieces |= cut_spaces(room, lane);
    if (lane < 31) w.piece_bits[tile * TILE_WORDS + lane] = pieces;
    u32 num_pieces = list_pieces(w, room, tile, lane, pieces);
    look_up(w, room, tile, lane, num_pieces, c.docs, pattern);
}

template <class T>
LANE void copy_table(T* to, const T* from, u32 count) {
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
}

KERNEL __launch_bounds__(WARPS * 32, MIN_BLOCKS) encode_tiles(Work w) {
    __shared__ Automata a;
    __shared__ Room rooms[WARPS];
    copy_table(a.byte_class, w.byte_class, 256);
    copy_table(a.forward_step, w.forward_step, NUM_FORWARD << CLASS_BITS);
    copy_table(a.backward_step, w.backward_step, NUM_BACKWARD << CLASS_BITS);
    copy_table(a.forward_extend, w.forward_extend, NUM_FORWARD_ELEMENTS << CLASS_BITS);
    copy_table(a.backward_extend, w.backward_extend, NUM_BACKWARD_ELEMENTS << CLASS_BITS);
    __syncthreads();
    u32 warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    for (u32 tile = blockIdx.x * WARPS + warp; tile < w.num_tiles; tile += gridDim.x * WARPS) {
        encode_tile(w, a, rooms[warp], tile, lane);
    }
}
