// Documents -> ids. `Program` is a compiled tokenizer, shared and constant; `Encoder` is one thread's state.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens.hpp"
#include "id_buffer.hpp"
#include "merge.hpp"
#include "model.hpp"
#include "normalize.hpp"
#include "piece_table.hpp"
#include "split.hpp"

namespace gristmill {

// A space put before a stretch of text between added tokens.
struct Prefix {
    enum class Where : uint8_t { nowhere, first, always } where = Where::nowhere;
    bool unless_present = false;
    bool before_normalized_tokens = false;  // before or after added tokens are looked for in normalised text
};

// A text of 4 GB or more, as given or once normalised: offsets inside a document are 32 bits.
struct TextTooLarge : std::exception {};

struct Program {
    std::shared_ptr<const Model> model;
    Form form = Form::none;
    bool spaces_as_marks = false;  // U+2581 in text means the same as a space
    Prefix prefix;
    std::unique_ptr<Transducer> transducer;  // null: the chain of plain splitters runs
    std::vector<PlainSplitter> chain;
    std::unique_ptr<AddedTokens> raw_tokens, normalized_tokens;
};

// Cuts text where two neighbouring characters stand side by side in no token, at least one of them not a letter or
// digit: exact for a model without pre-tokenizer (coverage cuts), and it makes words of running text.
std::unique_ptr<Transducer> word_transducer(const Model& model);

class Encoder {
public:
    Encoder(const Program& program, size_t cache_bytes);

    // Appends the ids of one document (valid UTF-8).
    void encode(std::string_view document, SpecialPolicy policy, IdBuffer& out);

    size_t memory_bytes() const;
    // Gives back what a huge document needed.
    void shrink();

private:
    // A stretch without raw added tokens: normalise, look for normalised added tokens, split, look up.
    void encode_raw_stretch(std::string_view text, bool is_first, SpecialPolicy policy, IdBuffer& out);
    void encode_stretch(std::string_view text, bool is_first, IdBuffer& out);
    void encode_by_transducer(std::string_view text, IdBuffer& out);
    void encode_by_chain(std::string_view text, IdBuffer& out);
    std::string_view normalized(std::string_view text);
    std::string_view prefixed(std::string_view text);

    // Pieces of text, the first from `start`; `size` bytes are readable at text.
    uint32_t* look_up_pieces(const uint8_t* text, size_t size, uint32_t start, const uint32_t* ends, size_t count,
                             uint32_t* out);
    void hash_batch(const uint8_t* text, size_t size, size_t batch);
    uint32_t* write_batch(const uint8_t* text, size_t size, size_t batch, uint32_t* out);
    // Enters the pieces of a batch that are not in the table yet, as far as they can be merged side by side.
    void learn(const uint8_t* text, size_t batch, size_t num_missing);
    // Slots of the batch from there on, after the table has moved.
    void find_again(size_t from, size_t batch);
    uint32_t* write_slot(const ShortSlot& slot, uint32_t* out) const;
    // One piece, whole; `readable` bytes may be read from its start on. Returns the end of what was written.
    uint32_t* encode_short(std::string_view piece, size_t readable, const ShortKey& key, uint64_t hash, uint32_t* out);
    uint32_t* encode_long(std::string_view piece, size_t readable, uint64_t hash, uint32_t* out);
    uint32_t* encode_by_cuts(std::string_view piece, size_t readable, uint32_t* out);
    // A stretch inside a piece that merges cannot leave.
    struct Part {
        std::string_view text;
        ShortKey plain, key;
        uint64_t hash;
    };
    Part part_of(std::string_view text, size_t readable) const;
    uint32_t* encode_part(const Part& part, uint32_t* out);
    uint32_t* merge(std::string_view part, uint32_t* out);
    // Pieces with bytes that have no token: they are taken out before merging.
    bool has_dropped_bytes(std::string_view piece) const;
    uint32_t* encode_without_dropped(std::string_view piece, uint32_t* out);

    static constexpr size_t kBatch = 256;  // pieces looked up together
    static constexpr size_t kParts = 16;   // parts of a piece looked up together
    struct Batch {
        ShortKey keys[kBatch];
        uint64_t hashes[kBatch];
        const ShortSlot* slots[kBatch];  // null: not in the table
        const uint32_t* ends;
        uint32_t start;  // of the first piece
        uint16_t missing[kBatch];

        uint32_t start_of(size_t i) const { return i ? ends[i - 1] : start; }
    };

    const Program& program_;
    const Model& model_;
    PieceTable pieces_;
    Batch batch_;
    uint64_t part_flag_;  // set in keys of parts when "is a token" differs between whole pieces and parts
    std::vector<uint32_t> ends_;
    std::vector<PlainSplitter::Piece> chain_pieces_[2];
    std::string normalized_, prefixed_;
    MergeScratch scratch_;
    using ShortJob = MergeJob<15>;
    using LongJob = MergeJob<31>;
    std::unique_ptr<ShortJob[]> jobs_ = std::make_unique_for_overwrite<ShortJob[]>(kBatch);
    std::unique_ptr<LongJob[]> long_jobs_ = std::make_unique_for_overwrite<LongJob[]>(kBatch);
    std::vector<uint32_t> long_ids_;
};

}  // namespace gristmill
