// Running text of a model of characters -> ids, where most characters stand for themselves: Chinese, Japanese, Korean.
#pragma once
#include <cstdint>
#include <string_view>

#include "encoder_pieces.hpp"
#include "model.hpp"
#include "write_buffer.hpp"

namespace gristmill {

// Writes the symbol of every character as if nothing joined it, notes the places that a token may lie across, then merges at
// those alone. Nothing is cut, hashed or remembered, but for parts of many symbols.
class CharacterEncoder {
public:
    // parts: takes what has many symbols; nothing waits in it meanwhile.
    CharacterEncoder(const Model& model, PieceEncoder& parts) : model_(model), table_(model.characters()), parts_(parts) {}

    // Is text Chinese, Japanese or Korean for the most part? A guess from its first bytes, for as many as kStep. Other scripts are
    // made of words, which had better be remembered.
    static bool is_dense(std::string_view text);
    static constexpr size_t kLookedAt = 128, kStep = 512;
    // The first place from `at` on, between two characters, that no token lies across; or the end.
    size_t cut_from(std::string_view text, size_t at) const;
    // Appends the ids of a text that no token reaches out of.
    void encode(std::string_view text, IdBuffer& out);

private:
    // A place that a token may lie across: the number of the symbol before it, and where the character behind it begins.
    struct Joint {
        uint32_t symbol, offset;
    };
    // So many symbols of text, which ends at a cut and has these joints.
    struct Block {
        size_t num_bytes, num_symbols, num_joints;
    };
    static constexpr size_t kBlock = 1024;      // bytes: symbols and joints stay in L1
    static constexpr size_t kSlack = 8;         // symbols that may be written beyond the last, to be written over

    struct Character {
        uint32_t number, entry, length;
    };
    Character character_at(const uint8_t* p) const;
    uint32_t* write_other(const uint8_t* p, const Character& character, uint32_t* out) const;
    template <bool kJoinsOften>
    Block write_symbols(std::string_view text, uint32_t* symbols);
    uint32_t* merge_joints(std::string_view text, const Block& block, uint32_t* out);

    const Model& model_;
    const CharacterTable& table_;
    PieceEncoder& parts_;
    Joint joints_[kBlock + 4];
    uint32_t symbols_[kBlock + 4 + kSlack], places_[kBlock + 4];
};

}  // namespace gristmill
