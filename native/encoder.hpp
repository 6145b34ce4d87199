// Documents -> ids. `Program` is a compiled tokenizer, shared and constant; `Encoder` is one thread's state.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "added_tokens.hpp"
#include "encoder_characters.hpp"
#include "encoder_dense.hpp"
#include "encoder_pieces.hpp"
#include "model.hpp"
#include "normalize.hpp"
#include "split.hpp"
#include "write_buffer.hpp"

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
    bool is_cut_freely = false;  // no pre-tokenizer: wherever no token lies across
    std::vector<PlainSplitter> chain;
    std::unique_ptr<AddedTokens> raw_tokens, normalized_tokens;
};

// Cuts text where two neighbouring characters stand side by side in no token, at least one of them not a letter or
// digit: exact for a model without pre-tokenizer (coverage cuts), and it makes words of running text.
std::unique_ptr<Transducer> word_transducer(const Model& model);

class Encoder {
public:
    Encoder(const Program& program, size_t cache_bytes);

    // The ids of the documents to come are appended to `out`, in their order.
    void start(IdBuffer& out);
    // One document (valid UTF-8), whose bytes stay there until `finish`; then *size is the number of its ids.
    void encode(std::string_view document, SpecialPolicy policy, int64_t* size);
    void finish() { pieces_.flush(); }

    size_t memory_bytes() const;
    // Gives back what a huge document needed.
    void shrink();

private:
    // A stretch without raw added tokens: normalise, look for normalised added tokens, split, look up.
    void encode_raw_stretch(std::string_view text, bool is_first, SpecialPolicy policy);
    void encode_stretch(std::string_view text, bool is_first);
    void encode_by_transducer(std::string_view text);
    void encode_by_characters(std::string_view text);
    void encode_by_chain(std::string_view text);
    void push(uint32_t id);
    std::string_view normalized(std::string_view text);
    std::string_view prefixed(std::string_view text);

    const Program& program_;
    PieceTable table_;
    PieceEncoder parts_, pieces_;
    CharacterEncoder characters_;
    DenseEncoder dense_;
    const bool may_be_dense_;
    IdBuffer* out_ = nullptr;
    std::vector<uint32_t> ends_;
    std::vector<PlainSplitter::Piece> chain_pieces_[2];
    std::string normalized_, prefixed_;
};

}  // namespace gristmill
