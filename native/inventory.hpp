// Inventories: files of pieces with their counts, in order of bytes, each piece once.
//
// All numbers are little-endian; a varint has seven bits a byte, lowest first.
//   header   "GMPIECES", u32 version, u32 size of about, about (how the pieces were cut), u32 crc of all before
//   blocks   u32 size of payload, u32 number of pieces, payload, u32 crc of all of the block before
//            payload: for each piece varint(size), its bytes, varint(count); neither is ever 0
//   footer   u64 number of pieces, sum of counts, sum of sizes, size of the longest, dropped count, max undercount;
//            u32 crc of these, "GMPIECES"
// A block has about 64 KB, or one piece that is larger: writing and reading need that much memory.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill {

// A file that cannot be read or is no inventory; the message is for the user.
struct InventoryError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct InventorySummary {
    uint64_t num_pieces = 0, total_count = 0, total_bytes = 0, longest_piece = 0;
    uint64_t dropped_count = 0;   // of pieces that were left out: what was counted is total_count and this
    uint64_t max_undercount = 0;  // no piece was there more often than its count and this
};

// Takes what is to be written, in order.
using Sink = std::function<void(const uint8_t* bytes, size_t size)>;

// Pieces as they will stand in an inventory, made ready by another thread than the one that writes it.
class InventoryPart {
public:
    // As InventoryWriter's.
    void put(std::string_view piece, uint64_t count);
    void clear();

private:
    friend class InventoryWriter;
    struct Size {
        uint32_t piece, entry;
    };
    std::vector<uint8_t> entries_;
    std::vector<Size> sizes_;
    InventorySummary summary_;
};

class InventoryWriter {
public:
    static constexpr size_t kBlockBytes = 64 << 10;
    static constexpr size_t kMaxAbout = 64 << 10;
    static constexpr size_t kMaxPiece = 0xFFFFFF00u;

    InventoryWriter(std::string_view about, Sink sink);
    // Pieces rise, and are not empty; counts are not 0.
    void put(std::string_view piece, uint64_t count);
    void put(const InventoryPart& part);
    InventorySummary finish(uint64_t dropped_count, uint64_t max_undercount);

private:
    void flush();

    Sink sink_;
    std::vector<uint8_t> block_;
    uint32_t num_in_block_ = 0;
    InventorySummary summary_;
};

// Where the bytes of an inventory are.
class Source {
public:
    virtual ~Source() = default;
    virtual const std::string& name() const = 0;
    virtual uint64_t size() const = 0;
    // at + size is inside.
    virtual void read(uint64_t at, uint8_t* out, size_t size) = 0;
};
std::unique_ptr<Source> open_file(const std::string& path);
std::unique_ptr<Source> open_memory(std::span<const uint8_t> bytes);

// Reads in order. Whatever the bytes are, what it gives is sound or an InventoryError: pieces rise, and at the end
// all are there.
class InventoryReader {
public:
    explicit InventoryReader(std::unique_ptr<Source> source);

    const std::string& name() const { return source_->name(); }
    const InventorySummary& summary() const { return summary_; }
    const std::string& about() const { return about_; }
    // Goes to the next piece; false at the end.
    bool next();
    // Until the next call of next.
    std::string_view piece() const { return piece_; }
    uint64_t count() const { return count_; }

private:
    void read_header();
    void read_footer();
    bool next_block();
    uint64_t varint();
    void check_end() const;

    std::unique_ptr<Source> source_;
    std::string about_;
    InventorySummary summary_, found_;
    uint64_t at_ = 0, blocks_end_ = 0;
    std::vector<uint8_t> block_;
    const uint8_t *next_ = nullptr, *end_ = nullptr;  // in block_
    uint32_t num_left_ = 0;
    std::string_view piece_;
    std::string last_;  // of the block before
    uint64_t count_ = 0;
};

struct MergeReport {
    InventorySummary summary;
    uint64_t num_dropped = 0, dropped_count = 0, dropped_bytes = 0;  // below min_count
};

// One inventory of many: counts are added, pieces below min_count left out. All must be cut alike (have one `about`).
MergeReport merge_inventories(std::span<const std::unique_ptr<InventoryReader>> readers, uint64_t min_count, const Sink& sink);

}  // namespace gristmill
