// What all kernels share: types, sizes, and the one struct of pointers that each of them gets.
// Compiled by NVRTC for the device, and by the emulator of native/emulator for the processor.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define LANE __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#endif

// Sizes of the automata; the driver sets them to what the tokenizer needs, the emulator keeps the largest.
#ifndef CLASS_BITS
#define CLASS_BITS 5
#endif
#ifndef NUM_FORWARD
#define NUM_FORWARD 27
#endif
#ifndef NUM_BACKWARD
#define NUM_BACKWARD 32
#endif
#ifndef NUM_FORWARD_ELEMENTS
#define NUM_FORWARD_ELEMENTS 256
#endif
#ifndef NUM_BACKWARD_ELEMENTS
#define NUM_BACKWARD_ELEMENTS 256
#endif
// 1: ids and ranks fit 16 bits.
#ifndef NARROW
#define NARROW 0
#endif

#if NARROW
typedef u16 Id;
typedef u32 Part;  // rank << 16 | id
#define PART_BITS 16
#define NO_RANK 0xFFFFu
#else
typedef u32 Id;
typedef u64 Part;  // rank << 32 | id
#define PART_BITS 32
#define NO_RANK 0x3FFFFFu
#endif
#define PART_ID ((Part)((1ull << PART_BITS) - 1))

#define FULL 0xFFFFFFFFu
#define IDENTITY ((1u << CLASS_BITS) - 1)  // class of a continuation byte: it changes no state
#define RESET (IDENTITY - 1)               // class of the start of a document
#define CLASS_MASK IDENTITY
#define MARK_BIT 0x40u  // class byte: a combining mark, which must not stand beside another
#define FLAG_BIT 0x80u  // class byte: the CPU must look at the document, or an added token may begin
#define CONSTANT 0x80u  // value of an element: it leads to one state, whatever came before

// A warp does one tile: 31 lanes of 32 bytes own the pieces that begin in them, lane 31 reads on to see pieces end.
#define TILE 992u
#define TILE_WORDS 31u
#define STAGE 1008u  // ids of a tile that pieces of up to 15 bytes have
#define NONE 0x7FFFu
#define WARPS 8u  // per block of the kernel that does tiles
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 4  // of it that should fit a processor
#endif

#define MISSED 0x80000000u  // staged: an entry of the miss queue stands here; queued: the piece is whole
#define FIRST 0x40000000u   // staged: a document begins here
#define IN_SECTIONS 0x80000000u  // number of ids of a missed piece: they are with its sections
#define UNJOINED 0x80000000u     // size of a longer piece: its sections share no token somewhere
#define ID_MASK 0x1FFFFFu

#define WORD_BYTES 15u    // longest key of the word table
#define PHRASE_BYTES 31u  // longest key of the phrase table
#define SHORT_BYTES 32u   // longest piece a single thread merges
#define WARP_BYTES 256u   // longest piece a warp merges
#define BLOCK_BYTES 2048u  // longest piece a block merges in shared memory
#define SECTION_BYTES 512u  // longer pieces are merged in sections of so many bytes, of which the last may have more,
#define LAST_BYTES 640u
#define SECTION_STEP 384u   // each of which begins so far behind the one before: what runs of one character repeat by divides it
#define GROUP 1024u       // tiles that a warp scans

#define MORE 0x80000000u        // word header: keys that belong here lie elsewhere
#define WHOLE_ONLY 0x10000000u  // word header: counts for a whole piece, not for a part of one
#define CUT_BITS 23
#define UNCUT 9u  // bytes without a cut after which it is looked for harder

#define NUM_MISSED 0
#define NUM_LONG 1
#define NUM_LONGER 2
#define NUM_TOKENS 3
#define NUM_FLAGGED 4
#define NUM_SECTIONS 5
#define NUM_COUNTERS 16u  // a block can clear them
#define BEHIND 4096u  // bytes of zeros behind the text, which tiles read

struct Work {
    // The tokenizer.
    u8* byte_class;
    u16* class_page;
    u8* class_of;
    u32* prefixes;
    u8* forward_step;
    u32* backward_step;
    u8* forward_extend;
    u8* backward_extend;
    u8* forward_join;
    u8* backward_join;
    u8* forward_value;
    u8* backward_value;
    u32* cut_pairs;
    u32* cut_windows;
    u32* cut_contexts;
    u8* cut_near;
    u64* pairs;
    u32* byte_ranks;
    u32* results;
    u32* byte_ids;
    u16* token_bytes;
    u32* words;
    u32* phrases;
    u32* seen;
    u32* learned;
    u32* odd_tokens;
    // The batch.
    u8* text;
    u32* starts;
    u32* doc_bits;
    u32* first_doc;
    u8* forward_tile;
    u8* backward_tile;
    u8* forward_group;
    u8* backward_group;
    u32* piece_bits;
    u32* stage;
    u32* staged;
    u32* num_ids;
    u32* id_offset;
    u32* group_ids;
    u32* miss_base;
    u32* missed;
    u32* miss_ids;
    u32* long_items;
    u32* longer_items;
    u32* longer_bytes;
    u32* longer_section;
    u32* section_piece;
    u32* section_from;
    u32* section_ids;
    u32* arena;
    u64* scratch;
    u32* tile_flags;
    u32* counters;
    u8* out;
    u8* out_high;
    u32* doc_ids;
    // Numbers.
    u32 num_prefixes;
    u32 num_tokens;
    u32 pair_mask;
    u32 word_bits;
    u32 phrase_bits;
    u32 max_words;
    u32 max_phrases;
    u32 space_cut;
    u32 has_whole_only;
    u32 num_odd_tokens;
    u32 num_docs;
    u32 num_bytes;
    u32 num_tiles;
    u32 max_missed;
    u32 is_learning;
};
