#include "encoder_dense.hpp"

#include <algorithm>
#include <cstring>

#include "merge_few.hpp"
#include "utf8.hpp"

namespace gristmill {

namespace {
uint32_t code_point_of_three(const uint8_t* p) { return (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu); }
// Of a character of one byte or three; its bytes as a number.
uint32_t length_of(const uint8_t* p) { return *p < 0x80 ? 1 : 3; }
uint32_t length_before(const uint8_t* p) { return p[-1] < 0x80 ? 1 : 3; }
uint32_t packed_bytes(const uint8_t* p) { return *p < 0x80 ? *p : p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16; }
}  // namespace

size_t DenseEncoder::memory_bytes() const {
    return characters_.memory_bytes() + (lone_ids_.size() + part_ids_.capacity()) * sizeof(uint32_t) + joints_.size() * sizeof(Joint) +
           runs_.size() * sizeof(Run) + part_sizes_.size() * sizeof(int64_t) +
           places_.size() * sizeof(uint32_t) + is_end_.size();
}

// Looks at five stretches at most.
bool DenseEncoder::is_dense(const uint8_t* text, size_t size) {
    constexpr size_t kStretch = 240;  // so many fit a byte, and the compiler counts 16 at a time
    size_t num_leads = 0, looked_at = 0;
    for (size_t begin = 0; begin < size; begin += std::max(kStretch, size / 4)) {
        uint8_t count = 0;  // lead bytes from U+3000 to U+9FFF
        size_t end = std::min(size, begin + kStretch);
        for (size_t i = begin; i < end; ++i) count = static_cast<uint8_t>(count + (static_cast<uint8_t>(text[i] - 0xE3) < 7));
        num_leads += count;
        looked_at += end - begin;
    }
    return num_leads * 5 >= looked_at;  // three fifths of the bytes
}

void DenseEncoder::start_marking(size_t size) {
    if (characters_.size() == 0) {
        characters_ = RoomyArray<Character>(kNumbered, kNumbered);
        is_end_.resize(kMostBytes + 1);
        lone_ids_.resize(kMostBytes + 2 * kSlack);
        joints_.resize(kMostBytes + 2);
        runs_.resize(kMostBytes / 2 + 2);  // of two characters each, at least, but for odd pieces, which have more bytes
        part_sizes_.resize(kMostBytes / 2 + 2);
        places_.resize(kMostBytes);
    }
    std::memset(is_end_.data(), 0, size + 1);
    is_end_[0] = is_end_[size] = 1;
}

void DenseEncoder::mark_ends(const uint32_t* ends, size_t count) {
    for (size_t i = 0; i < count; ++i) is_end_[ends[i]] = 1;
}

void DenseEncoder::encode(const uint8_t* text, size_t size, size_t readable, IdBuffer& out) {
    part_ids_.clear();
    parts_.start(part_ids_);
    write_lone(text, size);
    find_runs(text, size);
    look_up_runs(text, readable);
    parts_.flush();
    part_ids_.reserve(kSlack);
    uint32_t* ids = out.reserve(num_ids_ + part_ids_.size() + kSlack);
    out.commit(write_runs(ids));
}

void DenseEncoder::write_lone(const uint8_t* text, size_t size) {
    const JoinFilter::Pairs pairs = model_.joins().pairs();
    const Character* const characters = characters_.data();
    const uint8_t* const is_end = is_end_.data();
    uint32_t* const ids = lone_ids_.data();
    size_t num_ids = 0;
    Joint *const first_joint = joints_.data(), *joint = first_joint;
    uint32_t bytes_before = 0, known_before = 0;
    for (size_t at = 0; at < size;) {
        const uint8_t* p = text + at;
        uint32_t code_point = p[0], bytes = p[0], length = 1;
        if ((p[0] & 0xF0) == 0xE0) [[likely]] {
            code_point = code_point_of_three(p);
            bytes = p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16;
            length = 3;
        }
        uint32_t known = characters[code_point].known;
        if (!(known & kCount)) [[unlikely]] {
            known = look_at(code_point, p, length);
            if (known & kOdd) {
                num_joints_ = static_cast<size_t>(joint - first_joint);
                num_ids = leave_odd_piece(text, at, num_ids);
                joint = first_joint + num_joints_;
                do ++at;
                while (!is_end[at]);
                continue;
            }
        }
        std::memcpy(ids + num_ids, &characters[code_point], sizeof(Character));  // three ids, and one to be written over
        uint32_t is_inside = 1u ^ is_end[at];
        uint32_t is_close = (known_before >> kBefore & known >> kBehind) != 0;
        *joint = {static_cast<uint32_t>(at), static_cast<uint32_t>(num_ids), known_before & kCount, known & kCount, is_close, 0};
        joint += (pairs.has(bytes_before, bytes) | is_close) & is_inside;
        known_before = known & ((1u << kBehind) - 1);
        bytes_before = bytes;
        num_ids += known & kCount;
        at += length;
    }
    num_ids_ = num_ids;
    num_joints_ = static_cast<size_t>(joint - first_joint);
}

// A piece that is left to the encoder of parts as a whole: what was written of it is taken back. Returns how many ids stay.
size_t DenseEncoder::leave_odd_piece(const uint8_t* text, size_t at, size_t num_ids) {
    for (; !is_end_[at]; at -= length_before(text + at)) num_ids -= character_before(text + at).known & kCount;
    while (num_joints_ && joints_[num_joints_ - 1].at > at) --num_joints_;
    joints_[num_joints_++] = {static_cast<uint32_t>(at), static_cast<uint32_t>(num_ids), 0, 0, 0, 1};
    return num_ids;
}

// An odd one has no ids here: one of neither one byte nor three, and one that is another token where it is all of a piece.
__attribute__((noinline)) uint32_t DenseEncoder::look_at(uint32_t code_point, const uint8_t* bytes, size_t length) {
    Character& character = characters_[code_point];
    if ((length == 1 && bytes[0] >= 0x80) || model_.joins().is_odd(bytes, length)) return character.known = kOdd;
    JoinFilter::Sides sides = model_.joins().sides_of(bytes, length);
    auto count = static_cast<uint32_t>(merge_alone(bytes, length, character.ids));
    return character.known = count | sides.before << kBefore | sides.behind << kBehind;
}

// Every text meets thousands of characters for the first time: merge_short would take longer.
size_t DenseEncoder::merge_alone(const uint8_t* bytes, size_t length, uint32_t* ids) const {
    for (size_t i = 0; i < length; ++i) ids[i] = model_.symbol_of_byte(bytes[i]);
    if (length == 1) return 1;
    Model::Outcome left = model_.merge_of_bytes(bytes[0], bytes[1]), right = model_.merge_of_bytes(bytes[1], bytes[2]);
    if (std::min(left.rank, right.rank) == kNoRank) return 3;
    if (left.rank <= right.rank) {
        ids[0] = left.result;
        ids[1] = ids[2];
    } else {
        ids[1] = right.result;
    }
    const Merge* merge = model_.pairs().find(ids[0], ids[1]);
    if (!merge) return 2;
    ids[0] = merge->result;
    return 1;
}

inline const DenseEncoder::Character& DenseEncoder::character_before(const uint8_t* at) const {
    return characters_[at[-1] < 0x80 ? at[-1] : code_point_of_three(at - 3)];
}

// Bits that two characters have in common say less than the filter of all tokens does, which knows nothing of tokens for whole
// pieces alone. Those are of whole characters.
bool DenseEncoder::is_false(const Joint& joint, const uint8_t* text, size_t size) const {
    const uint8_t* p = text + joint.at;
    return *p >= 0x80 && !model_.cover().may_cover(text, size, joint.at) &&
           !model_.joins().pairs().has(packed_bytes(p - length_before(p)), packed_bytes(p));
}

// Joints one character apart are of one run. Where runs begin and end cannot be guessed: no branch on it.
void DenseEncoder::find_runs(const uint8_t* text, size_t size) {
    Run* run = runs_.data();  // the next one
    uint32_t end_before = 0;
    for (size_t j = 0; j < num_joints_; ++j) {
        const Joint joint = joints_[j];
        if (joint.is_odd) [[unlikely]] {
            end_before = joint.at + 1;
            while (!is_end_[end_before]) ++end_before;
            *run++ = {joint.at, end_before, joint.id, joint.id, false, false};
            continue;
        }
        if (joint.is_close && is_false(joint, text, size)) continue;
        const uint8_t* p = text + joint.at;
        uint32_t goes_on = joint.at == end_before;
        run -= goes_on;
        run->begin = goes_on ? run->begin : joint.at - length_before(p);
        run->end = end_before = joint.at + length_of(p);
        run->first_id = goes_on ? run->first_id : joint.id - joint.num_before;
        run->last_id = joint.id + joint.num_behind;
        run->is_whole_only = (run->is_whole_only | !goes_on) & !joint.is_close;
        ++run;
    }
    num_runs_ = static_cast<size_t>(run - runs_.data());
}

// A token of two whole characters is made of what each is by itself; those of more are likewise, where these come first.
void DenseEncoder::look_up_runs(const uint8_t* text, size_t readable) {
    const PairTable& pairs = model_.pairs();
    int64_t* size = part_sizes_.data();
    uint32_t* place = places_.data();
    bool are_pieces_tokens = model_.has_unreachable_wholes();
    size_t most = model_.are_characters_first() ? kFewAtOnce : 2;
    for (Run *run = runs_.data(), *last = run + num_runs_; run < last; ++run) {
        bool is_whole = is_end_[run->begin] && is_end_[run->end];
        size_t count = run->last_id - run->first_id;
        bool is_merged_here = run->is_whole_only && !(are_pieces_tokens && is_whole) && count <= most;
        run->is_merged_here = is_merged_here;
        if (is_merged_here) {
            const uint32_t* ids = &lone_ids_[run->first_id];
            for (size_t i = 1; i < count; ++i) *place++ = pairs.place(PairTable::pair(ids[i - 1], ids[i]));
        } else {
            parts_.put_part(text + run->begin, run->end - run->begin, readable - run->begin, is_whole);
            parts_.end_document(size++);
        }
    }
}

uint32_t* DenseEncoder::write_runs(uint32_t* out) const {
    const PairTable& pairs = model_.pairs();
    const uint32_t *lone = lone_ids_.data(), *part = part_ids_.data(), *place = places_.data();
    const int64_t* size = part_sizes_.data();
    uint32_t from = 0;
    for (const Run *run = runs_.data(), *last = run + num_runs_; run < last; ++run) {
        const uint32_t* ids = lone + run->first_id;
        out = copy_few<kSlack>(lone + from, run->first_id - from, out);
        from = run->last_id;
        size_t count = run->last_id - run->first_id;
        if (!run->is_merged_here) {
            out = copy_few<kSlack>(part, static_cast<size_t>(*size), out);
            part += *size++;
            continue;
        }
        if (count == 2) {
            out = merge_two(pairs, ids, *place, out);
        } else if (count == 3) {
            out = merge_three(pairs, ids, place, out);
        } else {
            out = merge_few(pairs, ids, place, count, out);
        }
        place += count - 1;
    }
    return copy_few<kSlack>(lone + from, num_ids_ - from, out);
}

}  // namespace gristmill
