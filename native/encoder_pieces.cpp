#include "encoder_pieces.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "utf8.hpp"

namespace gristmill {

namespace {
constexpr size_t kLongestRemembered = 256;  // longer pieces seldom come back
constexpr size_t kCutsAtATime = 256;

const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
std::string_view view(const uint8_t* bytes, size_t size) { return {reinterpret_cast<const char*>(bytes), size}; }

ShortKey load_key(const uint8_t* bytes, size_t size, size_t readable) {
    return readable >= 16 ? ShortKey::load(bytes, size) : ShortKey::load_safely(bytes, size);
}

// Scripts of three bytes a character (Chinese, Korean, Thai, ...) have cuts nearly everywhere, other words hardly any.
// The second byte counts for what follows a space. Both are at least E0 when their three upper bits are set.
bool is_cut_first(uint64_t first_bytes) { return first_bytes & first_bytes << 1 & first_bytes << 2 & 0x8080; }
bool has_long_characters(const uint8_t* text, size_t size) {
    uint8_t largest = 0;
    for (size_t i = 0; i < size; ++i) largest = std::max(largest, text[i]);
    return largest >= 0xE0;
}
}  // namespace

PieceEncoder::PieceEncoder(const Model& model, size_t cache_bytes)
    : model_(model), has_parts_(!model.drops_bytes()), pieces_(cache_bytes) {
    if (model_.has_unreachable_wholes()) part_flag_ = ShortKey::kPart;
}

size_t PieceEncoder::memory_bytes() const {
    size_t words = scratch_.ids.capacity() + scratch_.next.capacity() + scratch_.previous.capacity() + long_ids_.capacity();
    return pieces_.memory_bytes() + words * sizeof(uint32_t);
}

void PieceEncoder::shrink() {
    constexpr size_t kKept = 1 << 20;  // entries
    for (auto* buffer : {&scratch_.ids, &scratch_.next, &scratch_.previous, &long_ids_}) {
        if (buffer->capacity() > kKept) std::vector<uint32_t>().swap(*buffer);
    }
}

void PieceEncoder::start(IdBuffer& out) {
    out_ = &out;
    document_begin_ = out.size();
    waiting_ = waiting_bytes_ = 0;
    marks_.clear();
}

void PieceEncoder::add(const uint8_t* text, size_t readable, uint32_t begin, const uint32_t* ends, size_t count) {
    bool may_cut = has_parts_ && count && has_long_characters(text + begin, ends[count - 1] - begin);
    while (count) {
        size_t room = std::min(count, kBatch - waiting_);
        size_t taken = may_cut ? put_whole<true>(text, readable, begin, ends, room) : put_whole<false>(text, readable, begin, ends, room);
        if (taken) begin = ends[taken - 1];
        ends += taken;
        count -= taken;
        if (waiting_ == kBatch) {
            flush();
        } else if (count) {
            taken = put_parts(text, readable, begin, ends, count);
            begin = ends[taken - 1];
            ends += taken;
            count -= taken;
        }
    }
}

// As many as come before one that has to be cut.
template <bool kMayCut>
size_t PieceEncoder::put_whole(const uint8_t* text, size_t readable, uint32_t begin, const uint32_t* ends, size_t count) {
    PieceTable::Homes homes = pieces_.homes();
    size_t first = waiting_, i = 0, start = begin;
    size_t num_safe = count;  // pieces with 16 readable bytes
    while (num_safe && (num_safe > 1 ? ends[num_safe - 2] : start) + 16 > readable) --num_safe;
    for (; i < count; ++i) {
        size_t end = ends[i], size = end - start;
        const uint8_t* piece = text + start;
        if (size <= ShortKey::kMaxBytes) [[likely]] {
            ShortKey key = i < num_safe ? ShortKey::load(piece, size) : ShortKey::load_safely(piece, size);
            if (kMayCut && is_cut_first(key.low)) break;
            put_key(first + i, key, 0, homes);
        } else {
            if (kMayCut && is_cut_first(piece[0] | piece[1] << 8)) break;
            put_long(first + i, view(piece, size), 0);
        }
        batch_.starts[first + i] = piece;
        batch_.sizes[first + i] = static_cast<uint32_t>(size);
        start = end;
    }
    waiting_ += i;
    waiting_bytes_ += start - begin;
    return i;
}

inline void PieceEncoder::put_key(size_t i, ShortKey key, uint64_t flag, PieceTable::Homes homes) {
    uint64_t hash = key.hash();
    __builtin_prefetch(homes.of(hash));
    batch_.keys[i] = {key.low, key.high | flag};
    batch_.hashes[i] = hash;
}

__attribute__((noinline)) void PieceEncoder::put_long(size_t i, std::string_view piece, uint64_t flag) {
    batch_.keys[i] = flag ? ShortKey::never_part() : ShortKey::never();
    batch_.hashes[i] = 0;
    if (piece.size() > kLongestRemembered) return;
    batch_.hashes[i] = hash_bytes(piece) ^ flag;
    pieces_.prefetch_long(batch_.hashes[i]);
}

// The first piece has to be cut; those after it are taken along as far as they have to be, too. Returns how many.
size_t PieceEncoder::put_parts(const uint8_t* text, size_t readable, uint32_t begin, const uint32_t* ends, size_t count) {
    size_t taken = 0;
    for (uint32_t start = begin; taken < count; start = ends[taken++]) {
        size_t size = ends[taken] - start;
        bool is_cut = text[start] >= 0xE0 || (size > 1 && text[start + 1] >= 0xE0);
        if (!is_cut || (part_flag_ && model_.may_be_unreachable_whole(view(text + start, size)))) break;
    }
    if (taken == 0) {  // such a piece is looked up whole
        put_part(text + begin, ends[0] - begin, readable - begin, 0);
        return 1;
    }
    uint64_t cuts[kCutsAtATime];  // where, shifted over whether a piece ends there
    uint64_t start = begin, at = begin, was_end = 1;
    for (size_t piece = 0; piece < taken;) {
        size_t num_cuts = 0;
        while (piece < taken && num_cuts < kCutsAtATime) {  // whether there is a cut cannot be guessed: no branch on it
            at += utf8_length(text[at]);
            uint64_t is_end = at == ends[piece];
            cuts[num_cuts] = at << 1 | is_end;
            piece += is_end;
            num_cuts += is_end | !may_cover(text, readable, at);
        }
        for (size_t i = 0; i < num_cuts; ++i) {
            uint64_t cut = cuts[i] >> 1, is_end = cuts[i] & 1;
            put_part(text + start, cut - start, readable - start, part_flag_ & ((was_end & is_end) - 1));
            start = cut;
            was_end = is_end;
        }
    }
    return taken;
}

inline void PieceEncoder::put_part(const uint8_t* part, size_t size, size_t readable, uint64_t flag) {
    if (waiting_ == kBatch) flush();
    if (size <= ShortKey::kMaxBytes) {
        put_key(waiting_, load_key(part, size, readable), flag, pieces_.homes());
    } else {
        put_long(waiting_, view(part, size), flag);
    }
    batch_.starts[waiting_] = part;
    batch_.sizes[waiting_++] = static_cast<uint32_t>(size);
    waiting_bytes_ += size;
}

// Bytes around the piece are looked at, too: what no token covers with them, none covers in the piece.
inline bool PieceEncoder::may_cover(const uint8_t* text, size_t size, size_t at) const {
    if (at < 3 || at + 3 > size) [[unlikely]] return at >= size || model_.cover().may_cover(text, size, at);
    return model_.cover().may_cover_between(text + at);
}

void PieceEncoder::flush() {
    if (waiting_) {
        size_t num_missing = find_slots();
        if (num_missing && !pieces_.make_room(num_missing)) num_missing = find_slots();
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
    waiting_ = waiting_bytes_ = 0;
    marks_.clear();
}

// Nothing here waits on a guess: what was prefetched is compared, and what is missing is noted.
size_t PieceEncoder::find_slots() {
    PieceTable::Homes homes = pieces_.homes();
    size_t num_missing = 0, count = waiting_;
    for (size_t i = 0; i < count; ++i) {
        const ShortSlot* slot = homes.of(batch_.hashes[i]);
        bool is_first = slot[0].key == batch_.keys[i], is_second = slot[1].key == batch_.keys[i];
        batch_.slots[i] = slot + !is_first;
        batch_.missing[num_missing] = static_cast<uint16_t>(i);
        num_missing += !(is_first | is_second);
    }
    return num_missing;
}

uint32_t PieceEncoder::single_token(const ShortKey& key, uint64_t hash) const {
    const ShortTokens::Token* token = model_.short_tokens().find({key.low, key.high & ~ShortKey::kPart}, hash);
    bool is_whole = !(key.high & ShortKey::kPart);
    return token && (token->is_reachable || (is_whole && model_.whole_piece_first())) ? token->id : kNoId;
}

void PieceEncoder::learn(size_t num_missing) {
    for (size_t m = 0; m < num_missing; ++m) model_.short_tokens().prefetch(batch_.hashes[batch_.missing[m]]);
    size_t num_jobs = 0, num_long = 0;
    for (size_t m = 0; m < num_missing; ++m) {
        size_t i = batch_.missing[m];
        if (batch_.sizes[i] <= ShortKey::kMaxBytes) {
            learn_short(i, num_jobs);
            continue;
        }
        batch_.slots[i] = nullptr;
        std::string_view piece = batch_.piece(i);
        bool is_mergeable = piece.size() <= LongJob::kMaxBytes && !model_.drops_bytes();
        if (!is_mergeable || pieces_.find_long(piece, batch_.hashes[i]).ids || long_token(i) != kNoId) continue;
        long_hashes_[num_long] = batch_.hashes[i];
        long_jobs_[num_long++].set(piece);
    }
    merge_many<16>(model_, jobs_.get(), num_jobs);
    merge_many<32>(model_, long_jobs_.get(), num_long);
    for (size_t j = 0; j < num_jobs; ++j) pieces_.fill(claimed_[j], jobs_[j].ids, jobs_[j].count);
    for (size_t j = 0; j < num_long; ++j) {
        const LongJob& job = long_jobs_[j];
        if (!pieces_.find_long(job.text, long_hashes_[j]).ids) pieces_.insert_long(job.text, long_hashes_[j], job.ids, job.count);
    }
}

// A piece met twice in a batch finds the slot that its first occurrence has claimed.
inline void PieceEncoder::learn_short(size_t i, size_t& num_jobs) {
    const ShortKey& key = batch_.keys[i];
    uint64_t hash = batch_.hashes[i];
    batch_.slots[i] = pieces_.find(key, hash);
    if (batch_.slots[i]) return;
    uint32_t id = single_token(key, hash);
    if (id == kNoId && model_.drops_bytes()) return;
    ShortSlot* slot = pieces_.claim(key, hash);
    batch_.slots[i] = slot;
    if (!slot) return;
    if (id != kNoId) return pieces_.fill(slot, &id, 1);
    claimed_[num_jobs] = slot;
    ShortJob& job = jobs_[num_jobs++];
    job.text = batch_.piece(i);
    std::memcpy(job.bytes, &key, sizeof job.bytes);
    job.bytes[ShortKey::kMaxBytes] = 0;
}

uint32_t* PieceEncoder::write(size_t from, size_t to, uint32_t* out) {
    size_t generation = pieces_.generation();
    for (size_t i = from; i < to; ++i) {
        const ShortSlot* slot = batch_.slots[i];
        if (slot && slot->count <= 3) [[likely]] {
            std::memcpy(out, slot->ids, sizeof slot->ids);
            out += slot->count;
            continue;
        }
        out = batch_.sizes[i] <= ShortKey::kMaxBytes ? encode_short(i, out) : encode_long(i, out);
        if (pieces_.generation() != generation) {  // the table has moved
            generation = pieces_.generation();
            for (size_t j = i + 1; j < waiting_; ++j) batch_.slots[j] = pieces_.find(batch_.keys[j], batch_.hashes[j]);
        }
    }
    return out;
}

uint32_t* PieceEncoder::write_slot(const ShortSlot& slot, uint32_t* out) const {
    const uint32_t* ids = slot.count <= 3 ? slot.ids : pieces_.arena(slot.ids[0]);
    return std::copy(ids, ids + slot.count, out);
}

uint32_t* PieceEncoder::encode_short(size_t i, uint32_t* out) {
    const ShortKey& key = batch_.keys[i];
    uint64_t hash = batch_.hashes[i];
    if (const ShortSlot* slot = pieces_.find(key, hash)) return write_slot(*slot, out);
    uint32_t* end;
    if (uint32_t id = single_token(key, hash); id != kNoId) {
        *out = id;
        end = out + 1;
    } else if (has_dropped_bytes(batch_.piece(i))) {
        end = encode_without_dropped(batch_.piece(i), out);
    } else {
        end = merge(batch_.piece(i), out);
    }
    pieces_.insert(key, hash, out, static_cast<size_t>(end - out));
    return end;
}

uint32_t PieceEncoder::long_token(size_t i) const {
    bool is_part = batch_.keys[i] == ShortKey::never_part();
    return model_.find_long(batch_.piece(i), is_part);
}

uint32_t* PieceEncoder::encode_long(size_t i, uint32_t* out) {
    std::string_view piece = batch_.piece(i);
    bool is_remembered = piece.size() <= kLongestRemembered;
    if (is_remembered) {
        auto found = pieces_.find_long(piece, batch_.hashes[i]);
        if (found.ids) return std::copy(found.ids, found.ids + found.count, out);
    }
    uint32_t* end;
    if (uint32_t id = long_token(i); id != kNoId) {
        *out = id;
        end = out + 1;
    } else if (has_dropped_bytes(piece)) {
        end = encode_without_dropped(piece, out);
    } else {
        end = encode_by_cuts(piece, out);
    }
    if (is_remembered) pieces_.insert_long(piece, batch_.hashes[i], out, static_cast<size_t>(end - out));
    return end;
}

uint32_t* PieceEncoder::encode_by_cuts(std::string_view piece, uint32_t* out) {
    size_t begin = 0;
    for (size_t at = 0; at < piece.size();) {
        at += utf8_length(bytes_of(piece)[at]);  // cuts between characters are enough
        if (at < piece.size() && model_.cover().may_cover(bytes_of(piece), piece.size(), at)) continue;
        std::string_view part = piece.substr(begin, at - begin);
        out = part.size() <= ShortKey::kMaxBytes ? encode_part(part, out) : merge(part, out);
        begin = at;
    }
    return out;
}

uint32_t* PieceEncoder::encode_part(std::string_view part, uint32_t* out) {
    ShortKey key = ShortKey::load_safely(bytes_of(part), part.size());
    uint64_t hash = key.hash();
    key.high |= part_flag_;
    if (const ShortSlot* slot = pieces_.find(key, hash)) return write_slot(*slot, out);
    uint32_t* end;
    if (uint32_t id = single_token(key, hash); id != kNoId) {
        *out = id;
        end = out + 1;
    } else {
        end = merge(part, out);
    }
    pieces_.insert(key, hash, out, static_cast<size_t>(end - out));
    return end;
}

bool PieceEncoder::has_dropped_bytes(std::string_view piece) const {
    return model_.drops_bytes() && std::any_of(piece.begin(), piece.end(), [this](char c) {
               return model_.byte_id(static_cast<uint8_t>(c)) == kNoId;
           });
}

uint32_t* PieceEncoder::encode_without_dropped(std::string_view piece, uint32_t* out) {
    std::string kept;
    for (char c : piece) {
        if (model_.byte_id(static_cast<uint8_t>(c)) != kNoId) kept.push_back(c);
    }
    return kept.empty() ? out : encode_by_cuts(kept, out);
}

uint32_t* PieceEncoder::merge(std::string_view part, uint32_t* out) {
    if (part.size() <= kShortSymbols) return out + merge_short(model_, part, out);
    long_ids_.clear();
    merge_long(model_, part, scratch_, long_ids_);
    return std::copy(long_ids_.begin(), long_ids_.end(), out);
}

}  // namespace gristmill
