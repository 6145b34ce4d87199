// One piece by itself: those that a batch could not merge side by side, long ones above all.
#include "encoder_pieces.hpp"

#include <algorithm>
#include <string>

#include "utf8.hpp"

namespace gristmill {

namespace {
constexpr size_t kWindowBytes = 1 << 14;  // 20 bytes of memory each while they are merged, and the queue

const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
}  // namespace

uint32_t* PieceEncoder::encode_short(size_t i, uint32_t* out) {
    const ShortKey& key = batch_[i].key;
    uint64_t hash = key.hash();
    if (const ShortSlot* slot = table_.find(key, hash)) return write_slot(*slot, out);
    uint32_t* end;
    if (uint32_t id = single_token(key, hash); id != kNoId) {
        *out = id;
        end = out + 1;
    } else if (has_dropped_bytes(batch_[i].text())) {
        end = encode_without_dropped(batch_[i].text(), out);
    } else {
        end = merge(batch_[i].text(), out);
    }
    table_.insert(key, hash, out, static_cast<size_t>(end - out));
    return end;
}

uint32_t PieceEncoder::long_token(size_t i) const {
    const Waiting& piece = batch_[i];
    bool is_part = piece.key.is_part(), is_hashed = piece.size() <= kLongestRemembered;
    if (is_hashed && !model_.may_be_long_token(piece.hash() ^ (is_part ? part_flag_ : 0))) return kNoId;
    return model_.find_long(piece.text(), is_part);
}

uint32_t* PieceEncoder::encode_long(size_t i, uint32_t* out) {
    std::string_view piece = batch_[i].text();
    bool is_remembered = piece.size() <= kLongestRemembered;
    if (is_remembered) {
        auto found = table_.find_long(piece, batch_[i].hash());
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
    if (is_remembered) table_.insert_long(piece, batch_[i].hash(), out, static_cast<size_t>(end - out));
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
    if (const ShortSlot* slot = table_.find(key, hash)) return write_slot(*slot, out);
    uint32_t* end;
    if (uint32_t id = single_token(key, hash); id != kNoId) {
        *out = id;
        end = out + 1;
    } else {
        end = merge(part, out);
    }
    table_.insert(key, hash, out, static_cast<size_t>(end - out));
    return end;
}

uint32_t* PieceEncoder::encode_alone(std::string_view part, uint32_t* out) {
    if (part.size() <= ShortKey::kMaxBytes) return encode_part(part, out);
    if (part.size() > kLongestRemembered) return merge(part, out);
    uint64_t hash = hash_bytes(part) ^ part_flag_;
    auto found = table_.find_long(part, hash);
    if (found.ids) return std::copy(found.ids, found.ids + found.count, out);
    uint32_t* end = merge(part, out);
    table_.insert_long(part, hash, out, static_cast<size_t>(end - out));
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
    bool is_huge = part.size() > 2 * kWindowBytes;
    if (!is_huge || !merge_by_windows(model_, part, kWindowBytes, scratch_, long_ids_)) merge_long(model_, part, scratch_, long_ids_);
    return std::copy(long_ids_.begin(), long_ids_.end(), out);
}

}  // namespace gristmill
