#include "inventory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "crc32.hpp"

namespace gristmill {

namespace {
static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");
constexpr char kMagic[] = "GMPIECES";
constexpr size_t kMagicSize = 8;
constexpr uint32_t kVersion = 1;
constexpr size_t kFooterSize = 6 * 8 + 4 + kMagicSize;

template <typename T>
void append(std::vector<uint8_t>& out, T number) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&number);
    out.insert(out.end(), bytes, bytes + sizeof number);
}

template <typename T>
T load(const uint8_t* bytes) {
    T number;
    std::memcpy(&number, bytes, sizeof number);
    return number;
}

uint8_t* put_varint(uint8_t* out, uint64_t number) {
    for (; number >= 128; number >>= 7) *out++ = static_cast<uint8_t>(number | 128);
    *out++ = static_cast<uint8_t>(number);
    return out;
}

uint64_t checked_sum(uint64_t a, uint64_t b) {
    uint64_t sum;
    if (__builtin_add_overflow(a, b, &sum)) throw InventoryError("counts add up to more than 64 bits hold");
    return sum;
}

void add_piece(InventorySummary& summary, std::string_view piece, uint64_t count) {
    ++summary.num_pieces;
    summary.total_count = checked_sum(summary.total_count, count);
    summary.total_bytes += piece.size();
    summary.longest_piece = std::max<uint64_t>(summary.longest_piece, piece.size());
}

[[noreturn]] void refuse(const Source& source, const std::string& why) { throw InventoryError(source.name() + ": " + why); }
[[noreturn]] void damaged(const Source& source, const char* what) { refuse(source, std::string("damaged: ") + what); }
}  // namespace

InventoryWriter::InventoryWriter(std::string_view about, Sink sink) : sink_(std::move(sink)) {
    if (about.size() > kMaxAbout) throw InventoryError("the description of an inventory is too long");
    std::vector<uint8_t> header(kMagic, kMagic + kMagicSize);
    append(header, kVersion);
    append(header, static_cast<uint32_t>(about.size()));
    header.insert(header.end(), about.begin(), about.end());
    append(header, crc32(0, header.data(), header.size()));
    sink_(header.data(), header.size());
    block_.resize(8);
}

namespace {
// Returns how many bytes the entry has.
size_t append_entry(std::vector<uint8_t>& out, std::string_view piece, uint64_t count) {
    if (piece.size() > InventoryWriter::kMaxPiece) throw InventoryError("a piece has 4 GB or more");
    size_t at = out.size();
    out.resize(at + piece.size() + 15);  // a size has at most 5 bytes, a count 10
    uint8_t* next = put_varint(out.data() + at, piece.size());
    std::memcpy(next, piece.data(), piece.size());
    next = put_varint(next + piece.size(), count);
    out.resize(static_cast<size_t>(next - out.data()));
    return out.size() - at;
}
}  // namespace

void InventoryPart::put(std::string_view piece, uint64_t count) {
    add_piece(summary_, piece, count);
    size_t entry_size = append_entry(entries_, piece, count);
    sizes_.push_back({static_cast<uint32_t>(piece.size()), static_cast<uint32_t>(entry_size)});
}

void InventoryPart::clear() {
    entries_.clear();
    sizes_.clear();
    summary_ = {};
}

void InventoryWriter::put(std::string_view piece, uint64_t count) {
    if (num_in_block_ && block_.size() + piece.size() > kBlockBytes) flush();
    add_piece(summary_, piece, count);
    append_entry(block_, piece, count);
    ++num_in_block_;
}

void InventoryWriter::put(const InventoryPart& part) {
    const uint8_t *begin = part.entries_.data(), *end = begin;  // of what goes into the block at hand
    for (auto [piece_size, entry_size] : part.sizes_) {
        if (num_in_block_ && block_.size() + static_cast<size_t>(end - begin) + piece_size > kBlockBytes) {
            block_.insert(block_.end(), begin, end);
            flush();
            begin = end;
        }
        end += entry_size;
        ++num_in_block_;
    }
    block_.insert(block_.end(), begin, end);
    summary_.num_pieces += part.summary_.num_pieces;
    summary_.total_count = checked_sum(summary_.total_count, part.summary_.total_count);
    summary_.total_bytes += part.summary_.total_bytes;
    summary_.longest_piece = std::max(summary_.longest_piece, part.summary_.longest_piece);
}

void InventoryWriter::flush() {
    auto size = static_cast<uint32_t>(block_.size() - 8);
    std::memcpy(block_.data(), &size, 4);
    std::memcpy(block_.data() + 4, &num_in_block_, 4);
    append(block_, crc32(0, block_.data(), block_.size()));
    sink_(block_.data(), block_.size());
    block_.resize(8);
    if (block_.capacity() > 4 * kBlockBytes) block_.shrink_to_fit();
    num_in_block_ = 0;
}

InventorySummary InventoryWriter::finish(uint64_t dropped_count, uint64_t max_undercount) {
    if (num_in_block_) flush();
    summary_.dropped_count = dropped_count;
    summary_.max_undercount = max_undercount;
    std::vector<uint8_t> footer;
    for (uint64_t number : {summary_.num_pieces, summary_.total_count, summary_.total_bytes, summary_.longest_piece,
                            summary_.dropped_count, summary_.max_undercount}) {
        append(footer, number);
    }
    append(footer, crc32(0, footer.data(), footer.size()));
    footer.insert(footer.end(), kMagic, kMagic + kMagicSize);
    sink_(footer.data(), footer.size());
    return summary_;
}

namespace {
class FileSource final : public Source {
public:
    explicit FileSource(const std::string& path) : path_(path), handle_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
        struct stat about;
        if (handle_ < 0) fail();
        if (fstat(handle_, &about) != 0 || !S_ISREG(about.st_mode)) {
            close(handle_);
            refuse(*this, "is no plain file");
        }
        size_ = static_cast<uint64_t>(about.st_size);
    }
    FileSource(const FileSource&) = delete;
    FileSource& operator=(const FileSource&) = delete;
    ~FileSource() override { close(handle_); }

    const std::string& name() const override { return path_; }
    uint64_t size() const override { return size_; }
    void read(uint64_t at, uint8_t* out, size_t size) override {
        while (size > 0) {
            ssize_t got = pread(handle_, out, size, static_cast<off_t>(at));
            if (got < 0 && errno == EINTR) continue;
            if (got < 0) fail();
            if (got == 0) damaged(*this, "it ends too early");  // it was cut while it was read
            at += static_cast<uint64_t>(got);
            out += got;
            size -= static_cast<size_t>(got);
        }
    }

private:
    [[noreturn]] void fail() const { refuse(*this, std::string("cannot be read (") + std::strerror(errno) + ")"); }

    std::string path_;
    int handle_;
    uint64_t size_ = 0;
};

class MemorySource final : public Source {
public:
    explicit MemorySource(std::span<const uint8_t> bytes) : bytes_(bytes) {}
    const std::string& name() const override { return name_; }
    uint64_t size() const override { return bytes_.size(); }
    void read(uint64_t at, uint8_t* out, size_t size) override {
        if (size) std::memcpy(out, bytes_.data() + at, size);
    }

private:
    std::span<const uint8_t> bytes_;
    std::string name_ = "(memory)";
};
}  // namespace

std::unique_ptr<Source> open_file(const std::string& path) { return std::make_unique<FileSource>(path); }
std::unique_ptr<Source> open_memory(std::span<const uint8_t> bytes) { return std::make_unique<MemorySource>(bytes); }

InventoryReader::InventoryReader(std::unique_ptr<Source> source) : source_(std::move(source)) {
    read_header();
    read_footer();
}

void InventoryReader::read_header() {
    uint8_t start[16];
    if (source_->size() < sizeof start + 4 + kFooterSize) refuse(*source_, "is no inventory of pieces, or cut short");
    source_->read(0, start, sizeof start);
    if (std::memcmp(start, kMagic, kMagicSize) != 0) refuse(*source_, "is no inventory of pieces");
    if (load<uint32_t>(start + 8) != kVersion) {
        refuse(*source_, "is an inventory of version " + std::to_string(load<uint32_t>(start + 8)) +
                             ", which another version of gristmill wrote");
    }
    size_t about_size = load<uint32_t>(start + 12);
    if (about_size > InventoryWriter::kMaxAbout || source_->size() < sizeof start + about_size + 4 + kFooterSize) {
        damaged(*source_, "its header does not fit");
    }
    std::vector<uint8_t> rest(about_size + 4);
    source_->read(sizeof start, rest.data(), rest.size());
    if (crc32(crc32(0, start, sizeof start), rest.data(), about_size) != load<uint32_t>(rest.data() + about_size)) {
        damaged(*source_, "the checksum of its header differs");
    }
    about_.assign(rest.begin(), rest.end() - 4);
    at_ = sizeof start + rest.size();
}

void InventoryReader::read_footer() {
    uint8_t footer[kFooterSize];
    blocks_end_ = source_->size() - kFooterSize;
    source_->read(blocks_end_, footer, kFooterSize);
    if (std::memcmp(footer + kFooterSize - kMagicSize, kMagic, kMagicSize) != 0) damaged(*source_, "it is cut short");
    if (crc32(0, footer, 48) != load<uint32_t>(footer + 48)) damaged(*source_, "the checksum of its footer differs");
    uint64_t numbers[6];
    std::memcpy(numbers, footer, sizeof numbers);
    summary_ = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
    // What a caller may set memory aside for is no more than what is really there.
    uint64_t size = blocks_end_ - at_;
    if (summary_.total_bytes > size || summary_.num_pieces > (size - summary_.total_bytes) / 2) {
        damaged(*source_, "it has fewer bytes than its footer says");
    }
}

bool InventoryReader::next_block() {
    if (at_ == blocks_end_) return false;
    uint8_t head[8];
    if (blocks_end_ - at_ < sizeof head + 4) damaged(*source_, "a block is cut short");
    source_->read(at_, head, sizeof head);
    size_t size = load<uint32_t>(head);
    num_left_ = load<uint32_t>(head + 4);
    if (num_left_ == 0 || blocks_end_ - at_ < sizeof head + 4 + size) damaged(*source_, "a block is cut short");
    last_.assign(piece_);
    if (block_.capacity() > 4 * InventoryWriter::kBlockBytes && size < InventoryWriter::kBlockBytes) {
        std::vector<uint8_t>().swap(block_);
    }
    block_.resize(size + 4);
    source_->read(at_ + sizeof head, block_.data(), block_.size());
    if (crc32(crc32(0, head, sizeof head), block_.data(), size) != load<uint32_t>(block_.data() + size)) {
        damaged(*source_, "the checksum of a block differs");
    }
    at_ += sizeof head + block_.size();
    next_ = block_.data();
    end_ = next_ + size;
    piece_ = last_;
    return true;
}

uint64_t InventoryReader::varint() {
    uint64_t number = 0;
    for (unsigned shift = 0; next_ < end_ && shift < 64; shift += 7) {
        uint8_t byte = *next_++;
        if (shift == 63 && byte > 1) break;
        number |= uint64_t{byte & 127u} << shift;
        if (byte < 128) return number;
    }
    damaged(*source_, "a number in a block is cut short or too large");
}

bool InventoryReader::next() {
    if (num_left_ == 0) {
        if (next_ != end_) damaged(*source_, "a block has bytes left");
        if (!next_block()) {
            check_end();
            return false;
        }
    }
    uint64_t size = varint();
    if (size == 0 || size > static_cast<uint64_t>(end_ - next_)) damaged(*source_, "a piece leaves its block");
    std::string_view piece(reinterpret_cast<const char*>(next_), size);
    next_ += size;
    count_ = varint();
    if (count_ == 0 || piece <= piece_) damaged(*source_, "pieces out of order, or without a count");
    if (count_ > UINT64_MAX - found_.total_count) damaged(*source_, "its counts add up to more than 64 bits hold");
    piece_ = piece;
    --num_left_;
    add_piece(found_, piece, count_);
    return true;
}

void InventoryReader::check_end() const {
    if (found_.num_pieces != summary_.num_pieces || found_.total_count != summary_.total_count ||
        found_.total_bytes != summary_.total_bytes || found_.longest_piece != summary_.longest_piece) {
        damaged(*source_, "its footer does not agree with its pieces");
    }
}

namespace {
// Readers by their current pieces, the least on top; the first eight bytes decide most comparisons.
class Tournament {
public:
    explicit Tournament(std::span<const std::unique_ptr<InventoryReader>> readers) {
        for (const auto& reader : readers) {
            if (reader->next()) heap_.push_back({prefix_of(reader->piece()), reader.get()});
        }
        for (size_t i = heap_.size() / 2; i-- > 0;) sift(i);
    }
    bool empty() const { return heap_.empty(); }
    InventoryReader& top() const { return *heap_[0].reader; }
    void advance() {
        if (top().next()) {
            heap_[0].prefix = prefix_of(top().piece());
        } else {
            heap_[0] = heap_.back();
            heap_.pop_back();
        }
        if (!heap_.empty()) sift(0);
    }

private:
    struct Entry {
        uint64_t prefix;
        InventoryReader* reader;
        bool operator<(const Entry& other) const {
            return prefix != other.prefix ? prefix < other.prefix : reader->piece() < other.reader->piece();
        }
    };
    static uint64_t prefix_of(std::string_view piece) {
        uint64_t word = 0;
        std::memcpy(&word, piece.data(), std::min<size_t>(piece.size(), 8));
        return __builtin_bswap64(word);
    }
    void sift(size_t i) {
        Entry moved = heap_[i];
        for (size_t child; (child = 2 * i + 1) < heap_.size(); i = child) {
            if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
            if (!(heap_[child] < moved)) break;
            heap_[i] = heap_[child];
        }
        heap_[i] = moved;
    }

    std::vector<Entry> heap_;
};
}  // namespace

MergeReport merge_inventories(std::span<const std::unique_ptr<InventoryReader>> readers, uint64_t min_count, const Sink& sink) {
    if (readers.empty()) throw InventoryError("there is no inventory to merge");
    MergeReport report;
    uint64_t dropped_before = 0, max_undercount = 0, largest_dropped = 0;
    for (const auto& reader : readers) {
        if (reader->about() != readers[0]->about()) throw InventoryError(reader->name() + " was cut in another way than " + readers[0]->name());
        dropped_before = checked_sum(dropped_before, reader->summary().dropped_count);
        max_undercount = checked_sum(max_undercount, reader->summary().max_undercount);
    }
    InventoryWriter writer(readers[0]->about(), sink);
    Tournament tournament(readers);
    std::string piece;
    while (!tournament.empty()) {
        piece.assign(tournament.top().piece());
        uint64_t count = 0;
        for (; !tournament.empty() && tournament.top().piece() == piece; tournament.advance()) {
            count = checked_sum(count, tournament.top().count());
        }
        if (count >= min_count) {
            writer.put(piece, count);
            continue;
        }
        ++report.num_dropped;
        report.dropped_count = checked_sum(report.dropped_count, count);
        report.dropped_bytes += piece.size();
        largest_dropped = std::max(largest_dropped, count);
    }
    report.summary = writer.finish(checked_sum(dropped_before, report.dropped_count), checked_sum(max_undercount, largest_dropped));
    return report;
}

}  // namespace gristmill
