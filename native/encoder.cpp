#include "encoder.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <type_traits>

#include "utf8.hpp"

namespace gristmill {

namespace {
constexpr size_t kLargest = 0xFFFFFF00u;
constexpr size_t kBlock = 8192;            // bytes split at a time: their ends stay in L1
constexpr size_t kLongestRemembered = 256;  // longer pieces seldom come back

// Scripts of three bytes a character (Chinese, Korean, Thai, ...) have cuts nearly everywhere, other words hardly any.
bool is_cut_first(std::string_view piece) {
    return static_cast<uint8_t>(piece[0]) >= 0xE0 || (piece.size() > 1 && static_cast<uint8_t>(piece[1]) >= 0xE0);
}
const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
}  // namespace

std::unique_ptr<Transducer> word_transducer(const Model& model) {
    constexpr unsigned kOther = 128;  // column of every character that is not ASCII
    auto is_word = [](unsigned c) {
        return c == kOther || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    };
    std::vector<std::vector<bool>> is_cut(kOther + 1, std::vector<bool>(kOther + 1));
    for (unsigned a = 0; a <= kOther; ++a) {
        for (unsigned b = 0; b <= kOther; ++b) {
            if (is_word(a) && is_word(b)) continue;
            bool covered = false;
            for (unsigned x = a; x < (a == kOther ? 256 : a + 1) && !covered; ++x) {
                for (unsigned y = b; y < (b == kOther ? 256 : b + 1) && !covered; ++y) {
                    covered = model.cover().are_neighbours(static_cast<uint8_t>(x), static_cast<uint8_t>(y));
                }
            }
            is_cut[a][b] = !covered;
        }
    }
    std::map<std::vector<bool>, unsigned> config_of_row;
    std::vector<unsigned> config_of(kOther + 1);
    std::vector<std::vector<bool>> rows{std::vector<bool>(kOther + 1)};  // config 0: nothing read yet
    for (unsigned a = 0; a <= kOther; ++a) {
        auto [it, is_new] = config_of_row.try_emplace(is_cut[a], static_cast<unsigned>(rows.size()));
        if (is_new) rows.push_back(is_cut[a]);
        config_of[a] = it->second;
    }
    std::vector<uint16_t> table(rows.size() * 256);
    for (size_t q = 0; q < rows.size(); ++q) {
        for (unsigned b = 0; b <= kOther; ++b) {
            table[q * 256 + b] = static_cast<uint16_t>(config_of[b] << 8 | (rows[q][b] ? 1 : 0));
        }
        table[q * 256 + kOther + 1] = 1;
    }
    ClassTable classes{std::vector<uint16_t>(0x1100), std::vector<uint8_t>(256)};
    return std::make_unique<Transducer>(std::move(classes), std::move(table), 1);
}

Encoder::Encoder(const Program& program, size_t cache_bytes)
    : program_(program), model_(*program.model), pieces_(cache_bytes), part_flag_(0) {
    for (uint32_t id = 0; id < model_.num_ids() && model_.whole_piece_first(); ++id) {
        if (!model_.token(id).empty() && !model_.is_reachable(id)) part_flag_ = 0x10ull << 56;
    }
}

size_t Encoder::memory_bytes() const {
    size_t words = ends_.capacity() + scratch_.ids.capacity() + scratch_.next.capacity() + scratch_.previous.capacity() +
                   long_ids_.capacity();
    size_t pieces = chain_pieces_[0].capacity() + chain_pieces_[1].capacity();
    return pieces_.memory_bytes() + words * sizeof(uint32_t) + pieces * sizeof(PlainSplitter::Piece) +
           normalized_.capacity() + prefixed_.capacity();
}

void Encoder::shrink() {
    constexpr size_t kKept = 1 << 20;  // entries
    auto release = [](auto& buffer) {
        if (buffer.capacity() > kKept) std::remove_reference_t<decltype(buffer)>().swap(buffer);
    };
    release(ends_);
    release(scratch_.ids);
    release(scratch_.next);
    release(scratch_.previous);
    release(long_ids_);
    release(chain_pieces_[0]);
    release(chain_pieces_[1]);
    release(normalized_);
    release(prefixed_);
}

void Encoder::encode(std::string_view document, SpecialPolicy policy, IdBuffer& out) {
    if (program_.raw_tokens->is_idle(policy)) {
        encode_raw_stretch(document, true, policy, out);
        return;
    }
    size_t from = 0, taken = 0;
    AddedTokens::Match match;
    while (program_.raw_tokens->next(document, from, taken, policy, match)) {
        if (taken < match.begin) {
            encode_raw_stretch(document.substr(taken, match.begin - taken), taken == 0, policy, out);
        }
        out.push(match.token->id);
        taken = match.end;
    }
    if (taken < document.size()) encode_raw_stretch(document.substr(taken), taken == 0, policy, out);
}

std::string_view Encoder::normalized(std::string_view text) {
    if (program_.form != Form::none && !is_normalized(program_.form, bytes_of(text), text.size())) {
        normalized_.clear();
        normalize(program_.form, bytes_of(text), text.size(), normalized_);
        text = normalized_;
    }
    if (program_.spaces_as_marks && text.find(kMark) != std::string_view::npos) {
        normalized_ = marks_to_spaces(text);
        text = normalized_;
    }
    return text;
}

std::string_view Encoder::prefixed(std::string_view text) {
    prefixed_.assign(1, ' ').append(text);
    return prefixed_;
}

void Encoder::encode_raw_stretch(std::string_view text, bool is_first, SpecialPolicy policy, IdBuffer& out) {
    const Prefix& prefix = program_.prefix;
    text = normalized(text);
    if (text.empty()) return;
    if (prefix.before_normalized_tokens && (prefix.where == Prefix::Where::always || is_first) &&
        prefix.where != Prefix::Where::nowhere && !(prefix.unless_present && text[0] == ' ')) {
        text = prefixed(text);
    }
    if (program_.normalized_tokens->is_idle(policy)) {
        encode_stretch(text, is_first, out);
        return;
    }
    size_t from = 0, taken = 0;
    AddedTokens::Match match;
    while (program_.normalized_tokens->next(text, from, taken, policy, match)) {
        if (taken < match.begin) encode_stretch(text.substr(taken, match.begin - taken), is_first && taken == 0, out);
        out.push(match.token->id);
        taken = match.end;
    }
    if (taken < text.size()) encode_stretch(text.substr(taken), is_first && taken == 0, out);
}

void Encoder::encode_stretch(std::string_view text, bool is_first, IdBuffer& out) {
    if (text.size() > kLargest) throw TextTooLarge();
    const Prefix& prefix = program_.prefix;
    if (!prefix.before_normalized_tokens && prefix.where != Prefix::Where::nowhere &&
        (prefix.where == Prefix::Where::always || is_first) && !(prefix.unless_present && text[0] == ' ')) {
        text = prefixed(text);
    }
    if (program_.transducer) {
        encode_by_transducer(text, out);
    } else {
        encode_by_chain(text, out);
    }
}

void Encoder::encode_by_transducer(std::string_view text, IdBuffer& out) {
    const Transducer& transducer = *program_.transducer;
    const uint8_t* bytes = bytes_of(text);
    for (size_t begin = 0; begin < text.size();) {
        size_t end = text.size();
        if (end - begin > kBlock + kBlock / 2) end = transducer.safe_cut(bytes, begin + kBlock, end);
        size_t size = end - begin;
        if (ends_.size() < size) ends_.resize(size);
        auto pieces = transducer.split(bytes + begin, 0, size, end == text.size(), ends_.data());
        uint32_t* ids = out.reserve(size + 4);
        uint32_t start = 0;
        for (size_t i = 0; i < pieces.num_runs; ++i) {
            auto run = pieces.runs[i];
            ids = look_up_pieces(bytes + begin, text.size() - begin, start, run.ends, run.count, ids);
            start = run.ends[run.count - 1];
        }
        out.commit(ids);
        begin = end;
    }
}

void Encoder::encode_by_chain(std::string_view text, IdBuffer& out) {
    split_by_chain(program_.chain, bytes_of(text), text.size(), chain_pieces_[0], chain_pieces_[1]);
    for (auto piece : chain_pieces_[0]) {
        uint32_t end = piece.end - piece.begin;
        uint32_t* ids = out.reserve(end + 4);
        out.commit(look_up_pieces(bytes_of(text) + piece.begin, text.size() - piece.begin, 0, &end, 1, ids));
    }
}

// Three sweeps over a batch, so that the cache misses of many pieces overlap and nothing waits on a guess: hash and
// prefetch; find slots, with what is missing learned side by side; write ids. `size` bytes are readable at text.
uint32_t* Encoder::look_up_pieces(const uint8_t* text, size_t size, uint32_t start, const uint32_t* ends, size_t count,
                                  uint32_t* out) {
    for (size_t first = 0; first < count; first += kBatch) {
        size_t batch = std::min(kBatch, count - first);
        batch_.ends = ends + first;
        batch_.start = start;
        hash_batch(text, size, batch);
        size_t num_missing = 0;
        for (size_t i = 0; i < batch; ++i) {
            const ShortSlot* slot = pieces_.home(batch_.hashes[i]);
            bool is_first = slot[0].key == batch_.keys[i], is_second = slot[1].key == batch_.keys[i];
            batch_.slots[i] = slot + !is_first;
            batch_.missing[num_missing] = static_cast<uint16_t>(i);
            num_missing += !(is_first | is_second);
        }
        if (num_missing) learn(text, batch, num_missing);
        out = write_batch(text, size, batch, out);
        start = ends[first + batch - 1];
    }
    return out;
}

void Encoder::hash_batch(const uint8_t* text, size_t size, size_t batch) {
    uint32_t start = batch_.start;
    for (size_t i = 0; i < batch; ++i) {
        uint32_t end = batch_.ends[i];
        size_t length = end - start;
        if (length > ShortKey::kMaxBytes) [[unlikely]] {
            batch_.keys[i] = ShortKey::never();
            batch_.hashes[i] = 0;
            if (length <= kLongestRemembered) {
                batch_.hashes[i] = hash_bytes({reinterpret_cast<const char*>(text) + start, length});
                pieces_.prefetch_long(batch_.hashes[i]);
            }
        } else {
            batch_.keys[i] = size_t{start} + 16 <= size ? ShortKey::load(text + start, length) : ShortKey::load_safely(text + start, length);
            batch_.hashes[i] = batch_.keys[i].hash();
            __builtin_prefetch(pieces_.home(batch_.hashes[i]));
        }
        start = end;
    }
}

uint32_t* Encoder::write_batch(const uint8_t* text, size_t size, size_t batch, uint32_t* out) {
    size_t generation = pieces_.generation();
    for (size_t i = 0; i < batch; ++i) {
        const ShortSlot* slot = batch_.slots[i];
        if (slot && slot->count <= 3) [[likely]] {
            std::memcpy(out, slot->ids, sizeof slot->ids);
            out += slot->count;
            continue;
        }
        uint32_t start = batch_.start_of(i);
        std::string_view piece(reinterpret_cast<const char*>(text) + start, batch_.ends[i] - start);
        if (piece.size() <= ShortKey::kMaxBytes) {
            out = encode_short(piece, size - start, batch_.keys[i], batch_.hashes[i], out);
        } else {
            out = encode_long(piece, size - start, batch_.hashes[i], out);
        }
        if (pieces_.generation() != generation) {
            generation = pieces_.generation();
            find_again(i + 1, batch);
        }
    }
    return out;
}

void Encoder::learn(const uint8_t* text, size_t batch, size_t num_missing) {
    for (size_t m = 0; m < num_missing; ++m) model_.short_tokens().prefetch(batch_.hashes[batch_.missing[m]]);
    size_t generation = pieces_.generation();
    size_t num_jobs = 0, num_long = 0;
    for (size_t m = 0; m < num_missing; ++m) {
        uint16_t i = batch_.missing[m];
        const ShortKey& key = batch_.keys[i];
        uint64_t hash = batch_.hashes[i];
        uint32_t start = batch_.start_of(i);
        std::string_view piece(reinterpret_cast<const char*>(text) + start, batch_.ends[i] - start);
        bool is_mergeable = piece.size() <= LongJob::kMaxBytes && !is_cut_first(piece) && !model_.drops_bytes();
        batch_.slots[i] = nullptr;
        if (piece.size() > ShortKey::kMaxBytes) {
            if (!is_mergeable || pieces_.find_long(piece, hash).ids || model_.find_whole_long(piece) != kNoId) continue;
            long_jobs_[num_long++].set(piece);
        } else if (!(batch_.slots[i] = pieces_.find(key, hash))) {
            ShortTokens::Token token;
            if (model_.short_tokens().find(key, hash, token) && (model_.whole_piece_first() || token.is_reachable)) {
                batch_.slots[i] = pieces_.insert(key, hash, &token.id, 1);
            } else if (is_mergeable) {
                batch_.missing[num_jobs] = i;
                ShortJob& job = jobs_[num_jobs++];
                job.text = piece;
                std::memcpy(job.bytes, &key, sizeof job.bytes);
                job.bytes[ShortKey::kMaxBytes] = 0;
            }
        }
    }
    merge_many<16>(model_, jobs_.get(), num_jobs);
    merge_many<32>(model_, long_jobs_.get(), num_long);
    for (size_t j = 0; j < num_jobs; ++j) {
        size_t i = batch_.missing[j];
        if ((batch_.slots[i] = pieces_.find(batch_.keys[i], batch_.hashes[i]))) continue;
        batch_.slots[i] = pieces_.insert(batch_.keys[i], batch_.hashes[i], jobs_[j].ids, jobs_[j].count);
    }
    for (size_t j = 0; j < num_long; ++j) {
        const LongJob& job = long_jobs_[j];
        uint64_t hash = hash_bytes(job.text);
        if (!pieces_.find_long(job.text, hash).ids) pieces_.insert_long(job.text, hash, job.ids, job.count);
    }
    if (pieces_.generation() != generation) find_again(0, batch);
}

void Encoder::find_again(size_t from, size_t batch) {
    for (size_t i = from; i < batch; ++i) batch_.slots[i] = pieces_.find(batch_.keys[i], batch_.hashes[i]);
}

uint32_t* Encoder::write_slot(const ShortSlot& slot, uint32_t* out) const {
    if (slot.count <= 3) {
        std::memcpy(out, slot.ids, sizeof slot.ids);
        return out + slot.count;
    }
    const uint32_t* ids = pieces_.arena(slot.ids[0]);
    return std::copy(ids, ids + slot.count, out);
}

uint32_t* Encoder::encode_short(std::string_view piece, size_t readable, const ShortKey& key, uint64_t hash, uint32_t* out) {
    if (const ShortSlot* slot = pieces_.find(key, hash)) return write_slot(*slot, out);
    uint32_t* end;
    ShortTokens::Token token;
    if (model_.short_tokens().find(key, hash, token) && (model_.whole_piece_first() || token.is_reachable)) {
        *out = token.id;
        end = out + 1;
    } else if (has_dropped_bytes(piece)) {
        end = encode_without_dropped(piece, out);
    } else {
        end = is_cut_first(piece) ? encode_by_cuts(piece, readable, out) : merge(piece, out);
    }
    pieces_.insert(key, hash, out, static_cast<size_t>(end - out));
    return end;
}

uint32_t* Encoder::encode_long(std::string_view piece, size_t readable, uint64_t hash, uint32_t* out) {
    bool is_remembered = piece.size() <= kLongestRemembered;
    if (is_remembered) {
        auto found = pieces_.find_long(piece, hash);
        if (found.ids) return std::copy(found.ids, found.ids + found.count, out);
    }
    uint32_t* end;
    if (uint32_t id = model_.find_whole_long(piece); id != kNoId) {
        *out = id;
        end = out + 1;
    } else if (has_dropped_bytes(piece)) {
        end = encode_without_dropped(piece, out);
    } else {
        end = encode_by_cuts(piece, readable, out);
    }
    if (is_remembered) pieces_.insert_long(piece, hash, out, static_cast<size_t>(end - out));
    return end;
}

// First where the parts end, hashing and prefetching each; then the parts.
uint32_t* Encoder::encode_by_cuts(std::string_view piece, size_t readable, uint32_t* out) {
    const uint8_t* bytes = bytes_of(piece);
    size_t at = utf8_length(bytes[0]), done = 0;  // cuts between characters are enough
    while (done < piece.size()) {
        Part parts[kParts];
        size_t count = 0, start = done;
        while (count < kParts && start < piece.size()) {
            if (at >= piece.size() || !model_.cover().may_cover(bytes, piece.size(), at)) {
                parts[count++] = part_of(piece.substr(start, at - start), readable - start);
                start = at;
            }
            if (at < piece.size()) at += utf8_length(bytes[at]);
        }
        if (done == 0 && count == 1 && start == piece.size()) return merge(piece, out);  // no cut
        for (size_t i = 0; i < count; ++i) out = encode_part(parts[i], out);
        done = start;
    }
    return out;
}

Encoder::Part Encoder::part_of(std::string_view text, size_t readable) const {
    Part part{text, {}, {}, 0};
    if (text.size() > ShortKey::kMaxBytes) return part;
    part.plain = readable >= 16 ? ShortKey::load(bytes_of(text), text.size()) : ShortKey::load_safely(bytes_of(text), text.size());
    part.key = {part.plain.low, part.plain.high | part_flag_};
    part.hash = part.key.hash();
    __builtin_prefetch(pieces_.home(part.hash));
    return part;
}

uint32_t* Encoder::encode_part(const Part& part, uint32_t* out) {
    if (part.text.size() > ShortKey::kMaxBytes) return merge(part.text, out);
    if (const ShortSlot* slot = pieces_.find(part.key, part.hash)) return write_slot(*slot, out);
    uint32_t* end;
    ShortTokens::Token token;
    if (model_.short_tokens().find(part.plain, part.plain.hash(), token) && token.is_reachable) {
        *out = token.id;
        end = out + 1;
    } else {
        end = merge(part.text, out);
    }
    pieces_.insert(part.key, part.hash, out, static_cast<size_t>(end - out));
    return end;
}

bool Encoder::has_dropped_bytes(std::string_view piece) const {
    return model_.drops_bytes() && std::any_of(piece.begin(), piece.end(), [this](char c) {
               return model_.byte_id(static_cast<uint8_t>(c)) == kNoId;
           });
}

uint32_t* Encoder::encode_without_dropped(std::string_view piece, uint32_t* out) {
    std::string kept;
    for (char c : piece) {
        if (model_.byte_id(static_cast<uint8_t>(c)) != kNoId) kept.push_back(c);
    }
    return kept.empty() ? out : encode_by_cuts(kept, kept.size(), out);
}

uint32_t* Encoder::merge(std::string_view part, uint32_t* out) {
    if (part.size() <= kShortSymbols) return out + merge_short(model_, part, out);
    long_ids_.clear();
    merge_long(model_, part, scratch_, long_ids_);
    return std::copy(long_ids_.begin(), long_ids_.end(), out);
}

}  // namespace gristmill
