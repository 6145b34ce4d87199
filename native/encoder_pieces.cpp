#include "encoder_pieces.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "utf8.hpp"

namespace gristmill {

namespace {
constexpr size_t kCutsAtATime = 256;
constexpr unsigned kSeenShift = 64 - 20;  // a bit each for 2^20 hashes

const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
std::string_view view(const uint8_t* bytes, size_t size) { return {reinterpret_cast<const char*>(bytes), size}; }

ShortKey load_key(const uint8_t* bytes, size_t size, size_t readable) {
    return readable >= 16 ? ShortKey::load(bytes, size) : ShortKey::load_safely(bytes, size);
}

}  // namespace

PieceEncoder::PieceEncoder(const Model& model, PieceTable& table, PieceEncoder* parts)
    : model_(model), table_(table), parts_(model.drops_bytes() ? nullptr : parts) {
    if (model_.has_unreachable_wholes()) part_flag_ = ShortKey::kPart;
    if (parts_) seen_.resize(size_t{1} << (64 - kSeenShift - 6));
}

size_t PieceEncoder::memory_bytes() const {
    return scratch_.memory_bytes() + (long_ids_.capacity() + cut_ids_.capacity()) * sizeof(uint32_t) + seen_.size() * sizeof(uint64_t);
}

void PieceEncoder::shrink() {
    constexpr size_t kKept = 1 << 20;  // entries
    if (scratch_.ids.capacity() > kKept) scratch_ = {};
    if (long_ids_.capacity() > kKept) std::vector<uint32_t>().swap(long_ids_);
    if (cut_ids_.capacity() > kKept) cut_ids_ = IdBuffer();
}

void PieceEncoder::start(IdBuffer& out) {
    out_ = &out;
    document_begin_ = out.size();
    waiting_ = waiting_bytes_ = num_away_ = 0;
    marks_.clear();
    limits_.clear();
}

void PieceEncoder::add(const uint8_t* text, size_t readable, uint32_t begin, const uint32_t* ends, size_t count) {
    while (count) {
        if (waiting_ == kBatch) flush();
        size_t taken = std::min(count, kBatch - waiting_);
        limits_.push_back({waiting_, text + readable});
        put_pieces(text, readable, begin, ends, taken);
        begin = ends[taken - 1];
        ends += taken;
        count -= taken;
    }
}

void PieceEncoder::put_pieces(const uint8_t* text, size_t readable, uint32_t begin, const uint32_t* ends, size_t count) {
    PieceTable::Homes homes = table_.homes();
    size_t num_safe = count;  // pieces with 16 readable bytes
    while (num_safe && (num_safe > 1 ? ends[num_safe - 2] : begin) + size_t{16} > readable) --num_safe;
    Waiting* next = batch_ + waiting_;
    const uint8_t* start = text + begin;
    for (size_t i = 0; i < count; ++i, ++next) {
        const uint8_t* end = text + ends[i];
        auto size = static_cast<size_t>(end - start);
        if (size <= ShortKey::kMaxBytes) [[likely]] {
            *next = waiting(i < num_safe ? ShortKey::load(start, size) : ShortKey::load_safely(start, size), 0, start, homes);
        } else {
            *next = waiting_long(view(start, size), 0);
        }
        start = end;
    }
    waiting_ += count;
    waiting_bytes_ += static_cast<size_t>(start - text) - begin;
}

inline PieceEncoder::Waiting PieceEncoder::waiting(ShortKey key, uint64_t flag, const uint8_t* start, PieceTable::Homes homes) {
    const ShortSlot* home = homes.of(key.hash_of_whole());
    __builtin_prefetch(home);
    return {{key.low, key.high | flag}, home, start};
}

__attribute__((noinline)) PieceEncoder::Waiting PieceEncoder::waiting_long(std::string_view piece, uint64_t flag) const {
    uint64_t hash = 0;
    if (piece.size() <= kLongestRemembered) {
        hash = hash_bytes(piece) ^ flag;
        table_.prefetch_long(hash);
    }
    return {ShortKey::of_long(hash, piece.size(), flag != 0), table_.homes().of(0), bytes_of(piece)};
}

// Scripts of three bytes a character (Chinese, Korean, Thai, ...) have cuts nearly everywhere, other words hardly any.
// The second byte counts for what follows a space.
bool PieceEncoder::is_cut_first(size_t i) const {
    const uint8_t* piece = batch_[i].start;
    return parts_ && (piece[0] >= 0xE0 || (batch_[i].size() > 1 && piece[1] >= 0xE0));
}

void PieceEncoder::add_parts(const uint8_t* piece, size_t size, size_t readable) {
    const CoverFilter& cover = model_.cover();
    uint32_t cuts[kCutsAtATime];
    for (size_t start = 0, at = 0; start < size;) {
        size_t num_cuts = 0;
        while (at < size && num_cuts < kCutsAtATime) {  // whether there is a cut cannot be guessed: no branch on it
            at += utf8_length(piece[at]);
            bool is_inside = at >= 3 && at + 3 <= readable;
            bool may_cover = at < size && (is_inside ? cover.may_cover_between(piece + at) : cover.may_cover(piece, size, at));
            cuts[num_cuts] = static_cast<uint32_t>(at);
            num_cuts += !may_cover;
        }
        for (size_t i = 0; i < num_cuts; ++i) {
            put_part(piece + start, cuts[i] - start, readable - start, start == 0 && cuts[i] == size);
            start = cuts[i];
        }
    }
}

void PieceEncoder::put_part(const uint8_t* part, size_t size, size_t readable, bool is_whole) {
    if (waiting_ == kBatch) flush();
    uint64_t flag = is_whole ? 0 : part_flag_;
    batch_[waiting_++] = size <= ShortKey::kMaxBytes ? waiting(load_key(part, size, readable), flag, part, table_.homes())
                                                     : waiting_long(view(part, size), flag);
    waiting_bytes_ += size;
}

void PieceEncoder::flush() {
    if (waiting_) {
        size_t num_missing = find_slots();
        if (num_missing && !table_.make_room(num_missing)) num_missing = find_slots_again();
        if (num_missing) learn(num_missing);
    }
    uint32_t* ids = out_->reserve(waiting_bytes_ + 4);
    size_t from = 0;
    for (const Mark& mark : marks_) {
        ids = write(from, mark.at, ids);
        from = mark.at;
        auto end = static_cast<size_t>(ids - out_->data());
        *mark.size = static_cast<int64_t>(end - document_begin_);
        document_begin_ = end;
    }
    out_->commit(write(from, waiting_, ids));
    bring_home();
    waiting_ = waiting_bytes_ = 0;
    marks_.clear();
    limits_.clear();
}

// Nothing here waits on a guess: what was prefetched is compared, and what is missing is noted.
size_t PieceEncoder::find_slots() {
    size_t num_missing = 0, count = waiting_;
    for (size_t i = 0; i < count; ++i) {
        const ShortSlot* home = batch_[i].slot;
        unsigned found = which_has(home, batch_[i].key);
        batch_[i].slot = home + ((found & 0xFF) != 0xFF);
        missing_[num_missing] = static_cast<uint16_t>(i);
        num_missing += ((found & 0xFF) != 0xFF) & (found < 0xFF00);
    }
    return num_missing;
}

size_t PieceEncoder::find_slots_again() {
    PieceTable::Homes homes = table_.homes();
    for (size_t i = 0; i < waiting_; ++i) batch_[i].slot = homes.of(batch_[i].hash());
    return find_slots();
}

uint32_t PieceEncoder::single_token(const ShortKey& key, uint64_t hash) const {
    const ShortTokens::Token* token = model_.short_tokens().find(key.as_whole(), hash);
    return token && (token->is_reachable || (!key.is_part() && model_.whole_piece_first())) ? token->id : kNoId;
}

void PieceEncoder::learn(size_t num_missing) {
    for (size_t m = 0; m < num_missing; ++m) model_.short_tokens().prefetch(batch_[missing_[m]].hash());
    std::fill(cut_of_, cut_of_ + waiting_, int16_t{-1});
    cut_.clear();
    num_found_ = 0;
    found_before_ = table_.times_long_forgotten();
    size_t num_jobs = 0, num_long = 0;
    for (size_t m = 0; m < num_missing; ++m) {
        uint16_t i = missing_[m];
        if (!batch_[i].key.is_long()) {
            learn_short(i, num_jobs);
            continue;
        }
        batch_[i].slot = &kNowhere;
        std::string_view piece = batch_[i].text();
        if (model_.drops_bytes()) continue;
        if (auto found = table_.find_long(piece, batch_[i].hash()); found.ids) {
            size_t place = kBatch - ++num_found_;
            cut_of_[i] = static_cast<int16_t>(place);
            cut_begin_[place] = found.ids;
            cut_sizes_[place] = static_cast<int64_t>(found.count);
            continue;
        }
        if (long_token(i) != kNoId) continue;
        if (is_cut_first(i)) {
            cut_.push_back(i);
        } else if (piece.size() <= LongJob::kMaxBytes) {
            long_hashes_[num_long] = batch_[i].hash();
            long_jobs_[num_long++].set(piece);
        }
    }
    merge_many<16>(model_, jobs_.get(), num_jobs);
    merge_many<32>(model_, long_jobs_.get(), num_long);
    for (size_t j = 0; j < num_jobs; ++j) table_.fill(claimed_[j], jobs_[j].ids, jobs_[j].count);
    for (size_t j = 0; j < num_long; ++j) {
        const LongJob& job = long_jobs_[j];
        if (!table_.find_long(job.text, long_hashes_[j]).ids) table_.insert_long(job.text, long_hashes_[j], job.ids, job.count);
    }
    if (!cut_.empty()) encode_cut();
}

// A piece met twice in a batch finds the slot that its first occurrence has claimed.
inline void PieceEncoder::learn_short(uint16_t i, size_t& num_jobs) {
    const ShortKey& key = batch_[i].key;
    uint64_t hash = key.hash();
    batch_[i].slot = &kNowhere;
    if (const ShortSlot* known = table_.find(key, hash)) {
        batch_[i].slot = known;
        away_[num_away_++] = i;
        return;
    }
    uint32_t id = single_token(key, hash);
    if (id == kNoId && model_.drops_bytes()) return;
    if (id == kNoId && is_cut_first(i)) return cut_.push_back(i);
    ShortSlot* slot = table_.claim(key, hash);
    if (!slot) return;
    batch_[i].slot = slot;
    if (id != kNoId) return table_.fill(slot, &id, 1);
    claimed_[num_jobs] = slot;
    ShortJob& job = jobs_[num_jobs++];
    job.text = batch_[i].text();
    std::memcpy(job.bytes, &key, sizeof job.bytes);
    job.bytes[ShortKey::kMaxBytes] = 0;
}

// The encoder of parts leaves all where it is: slots that the other has found are still to be written.
void PieceEncoder::bring_home() {
    for (size_t a = 0; parts_ && a < num_away_; ++a) {
        const Waiting& piece = batch_[away_[a]];
        table_.bring_home(piece.key, piece.slot, piece.key.hash());
    }
    num_away_ = 0;
}

void PieceEncoder::encode_cut() {
    size_t generation = table_.generation(), limit = 0;
    cut_ids_.clear();
    parts_->start(cut_ids_);
    for (size_t c = 0; c < cut_.size(); ++c) {
        size_t i = cut_[c];
        while (limit + 1 < limits_.size() && limits_[limit + 1].first <= i) ++limit;
        parts_->add_parts(batch_[i].start, batch_[i].size(), static_cast<size_t>(limits_[limit].end - batch_[i].start));
        parts_->end_document(&cut_sizes_[c]);
    }
    parts_->flush();
    const uint32_t* ids = cut_ids_.data();
    for (size_t c = 0; c < cut_.size(); ++c) {
        size_t i = cut_[c];
        cut_of_[i] = static_cast<int16_t>(c);
        cut_begin_[c] = ids;
        if (!batch_[i].key.is_long() || was_seen(batch_[i].hash())) remember(i, ids, static_cast<size_t>(cut_sizes_[c]));
        ids += cut_sizes_[c];
    }
    if (table_.generation() != generation) find_again(0);
}

// Most pieces that are cut never come back, and entering one costs as much as cutting it.
bool PieceEncoder::was_seen(uint64_t hash) {
    uint64_t bit = 1ull << (hash >> kSeenShift & 63), &word = seen_[hash >> (kSeenShift + 6)];
    if (word & bit) return true;
    word |= bit;
    if (++num_seen_ > seen_.size() * 32) {  // half full
        std::fill(seen_.begin(), seen_.end(), 0);
        num_seen_ = 0;
    }
    return false;
}

void PieceEncoder::remember(size_t i, const uint32_t* ids, size_t count) {
    const Waiting& piece = batch_[i];
    uint64_t hash = piece.hash();
    if (!piece.key.is_long()) {
        if (!table_.find(piece.key, hash)) table_.insert(piece.key, hash, ids, count);
    } else if (piece.size() <= kLongestRemembered && !table_.find_long(piece.text(), hash).ids) {
        table_.insert_long(piece.text(), hash, ids, count);
    }
}

void PieceEncoder::find_again(size_t from) {
    for (size_t i = from; i < waiting_; ++i) {
        const ShortSlot* slot = table_.find(batch_[i].key, batch_[i].hash());
        batch_[i].slot = slot ? slot : &kNowhere;
    }
}

bool PieceEncoder::has_ids(size_t i) const {
    bool is_cut = cut_of_[i] < static_cast<int16_t>(kBatch - num_found_);
    return cut_of_[i] >= 0 && (is_cut || table_.times_long_forgotten() == found_before_);
}

uint32_t* PieceEncoder::write(size_t from, size_t to, uint32_t* out) {
    size_t generation = table_.generation();
    for (size_t i = from; i < to; ++i) {
        const ShortSlot* slot = batch_[i].slot;
        uint32_t count = slot->count;
        if (count <= 3) [[likely]] {
            std::memcpy(out, reinterpret_cast<const uint8_t*>(slot) + offsetof(ShortSlot, ids), 16);  // and one more, to be written over
            out += count;
        } else if (slot != &kNowhere) {
            out = write_slot(*slot, out);
        } else if (has_ids(i)) {
            out = std::copy_n(cut_begin_[cut_of_[i]], cut_sizes_[cut_of_[i]], out);
        } else {
            out = batch_[i].key.is_long() ? encode_long(i, out) : encode_short(i, out);
            if (table_.generation() == generation) continue;
            generation = table_.generation();  // slots have moved
            find_again(i + 1);
        }
    }
    return out;
}

uint32_t* PieceEncoder::write_slot(const ShortSlot& slot, uint32_t* out) const {
    const uint32_t* ids = slot.count <= 3 ? slot.ids : table_.arena(slot.ids[0]);
    return std::copy(ids, ids + slot.count, out);
}

}  // namespace gristmill
