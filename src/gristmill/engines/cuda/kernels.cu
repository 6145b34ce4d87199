// Text to ids, a batch of documents at a time; docs/design.md says why the ids are exact.
//
//   mark_documents    where documents begin, as bits
//   summarize_tiles, join_groups, scan_groups, settle_tiles    both automata at the edges of every tile
//   encode_tiles      pieces, their ids by table, the others to a queue
//   merge_missed, merge_long_pieces, merge_longer_pieces    the queue, by merging
//   learn             what was merged, for the tables of later batches
//   sum_groups, scan_ids, place_tiles    where the ids of every tile go
//   pack              there they go, and where documents begin among them
#include "merges.h"

#ifndef KERNEL
#define KERNEL extern "C" __global__ void
#endif

// The CPU must look at documents that have a byte in these parts of the tile, 32 bytes each.
LANE void flag_parts(const Work& w, u32 tile, u32 parts) {
    atomicOr(&w.tile_flags[tile], parts);
    atomicAdd(&w.counters[NUM_FLAGGED], 1u);
}

LANE void flag_piece(const Work& w, u32 at) { flag_parts(w, at / TILE, 1u << (at % TILE >> 5)); }

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

// Bytes to the end of the piece at `at`; more than `most` where it has more.
LANE u32 piece_size(const Work& w, u32 at, u32 most) {
    u32 next = at + 1, word = next >> 5, bits = w.piece_bits[word] >> (next & 31);
    if (bits) return __ffs(bits);
    do {
        bits = w.piece_bits[++word];
    } while (!bits && (word << 5) <= at + most);
    return bits ? (word << 5) + __ffs(bits) - 1 - at : most + 1;
}

LANE void finish_missed(const Work& w, u32 item, u32 at, u32 count) {
    w.miss_ids[item] = count;
    if (count != 1) atomicAdd(&w.num_ids[at / TILE], count - 1);
}

// Looks a piece up in the phrase table; true where it is there.
LANE bool find_phrase(const Work& w, u32 item, u32 at, u32 size, bool is_whole) {
    u32 key[PHRASE_WORDS];
    load_key<PHRASE_WORDS>((const u32*)w.text, at, size, key);
    u32 value[PHRASE_WORDS];
    if (!find_key<PHRASE_WORDS>(w.phrases, w.phrase_bits, key, value)) return false;
    if ((value[0] & WHOLE_ONLY) && !is_whole) return false;
    u32 count = count_of(value[0]);
#pragma unroll
    for (u32 i = 0; i < PHRASE_IDS; ++i) {
        if (i < count) w.arena[at + i] = id_of(value, i);
    }
    finish_missed(w, item, at, count);
    w.missed[item] = at | MISSED;  // now: known already
    return true;
}

// Is this whole piece of 32 bytes a token that merging does not reach? The tables have no room for those.
LANE bool is_odd_token(const Work& w, u32 at) {
    for (u32 i = 0; i < w.num_odd_tokens; ++i) {
        u32 differs = 0;
        for (u32 j = 0; j < 8; ++j) differs |= w.odd_tokens[8 * i + j] ^ unaligned((const u32*)w.text, at + 4 * j);
        if (!differs) return true;
    }
    return false;
}

#define MERGE_THREADS 128u
#define MERGE_ITEMS 512u

// Threads take pieces in order of length, so that those side by side take equally long.
KERNEL __launch_bounds__(MERGE_THREADS) merge_missed(Work w) {
    __shared__ Part parts[SHORT_BYTES * MERGE_THREADS];
    __shared__ u32 first[SHORT_BYTES + 1];
    __shared__ u16 order[MERGE_ITEMS];
    __shared__ u8 sizes[MERGE_ITEMS];
    u32 total = min(w.counters[NUM_MISSED], w.max_missed), thread = threadIdx.x;
    for (u32 base = blockIdx.x * MERGE_ITEMS; base < total; base += gridDim.x * MERGE_ITEMS) {
        if (thread <= SHORT_BYTES) first[thread] = 0;
        __syncthreads();
        u32 size_of[MERGE_ITEMS / MERGE_THREADS], place[MERGE_ITEMS / MERGE_THREADS];
#pragma unroll
        for (u32 k = 0; k < MERGE_ITEMS / MERGE_THREADS; ++k) {
            u32 item = base + k * MERGE_THREADS + thread;
            size_of[k] = 0;
            if (item >= total) continue;
            u32 entry = w.missed[item], at = entry & ~MISSED, size = piece_size(w, at, SHORT_BYTES);
            bool is_whole = entry & MISSED;
            if (size > WORD_BYTES && size <= PHRASE_BYTES && find_phrase(w, item, at, size, is_whole)) continue;
            if (size == SHORT_BYTES && is_whole && is_odd_token(w, at)) flag_piece(w, at);
            if (size > SHORT_BYTES) {
                w.long_items[atomicAdd(&w.counters[NUM_LONG], 1u)] = item;
                continue;
            }
            size_of[k] = size;
            place[k] = atomicAdd(&first[size], 1u);
        }
        __syncthreads();
        u32 count = 0;
        if (thread == 0) {
            for (u32 i = 1; i <= SHORT_BYTES; ++i) {
                u32 here = first[i];
                first[i] = count;
                count += here;
            }
            first[0] = count;
        }
        __syncthreads();
        count = first[0];
#pragma unroll
        for (u32 k = 0; k < MERGE_ITEMS / MERGE_THREADS; ++k) {
            if (!size_of[k]) continue;
            u32 at = first[size_of[k]] + place[k];
            order[at] = (u16)(k * MERGE_THREADS + thread);
            sizes[at] = (u8)size_of[k];
        }
        __syncthreads();
        for (u32 i = thread; i < count; i += MERGE_THREADS) {
            u32 item = base + order[i], at = w.missed[item] & ~MISSED;
            u32 left = merge_short(w, w.text + at, sizes[i], parts + thread, MERGE_THREADS);
            for (u32 j = 0; j < left; ++j) w.arena[at + j] = id_in(parts[j * MERGE_THREADS + thread]);
            finish_missed(w, item, at, left);
            w.missed[item] = at;
        }
        __syncthreads();
    }
}

#define LONG_WARPS 4u

// A warp a piece; those that are too long for it go on.
KERNEL __launch_bounds__(LONG_WARPS * 32) merge_long_pieces(Work w) {
    __shared__ Part parts[LONG_WARPS][WARP_BYTES];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, total = w.counters[NUM_LONG];
    for (u32 i = blockIdx.x * LONG_WARPS + warp; i < total; i += gridDim.x * LONG_WARPS) {
        u32 item = w.long_items[i], at = w.missed[item] & ~MISSED, size = piece_size(w, at, WARP_BYTES);
        if (size > WARP_BYTES) {
            if (lane == 0) w.longer_items[atomicAdd(&w.counters[NUM_LONGER], 1u)] = item;
            continue;
        }
        bool is_odd;
        u32 left = merge_by_warp(w, w.text + at, size, parts[warp], &is_odd);
        for (u32 j = lane; j < left; j += 32) w.arena[at + j] = id_in(parts[warp][j]);
        if (lane == 0) {
            finish_missed(w, item, at, left);
            if (is_odd) flag_piece(w, at);
        }
        __syncwarp();
    }
}

// The size of a piece of any length, found by a block.
LANE u32 size_by_block(const Work& w, u32 at, Team& team) {
    u32 next = at + 1;
    for (u32 base = next >> 5;; base += blockDim.x) {
        u32 word = base + threadIdx.x, bits = word <= w.num_bytes >> 5 ? w.piece_bits[word] : 0;
        if (word == next >> 5) bits &= FULL << (next & 31);
        u32 found = min_of_block(bits ? (word << 5) + __ffs(bits) - 1 : FULL, team);
        if (found != FULL) return found - at;
    }
}

// A block a piece, in shared memory or in as much other memory as the piece is long.
KERNEL __launch_bounds__(MOST_THREADS) merge_longer_pieces(Work w) {
    __shared__ Part parts[2][BLOCK_BYTES];
    __shared__ Team team;
    for (u32 i = blockIdx.x; i < w.counters[NUM_LONGER]; i += gridDim.x) {
        u32 item = w.longer_items[i], at = w.missed[item] & ~MISSED, size = size_by_block(w, at, team);
        Part* scratch = (Part*)w.scratch;
        Part* from = size <= BLOCK_BYTES ? parts[0] : scratch + at;
        Part* to = size <= BLOCK_BYTES ? parts[1] : scratch + w.num_bytes + at;
        bool is_odd;
        u32 left = merge_by_block(w, w.text + at, size, from, to, team, &is_odd);
        for (u32 j = threadIdx.x; j < left; j += blockDim.x) w.arena[at + j] = id_in(from[j]);
        if (threadIdx.x == 0) {
            finish_missed(w, item, at, left);
            if (is_odd) flag_piece(w, at);
        }
        __syncthreads();
    }
}

// Bits of the hashes of missed pieces: a piece is learned when it is met a second time.
LANE bool was_seen(const Work& w, u32 hash) {
    u32 bit = 1u << (hash & 31);
    return atomicOr(&w.seen[hash >> 14], bit) & bit;
}

KERNEL learn(Work w) {
    u32 total = min(w.counters[NUM_MISSED], w.max_missed);
    bool has_words = w.learned[0] < w.max_words, has_phrases = w.learned[1] < w.max_phrases;  // room for more
    if (!has_words && !has_phrases) return;
    for (u32 item = blockIdx.x * blockDim.x + threadIdx.x; item < total; item += gridDim.x * blockDim.x) {
        u32 at = w.missed[item], count = w.miss_ids[item];
        if (at & MISSED || count > PHRASE_IDS) continue;
        u32 size = piece_size(w, at, SHORT_BYTES);
        const u32* ids = w.arena + at;
        if (size <= WORD_BYTES && count <= WORD_IDS && has_words) {
            u32 key[WORD_WORDS];
            load_key<WORD_WORDS>((const u32*)w.text, at, size, key);
            if (!was_seen(w, hash_key<WORD_WORDS>(key, 1))) continue;
            insert_key<WORD_WORDS>(w.words, w.word_bits, key, ids, count, &w.learned[0]);
        } else if (size > WORD_BYTES && size <= PHRASE_BYTES && has_phrases) {
            u32 key[PHRASE_WORDS];
            load_key<PHRASE_WORDS>((const u32*)w.text, at, size, key);
            if (!was_seen(w, hash_key<PHRASE_WORDS>(key, 1))) continue;
            insert_key<PHRASE_WORDS>(w.phrases, w.phrase_bits, key, ids, count, &w.learned[1]);
        }
    }
}

KERNEL sum_groups(Work w) {
    u32 lane = threadIdx.x & 31, group = (blockIdx.x * blockDim.x + threadIdx.x) >> 5, sum = 0;
    if (group * GROUP >= w.num_tiles) return;
    u32 end = min((group + 1) * GROUP, w.num_tiles);
    for (u32 tile = group * GROUP + lane; tile < end; tile += 32) sum += w.num_ids[tile];
    sum = __reduce_add_sync(FULL, sum);
    if (lane == 0) w.group_ids[group] = sum;
}

// Replaces items [begin, end) by the sums of what is before each, beginning with `sum`; returns the sum of all.
LANE u32 scan_items(const u32* from, u32* to, u32 begin, u32 end, u32 sum) {
    u32 lane = threadIdx.x & 31;
    for (u32 base = begin; base < end; base += 32) {
        u32 own = base + lane < end ? from[base + lane] : 0, upto = own;
        for (u32 step = 1; step < 32; step <<= 1) {
            u32 other = __shfl_up_sync(FULL, upto, step);
            if (lane >= step) upto += other;
        }
        if (base + lane < end) to[base + lane] = sum + upto - own;
        sum += __shfl_sync(FULL, upto, 31);
    }
    return sum;
}

// One warp.
KERNEL scan_ids(Work w) {
    u32 total = scan_items(w.group_ids, w.group_ids, 0, (w.num_tiles + GROUP - 1) / GROUP, 0);
    if (threadIdx.x == 0) w.counters[NUM_TOKENS] = total;
}

KERNEL place_tiles(Work w) {
    u32 group = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (group * GROUP >= w.num_tiles) return;
    scan_items(w.num_ids, w.id_offset, group * GROUP, min((group + 1) * GROUP, w.num_tiles), w.group_ids[group]);
}

// A warp writes the ids of a tile where they belong.
KERNEL __launch_bounds__(256) pack(Work w) {
    u32 lane = threadIdx.x & 31, tile = (blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    if (tile >= w.num_tiles) return;
    u32 num_staged = w.staged[tile], at = w.id_offset[tile], miss = w.miss_base[tile], doc = w.first_doc[tile];
    const u32* stage = w.stage + (u64)tile * STAGE;
    Id* out = (Id*)w.out;
    u32 below = (1u << lane) - 1, next = lane < num_staged ? stage[lane] : 0;
    for (u32 base = 0; base < num_staged; base += 32) {
        bool is_active = base + lane < num_staged;
        u32 entry = next;
        next = base + 32 + lane < num_staged ? stage[base + 32 + lane] : 0;
        if (!__any_sync(FULL, entry & (MISSED | FIRST))) {
            if (is_active) out[at + lane] = (Id)entry;
            at += min(32u, num_staged - base);
            continue;
        }
        bool is_missed = entry & MISSED, is_first = entry & FIRST;
        u32 misses = __ballot_sync(FULL, is_missed), firsts = __ballot_sync(FULL, is_first);
        u32 item = miss + __popc(misses & below);
        bool is_queued = is_missed && item < w.max_missed;
        u32 count = is_queued ? w.miss_ids[item] : is_active ? 1 : 0, sum = count;
#pragma unroll
        for (u32 step = 1; step < 32; step <<= 1) {
            u32 other = __shfl_up_sync(FULL, sum, step);
            if (lane >= step) sum += other;
        }
        u32 to = at + sum - count;
        if (is_first) w.doc_ids[doc + __popc(firsts & below)] = to;
        if (is_active && !is_missed) out[to] = (Id)(entry & ID_MASK);
        if (is_queued) {
            const u32* ids = w.arena + (w.missed[item] & ~MISSED);
            for (u32 i = 0; i < count; ++i) out[to + i] = (Id)ids[i];
        }
        doc += __popc(firsts);
        miss += __popc(misses);
        at += __shfl_sync(FULL, sum, 31);
    }
}
