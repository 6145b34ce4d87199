// Running Chinese and Japanese of models with a pre-tokenizer -> ids: most characters stand for themselves there.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "encoder_pieces.hpp"
#include "memory.hpp"
#include "model.hpp"
#include "write_buffer.hpp"

namespace gristmill {

// Writes the ids of every character as if nothing joined it, and notes the places inside pieces that a token may lie across. Only
// what meets there is merged, here or by the encoder of parts. Other pieces are not looked up.
class DenseEncoder {
public:
    // parts: nothing waits in it meanwhile.
    DenseEncoder(const Model& model, PieceEncoder& parts) : model_(model), parts_(parts) {}

    static bool is_for(const Model& model) { return model.symbols() == Symbols::bytes && !model.drops_bytes(); }
    // Is text Chinese or Japanese for the most part? A guess that changes no id; other scripts are made of words, which had
    // better be remembered whole.
    static bool is_dense(const uint8_t* text, size_t size);
    static constexpr size_t kMostBytes = 12 << 10;  // of text at a time
    // Marks ends of pieces in a text of this size, kMostBytes at most, which begins and ends with a piece.
    void start_marking(size_t size);
    void mark_ends(const uint32_t* ends, size_t count);
    // Appends the ids of that text, of which `readable` bytes may be read.
    void encode(const uint8_t* text, size_t size, size_t readable, IdBuffer& out);

    size_t memory_bytes() const;

private:
    // What there is to know of a character by itself.
    struct Character {
        uint32_t ids[3];
        uint32_t known;  // how many ids, kOdd, and what JoinFilter has of it before (behind) a place; 0: not looked at yet
    };
    static_assert(sizeof(Character) == 16);
    static constexpr uint32_t kCount = 3, kOdd = 4;
    static constexpr unsigned kBefore = 32 - 2 * JoinFilter::kNumBits, kBehind = 32 - JoinFilter::kNumBits;
    // A place that a token may lie across: where the character behind it is, and the number of its first id. Or the start of a
    // piece that is odd.
    struct Joint {
        uint32_t at;
        uint32_t id : 26;
        uint32_t num_before : 2, num_behind : 2;  // ids of the two characters
        uint32_t is_close : 1;                    // a token may begin or end inside one of them
        uint32_t is_odd : 1;
    };
    // Characters that joints join, the text and the ids that they have without.
    struct Run {
        uint32_t begin, end, first_id, last_id;
        bool is_whole_only;   // tokens that lie across two of them have both whole: what is merged is characters
        bool is_merged_here;  // or by the encoder of parts
    };
    static constexpr uint32_t kNumbered = 0x10000;  // characters of up to three bytes
    static constexpr size_t kSlack = 16;            // ids that may be read and written beyond the last

    void write_lone(const uint8_t* text, size_t size);
    size_t leave_odd_piece(const uint8_t* text, size_t at, size_t num_ids);
    uint32_t look_at(uint32_t code_point, const uint8_t* character, size_t length);
    size_t merge_alone(const uint8_t* bytes, size_t length, uint32_t* ids) const;
    const Character& character_before(const uint8_t* at) const;
    bool is_false(const Joint& joint, const uint8_t* text, size_t size) const;
    void find_runs(const uint8_t* text, size_t size);
    void look_up_runs(const uint8_t* text, size_t readable);
    uint32_t* write_runs(uint32_t* out) const;

    const Model& model_;
    PieceEncoder& parts_;
    RoomyArray<Character> characters_{0};  // by number; empty until a text comes
    std::vector<uint8_t> is_end_;          // by place in the text
    std::vector<uint32_t> lone_ids_;
    std::vector<Joint> joints_;
    std::vector<Run> runs_;
    size_t num_ids_ = 0, num_joints_ = 0, num_runs_ = 0;
    IdBuffer part_ids_;
    std::vector<int64_t> part_sizes_;  // of the runs that the encoder of parts has
    std::vector<uint32_t> places_;     // of the pairs in the others, as merge_few wants them
};

}  // namespace gristmill
