// Text to ids, a batch of documents at a time; docs/design.md says why the ids are exact.
//
//   clear             what the last batch has left
//   mark_documents    where documents begin, as bits
//   summarize_tiles, join_groups, scan_groups, settle_tiles    both automata at the edges of every tile
//   encode_tiles      pieces, their ids by table, the others to a queue
//   merge_missed, merge_long_pieces    the queue, by merging
//   merge_sections, join_sections, merge_longer_pieces    what of it is too long for one warp
//   learn             what was merged, for the tables of later batches
//   sum_groups, scan_ids, place_tiles    where the ids of every tile go
//   pack, place_sections    there they go, and where documents begin among them
#include "longer.h"

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
            cut_in_sections(w, item, size_by_warp(w, at));
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
    u32 below = (1u << lane) - 1, next = lane < num_staged ? stage[lane] : 0;
    for (u32 base = 0; base < num_staged; base += 32) {
        bool is_active = base + lane < num_staged;
        u32 entry = next;
        next = base + 32 + lane < num_staged ? stage[base + 32 + lane] : 0;
        if (!__any_sync(FULL, entry & (MISSED | FIRST))) {
            if (is_active) store_id(w, at + lane, entry);
            at += min(32u, num_staged - base);
            continue;
        }
        bool is_missed = entry & MISSED, is_first = entry & FIRST;
        u32 misses = __ballot_sync(FULL, is_missed), firsts = __ballot_sync(FULL, is_first);
        u32 item = miss + __popc(misses & below);
        bool is_queued = is_missed && item < w.max_missed;
        u32 count = is_queued ? w.miss_ids[item] : is_active ? 1 : 0;
        bool is_longer = count & IN_SECTIONS;
        count &= ~IN_SECTIONS;
        u32 sum = count;
#pragma unroll
        for (u32 step = 1; step < 32; step <<= 1) {
            u32 other = __shfl_up_sync(FULL, sum, step);
            if (lane >= step) sum += other;
        }
        u32 to = at + sum - count;
        if (is_first) w.doc_ids[doc + __popc(firsts & below)] = to;
        if (is_active && !is_missed) store_id(w, to, entry & ID_MASK);
        if (is_queued) {
            u32* ids = w.arena + (w.missed[item] & ~MISSED);
            if (is_longer) ids[0] = to;
            for (u32 i = 0; i < (is_longer ? 0 : count); ++i) store_id(w, to + i, ids[i]);
        }
        doc += __popc(firsts);
        miss += __popc(misses);
        at += __shfl_sync(FULL, sum, 31);
    }
}
