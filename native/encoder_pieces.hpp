// Pieces -> ids, one thread's state: pieces wait until there are enough to be looked up side by side.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "merge.hpp"
#include "model.hpp"
#include "piece_table.hpp"
#include "write_buffer.hpp"

namespace gristmill {

// Two of them work together: one takes whole pieces, and gives those that it does not know and that can be cut, part by part, to
// the other. Both remember in one table.
class PieceEncoder {
public:
    // parts: null for the one that takes parts.
    PieceEncoder(const Model& model, PieceTable& table, PieceEncoder* parts);

    // Ids go to `out` from now on, in the order of the pieces; nothing waits.
    void start(IdBuffer& out);
    // Pieces of a text, the first from `begin`; `readable` bytes may be read at text, and stay there until written.
    void add(const uint8_t* text, size_t readable, uint32_t begin, const uint32_t* ends, size_t count);
    // One part of a piece. is_whole: it is all of it.
    void put_part(const uint8_t* part, size_t size, size_t readable, bool is_whole);
    // A document ends here: the number of its ids goes to *size when they are written.
    void end_document(int64_t* size) { marks_.push_back({waiting_, size}); }
    // Writes what waits.
    void flush();
    // The ids of one part of a text, while nothing waits; room for a word each byte is needed. Returns where they end.
    uint32_t* encode_alone(std::string_view part, uint32_t* out);

    size_t memory_bytes() const;  // without the table
    void shrink();

private:
    struct Waiting;
    void put_pieces(const uint8_t* text, size_t readable, uint32_t begin, const uint32_t* ends, size_t count);
    static Waiting waiting(ShortKey key, uint64_t flag, const uint8_t* start, PieceTable::Homes homes);
    Waiting waiting_long(std::string_view piece, uint64_t flag) const;
    // A piece of a script that has cuts nearly everywhere: its parts.
    void add_parts(const uint8_t* piece, size_t size, size_t readable);
    // Has the pieces of cut_ encoded part by part, and remembers them.
    void encode_cut();
    bool is_cut_first(size_t i) const;
    // The ids of the piece lie ready outside the table of short ones.
    bool has_ids(size_t i) const;

    // The pieces at home in the table have their slots then; returns how many are not.
    size_t find_slots();
    // The same after slots have moved.
    size_t find_slots_again();
    // Enters the pieces that are not in the table yet, as far as they can be merged side by side.
    void learn(size_t num_missing);
    void learn_short(uint16_t i, size_t& num_jobs);
    // Pieces of the batch that do not lie at home in the table go there.
    void bring_home();
    // Was it asked about this hash before? It may say yes wrongly, and forget.
    bool was_seen(uint64_t hash);
    void remember(size_t i, const uint32_t* ids, size_t count);
    // Slots of the batch from there on, wherever they lie, after slots have moved.
    void find_again(size_t from);
    uint32_t* write(size_t from, size_t to, uint32_t* out);
    uint32_t* write_slot(const ShortSlot& slot, uint32_t* out) const;
    // One piece, whole or a part. Returns the end of what was written.
    uint32_t* encode_short(size_t i, uint32_t* out);
    uint32_t* encode_long(size_t i, uint32_t* out);
    uint32_t* encode_by_cuts(std::string_view piece, uint32_t* out);
    uint32_t* encode_part(std::string_view part, uint32_t* out);
    uint32_t* merge(std::string_view part, uint32_t* out);
    // The id a whole piece or a part of one has by itself, or kNoId.
    uint32_t single_token(const ShortKey& key, uint64_t hash) const;
    uint32_t long_token(size_t i) const;
    // Pieces with bytes that have no token: they are taken out before merging.
    bool has_dropped_bytes(std::string_view piece) const;
    uint32_t* encode_without_dropped(std::string_view piece, uint32_t* out);

    static constexpr size_t kLongestRemembered = 256;  // bytes; longer pieces seldom come back
    static constexpr size_t kBatch = 1024;  // pieces looked up together: enough new ones among them to be merged side by side
    struct Waiting {
        ShortKey key;
        const ShortSlot* slot;  // its home before it was looked up, then its slot, or kNowhere
        const uint8_t* start;

        size_t size() const { return key.size(); }
        uint64_t hash() const { return key.is_long() ? key.low : key.hash(); }
        std::string_view text() const { return {reinterpret_cast<const char*>(start), size()}; }
    };
    static constexpr ShortSlot kNowhere{{}, {}, 0xFFFFFFFF};  // a count that none has
    struct Mark {
        size_t at;
        int64_t* size;
    };

    // From this piece of the batch on, what can be read ends here.
    struct Limit {
        size_t first;
        const uint8_t* end;
    };

    const Model& model_;
    PieceTable& table_;
    PieceEncoder* const parts_;
    IdBuffer* out_ = nullptr;
    size_t waiting_ = 0, waiting_bytes_ = 0;
    size_t document_begin_ = 0;  // in out_
    std::vector<Mark> marks_;
    std::vector<Limit> limits_;
    alignas(64) Waiting batch_[kBatch];
    uint16_t missing_[kBatch];
    uint16_t away_[kBatch];  // pieces of the batch that were found elsewhere than at home
    size_t num_away_ = 0;
    // Pieces of the batch that are encoded part by part, where their ids lie in cut_ids_, and by piece which of them it is.
    std::vector<uint16_t> cut_;
    int64_t cut_sizes_[kBatch];
    const uint32_t* cut_begin_[kBatch];
    int16_t cut_of_[kBatch];  // -1: none
    // From the last on, in the same arrays: long pieces that were found in the table, unless it has forgotten them since.
    size_t num_found_ = 0, found_before_ = 0;
    IdBuffer cut_ids_;
    std::vector<uint64_t> seen_;
    size_t num_seen_ = 0;
    uint64_t part_flag_ = 0;  // set in keys of parts when "is a token" differs between whole pieces and parts
    MergeScratch scratch_;
    using ShortJob = MergeJob<15>;
    using LongJob = MergeJob<31>;
    std::unique_ptr<ShortJob[]> jobs_ = std::make_unique_for_overwrite<ShortJob[]>(kBatch);
    std::unique_ptr<ShortSlot*[]> claimed_ = std::make_unique<ShortSlot*[]>(kBatch);  // of each job
    uint64_t long_hashes_[kBatch];
    std::unique_ptr<LongJob[]> long_jobs_ = std::make_unique_for_overwrite<LongJob[]>(kBatch);
    std::vector<uint32_t> long_ids_;
};

}  // namespace gristmill
