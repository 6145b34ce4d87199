#include "count.hpp"

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "threads.hpp"

namespace gristmill {

namespace {
constexpr size_t kLargest = InventoryWriter::kMaxPiece;
constexpr size_t kBlock = 8192;  // bytes split at a time: their ends stay in L1
constexpr size_t kFirstPieces = 4096;
constexpr size_t kLargestChunk = 1 << 20;
constexpr size_t kLargestPart = 1 << 16;  // pieces made ready at a time

// What is forgotten depends on the sizes that the table has had: those are always the same.
size_t first_slots(size_t num_expected, size_t max_bytes, WhenFull when_full) {
    size_t least = CountTable::slots_for(kFirstPieces), most = max_bytes / 4 / CountTable::bytes_of_slots(1);
    if (when_full == WhenFull::forget || most < least) return least;
    return std::clamp(CountTable::slots_for(num_expected), least, most);
}

const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
}  // namespace

PieceCounter::PieceCounter(std::shared_ptr<const Program> program, size_t max_bytes, WhenFull when_full, size_t num_expected)
    : program_(std::move(program)),
      max_bytes_(max_bytes),
      when_full_(when_full),
      num_expected_(num_expected),
      table_(first_slots(num_expected, max_bytes, when_full), std::min(kLargestChunk, max_bytes / 32)) {
    if (max_bytes < kLeastBytes) throw std::invalid_argument("a counter needs 256 KB at least");
}

size_t PieceCounter::memory_bytes() const {
    size_t pieces = chain_pieces_[0].capacity() + chain_pieces_[1].capacity();
    return table_.slot_bytes() + table_.arena_bytes() + ends_.capacity() * sizeof(uint32_t) +
           pieces * sizeof(PlainSplitter::Piece) + normalized_.capacity() + prefixed_.capacity();
}

void PieceCounter::shrink() {
    constexpr size_t kKept = 1 << 18;  // entries
    auto release = [](auto& buffer) {
        if (buffer.capacity() > kKept) std::remove_reference_t<decltype(buffer)>().swap(buffer);
    };
    release(ends_);
    release(chain_pieces_[0]);
    release(chain_pieces_[1]);
    release(normalized_);
    release(prefixed_);
}

std::string_view PieceCounter::prepared(std::string_view text) {
    if (program_->form != Form::none && !is_normalized(program_->form, bytes_of(text), text.size())) {
        normalized_.clear();
        normalize(program_->form, bytes_of(text), text.size(), normalized_);
        text = normalized_;
    }
    if (program_->spaces_as_marks && text.find(kMark) != std::string_view::npos) {
        normalized_ = marks_to_spaces(text);
        text = normalized_;
    }
    const Prefix& prefix = program_->prefix;
    if (prefix.where != Prefix::Where::nowhere && !text.empty() && !(prefix.unless_present && text[0] == ' ')) {
        prefixed_.assign(1, ' ').append(text);
        text = prefixed_;
    }
    return text;
}

void PieceCounter::add(std::string_view document, uint64_t weight, const std::function<void()>& on_full) {
    std::string_view text = prepared(document);
    if (text.empty() || weight == 0) return;
    if (text.size() > kLargest) throw TextTooLarge();
    weight_ = weight;
    on_full_ = &on_full;
    if (program_->transducer) {
        add_by_transducer(text);
    } else {
        add_by_chain(text);
    }
}

void PieceCounter::add_by_transducer(std::string_view text) {
    const Transducer& transducer = *program_->transducer;
    const uint8_t* bytes = bytes_of(text);
    for (size_t begin = 0; begin < text.size();) {
        size_t end = text.size();
        if (end - begin > kBlock + kBlock / 2) end = transducer.safe_cut(bytes, begin + kBlock, end);
        size_t size = end - begin;
        if (ends_.size() < size) ends_.resize(size);
        auto pieces = transducer.split(bytes + begin, 0, size, end == text.size(), ends_.data());
        uint32_t start = 0;
        for (size_t i = 0; i < pieces.num_runs; ++i) {
            auto run = pieces.runs[i];
            add_pieces(bytes + begin, text.size() - begin, start, run.ends, run.count);
            start = run.ends[run.count - 1];
        }
        begin = end;
    }
}

void PieceCounter::add_by_chain(std::string_view text) {
    split_by_chain(program_->chain, bytes_of(text), text.size(), chain_pieces_[0], chain_pieces_[1]);
    for (auto piece : chain_pieces_[0]) {
        uint32_t end = piece.end - piece.begin;
        add_pieces(bytes_of(text) + piece.begin, text.size() - piece.begin, 0, &end, 1);
    }
}

// Two sweeps over a batch, so that the cache misses of many pieces overlap: hash and prefetch, then count.
void PieceCounter::add_pieces(const uint8_t* text, size_t size, uint32_t start, const uint32_t* ends, size_t count) {
    for (size_t first = 0; first < count; first += kBatch) {
        size_t batch = std::min(kBatch, count - first);
        batch_.ends = ends + first;
        batch_.start = start;
        add_batch(text, size, batch);
        start = ends[first + batch - 1];
    }
}

void PieceCounter::add_batch(const uint8_t* text, size_t size, size_t batch) {
    size_t num_long = 0, long_bytes = 0;
    uint32_t start = batch_.start;
    for (size_t i = 0; i < batch; ++i) {
        uint32_t end = batch_.ends[i];
        size_t length = end - start;
        if (length > ShortKey::kMaxBytes) [[unlikely]] {
            batch_.hashes[i] = hash_bytes({reinterpret_cast<const char*>(text) + start, length});
            ++num_long;
            long_bytes += length;
        } else {
            batch_.keys[i] = size_t{start} + 16 <= size ? ShortKey::load(text + start, length) : ShortKey::load_safely(text + start, length);
            batch_.hashes[i] = batch_.keys[i].hash();
        }
        table_.prefetch(batch_.hashes[i]);
        start = end;
    }
    make_room(batch, num_long, long_bytes);
    uint64_t added;
    if (__builtin_mul_overflow(weight_, uint64_t{batch}, &added)) added = UINT64_MAX;
    add_to_total(added);
    start = batch_.start;
    for (size_t i = 0; i < batch; ++i) {
        uint32_t end = batch_.ends[i];
        if (end - start > ShortKey::kMaxBytes) [[unlikely]] {
            table_.add_long({reinterpret_cast<const char*>(text) + start, end - start}, batch_.hashes[i], weight_);
        } else {
            table_.add_short(batch_.keys[i], batch_.hashes[i], weight_);
        }
        start = end;
    }
}

void PieceCounter::add_to_total(uint64_t count) {
    if (__builtin_add_overflow(total_count_, count, &total_count_)) {
        throw std::overflow_error("counts add up to more than 64 bits hold");
    }
}

void PieceCounter::make_room(size_t num_pieces, size_t num_long, size_t long_bytes) {
    for (;;) {
        size_t arena_growth = num_long ? table_.arena_growth(num_long, long_bytes) : 0;
        // Forgetting holds two tables at once, and then half of the arena twice.
        size_t arena_limit = when_full_ == WhenFull::forget ? max_bytes_ / 2 : max_bytes_ - std::min(max_bytes_, table_.slot_bytes());
        bool has_arena = arena_growth == 0 || table_.arena_bytes() + arena_growth <= arena_limit;
        if (has_arena && (table_.has_room(num_pieces) || grow(num_pieces, arena_growth))) return;
        if (table_.size() == 0) {  // nothing can be given back: one batch alone is larger
            if (!table_.has_room(num_pieces)) table_.resize(CountTable::slots_for(num_pieces));
            return;
        }
        if (when_full_ == WhenFull::forget) {
            forget();
            continue;
        }
        (*on_full_)();
        if (table_.size() != 0) throw std::logic_error("the table is full and was not spilled");
    }
}

// Doubles the table, or gives it what is left, if that is still worth the move.
bool PieceCounter::grow(size_t num_pieces, size_t arena_growth) {
    size_t limit = max_bytes_ - std::min(max_bytes_, table_.arena_bytes() + arena_growth + table_.slot_bytes());
    if (when_full_ == WhenFull::forget) limit = max_bytes_ / 4;
    size_t slots = std::min(table_.num_slots() * 2, limit / CountTable::bytes_of_slots(1));
    if (slots < table_.num_slots() + table_.num_slots() / 4) return false;
    if (table_.size() + num_pieces > CountTable::pieces_in(slots)) return false;
    table_.resize(slots);
    return true;
}

void PieceCounter::forget() {
    CountTable::Forgotten forgotten = table_.forget();
    dropped_count_ += forgotten.total_count;  // part of total_count_, which has not overflowed
    max_undercount_ += forgotten.largest_count;
}

namespace {
// Parts are made ready by so many threads, and written in order.
void write_side_by_side(std::vector<CountTable::Sorted> parts, size_t num_threads, InventoryWriter& writer) {
    std::vector<InventoryPart> ready(num_threads);
    for (size_t first = 0; first < parts.size(); first += num_threads) {
        size_t count = std::min(num_threads, parts.size() - first);
        auto make_ready = [&](size_t i) {
            ready[i].clear();
            CountTable::take(std::move(parts[first + i]), [&](std::string_view piece, uint64_t n) { ready[i].put(piece, n); });
        };
        run_threads(count, make_ready);
        for (size_t i = 0; i < count; ++i) writer.put(ready[i]);
    }
}
}  // namespace

InventorySummary PieceCounter::spill(std::string_view about, const Sink& sink, std::span<PieceCounter* const> twins) {
    InventoryWriter writer(about, sink);
    // The next table is as large as this inventory says is best, at once: growing would need two of them.
    size_t arena_bytes_a_piece = table_.arena_bytes() / (table_.size() + 1);
    size_t bytes_a_piece = arena_bytes_a_piece + CountTable::bytes_of_slots(3) / 2;
    bool is_near_full = table_.slot_bytes() + table_.arena_bytes() > max_bytes_ / 3;
    size_t num_pieces = is_near_full ? max_bytes_ / bytes_a_piece / 16 * 15 : kFirstPieces;
    std::vector<CountTable*> tables = join(twins);
    CountTable::Sorted sorted = CountTable::sort(tables);
    if (tables.size() == 1) {
        CountTable::take(std::move(sorted), [&](std::string_view piece, uint64_t count) { writer.put(piece, count); });
    } else {
        size_t part_size = std::clamp<size_t>(max_bytes_ / 1024, 256, kLargestPart);
        write_side_by_side(CountTable::cut(std::move(sorted), part_size), tables.size(), writer);
    }
    InventorySummary summary = writer.finish(dropped_count_, max_undercount_);
    if (when_full_ == WhenFull::forget) num_pieces = kFirstPieces;
    start_afresh(std::max(num_pieces, kFirstPieces));
    for (PieceCounter* twin : twins) twin->start_afresh(kFirstPieces);
    return summary;
}

// Tables of this and its twins, whose sums are added to those here.
std::vector<CountTable*> PieceCounter::join(std::span<PieceCounter* const> twins) {
    std::vector<CountTable*> tables{&table_};
    for (PieceCounter* twin : twins) {
        add_to_total(twin->total_count_);  // the sum of all counts fits, and so does each
        dropped_count_ += twin->dropped_count_;
        max_undercount_ += twin->max_undercount_;
        tables.push_back(&twin->table_);
    }
    return tables;
}

namespace {
void append(CountedPieces& out, std::string_view piece, uint64_t count) {
    size_t end = out.bytes.size() + piece.size();
    out.bytes.resize(end);
    std::copy(piece.begin(), piece.end(), out.bytes.data() + end - piece.size());
    out.offsets.push(static_cast<int64_t>(end));
    out.counts.push(count);
}

// Room for all that a part may have, but for long pieces, whose sizes are not known.
void set_aside(CountedPieces& out, const CountTable::Sorted& part) {
    size_t num_slots = 0;
    for (const auto& slots : part) num_slots += slots.size();
    out.bytes.reserve(16 * num_slots);
    out.offsets.reserve(num_slots + 1);
    out.offsets.push(0);
    out.counts.reserve(num_slots);
}

CountedPieces concatenate(std::vector<CountedPieces> parts) {
    if (parts.size() == 1) return std::move(parts[0]);
    CountedPieces all;
    std::vector<std::pair<size_t, size_t>> begins;  // of bytes and pieces
    size_t num_bytes = 0, num_pieces = 0;
    for (const CountedPieces& part : parts) {
        begins.emplace_back(num_bytes, num_pieces);
        num_bytes += part.bytes.size();
        num_pieces += part.counts.size();
    }
    all.bytes.resize(num_bytes);
    all.offsets.resize(num_pieces + 1);
    all.counts.resize(num_pieces);
    all.offsets[0] = 0;
    run_threads(parts.size(), [&](size_t i) {
        CountedPieces part = std::move(parts[i]);
        auto [first_byte, first_piece] = begins[i];
        std::copy_n(part.bytes.data(), part.bytes.size(), all.bytes.data() + first_byte);
        std::copy_n(part.counts.data(), part.counts.size(), all.counts.data() + first_piece);
        for (size_t k = 1; k < part.offsets.size(); ++k) {
            all.offsets[first_piece + k] = part.offsets[k] + static_cast<int64_t>(first_byte);
        }
    });
    return all;
}
}  // namespace

CountedPieces PieceCounter::gather(std::span<PieceCounter* const> twins) {
    std::vector<CountTable*> tables = join(twins);
    CountTable::Sorted sorted = CountTable::sort(tables);
    size_t largest = 0;
    for (const auto& slots : sorted) largest = std::max(largest, slots.size());
    auto ranges = CountTable::cut(std::move(sorted), largest / tables.size() + 1);
    std::vector<CountedPieces> parts(ranges.size());
    run_threads(ranges.size(), [&](size_t i) {
        set_aside(parts[i], ranges[i]);
        CountTable::take(std::move(ranges[i]), [&](std::string_view piece, uint64_t count) { append(parts[i], piece, count); });
    });
    CountedPieces all = concatenate(std::move(parts));
    all.dropped_count = dropped_count_;
    all.max_undercount = max_undercount_;
    start_afresh(kFirstPieces);
    for (PieceCounter* twin : twins) twin->start_afresh(kFirstPieces);
    return all;
}

void PieceCounter::start_afresh(size_t num_pieces) {
    table_.reset(CountTable::slots_for(num_pieces));
    total_count_ = dropped_count_ = max_undercount_ = 0;
}

}  // namespace gristmill
