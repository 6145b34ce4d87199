// Documents -> how often each piece was there, in bounded memory. One counter a thread; nothing is kept of a document.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "count_table.hpp"
#include "encoder.hpp"
#include "growing_array.hpp"
#include "inventory.hpp"

namespace gristmill {

// What a counter does when it has as many pieces as fit its memory.
enum class WhenFull : uint8_t {
    spill,   // calls for a spill and starts afresh: exact
    forget,  // drops the rarest: counts are too low by at most max_undercount
};

// All that was counted, in order: piece i is the bytes from offsets[i] to offsets[i + 1].
struct CountedPieces {
    GrowingArray<uint8_t> bytes;
    GrowingArray<int64_t> offsets;
    GrowingArray<uint64_t> counts;
    uint64_t dropped_count = 0, max_undercount = 0;
};

class PieceCounter {
public:
    // Of the program, what stands before the model is used: form, marks, prefix, splits. Without splits a document
    // is one piece. Pieces and what sorting them takes stay below max_bytes, unless one piece alone is larger.
    // Where so many pieces are expected, the table need not grow in many steps to hold them.
    PieceCounter(std::shared_ptr<const Program> program, size_t max_bytes, WhenFull when_full, size_t num_expected = 0);
    // An empty counter of the same kind, for another thread.
    PieceCounter twin() const { return PieceCounter(program_, max_bytes_, when_full_, num_expected_); }

    // Counts the pieces of a document (valid UTF-8) `weight` times each. on_full must call spill.
    void add(std::string_view document, uint64_t weight, const std::function<void()>& on_full);
    // Writes one inventory of what this and its twins have counted since they last spilled, and forgets it.
    InventorySummary spill(std::string_view about, const Sink& sink, std::span<PieceCounter* const> twins = {});
    // The same in memory, on top of what is counted and outside of max_bytes.
    CountedPieces gather(std::span<PieceCounter* const> twins = {});
    // Lets pieces and what sorting them takes have so much from now on.
    void allow(size_t max_bytes) { max_bytes_ = std::max(max_bytes, kLeastBytes); }
    // Gives back what a huge document needed.
    void shrink();

    size_t num_pieces() const { return table_.size(); }
    uint64_t total_count() const { return total_count_; }
    uint64_t max_undercount() const { return max_undercount_; }
    size_t memory_bytes() const;

    static constexpr size_t kLeastBytes = 256 << 10;

private:
    std::string_view prepared(std::string_view text);
    void add_by_transducer(std::string_view text);
    void add_by_chain(std::string_view text);
    // Pieces of text, the first from `start`; `size` bytes are readable at text.
    void add_pieces(const uint8_t* text, size_t size, uint32_t start, const uint32_t* ends, size_t count);
    void add_batch(const uint8_t* text, size_t size, size_t batch);
    // Adds to the sum of all counts, or refuses.
    void add_to_total(uint64_t count);
    // After it, so many pieces can be added, with so many bytes in long ones.
    void make_room(size_t num_pieces, size_t num_long, size_t long_bytes);
    bool grow(size_t num_pieces, size_t arena_growth);
    void forget();
    std::vector<CountTable*> join(std::span<PieceCounter* const> twins);
    void start_afresh(size_t num_pieces);

    static constexpr size_t kBatch = 256;  // pieces looked up together
    struct Batch {
        ShortKey keys[kBatch];
        uint64_t hashes[kBatch];
        const uint32_t* ends;
        uint32_t start;  // of the first piece
    };

    std::shared_ptr<const Program> program_;
    size_t max_bytes_;
    WhenFull when_full_;
    size_t num_expected_;
    CountTable table_;
    Batch batch_;
    uint64_t weight_ = 1;
    const std::function<void()>* on_full_ = nullptr;
    uint64_t total_count_ = 0, dropped_count_ = 0, max_undercount_ = 0;
    std::vector<uint32_t> ends_;
    std::vector<PlainSplitter::Piece> chain_pieces_[2];
    std::string normalized_, prefixed_;
};

}  // namespace gristmill
