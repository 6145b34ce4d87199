#include "split.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <stdexcept>

#include "utf8.hpp"

namespace gristmill {

namespace {
constexpr uint16_t kDead = 0xFFFF;
static_assert(std::endian::native == std::endian::little, "two ends are written as one number");

// Entries at run time: next config << 8 | signed bytes to go back in the output (a multiple of 4) | push.
uint16_t runtime_entry(uint16_t entry) {
    int back = -4 * (entry >> 1 & 0x7F);
    return static_cast<uint16_t>((entry & 0xFF00) | (static_cast<unsigned>(back) & 0xFC) | (entry & 1));
}

uint32_t* put(uint32_t* out, uint32_t entry, size_t at) {
    auto back = static_cast<ptrdiff_t>(static_cast<int8_t>(entry)) & ~ptrdiff_t{3};
    out = reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(out) + back);
    *out = static_cast<uint32_t>(at);
    return out + (entry & 1);
}

constexpr size_t kMostPairEntries = 1 << 16;  // rows are numbered in 16 bits
constexpr size_t kMinLane = 64;  // bytes a lane should have before running several pays
constexpr size_t kMinWindows = 96;  // bytes a text should have before looking at windows of it pays
constexpr size_t kMostSteps = 128;  // of the transducer where windows are to do the work, and one for 8 bytes they have done
}  // namespace

// One place of the text being split: where it is, its config, and where its ends go.
struct Transducer::Lane {
    size_t at, end;
    uint32_t entry;  // last table entry; its high byte is the config
    uint32_t* out;
};

Transducer::Transducer(ClassTable classes, std::vector<uint16_t> table, unsigned num_classes)
    : classes_(std::move(classes)), table_(std::move(table)), end_column_(128 + num_classes), windows_(table_, end_column_), is_safe_pair_(256 * 256) {
    // (a, b) is safe when, whatever came before a, reading a and then b leads where b alone leads from a fresh
    // start, with a piece end before b: then nothing before b can still change.
    size_t num_configs = table_.size() / 256;
    for (unsigned a = 0; a < end_column_; ++a) {
        std::vector<uint8_t> after(num_configs);
        for (size_t q = 0; q < num_configs; ++q) after[table_[q * 256 + a] >> 8] = 1;
        for (unsigned b = 0; b < end_column_; ++b) {
            bool safe = true;
            for (size_t q = 0; q < num_configs && safe; ++q) {
                if (!after[q]) continue;
                uint16_t entry = table_[q * 256 + b];
                safe = (entry & 1) && entry >> 8 == table_[b] >> 8;
            }
            is_safe_pair_[a * 256 + b] = safe;
        }
    }
    build_neighbours();
    if (neighbours_.empty()) build_pairs();
    for (uint16_t& entry : table_) {
        if ((entry >> 1 & 0x7F) > 31) throw std::invalid_argument("a transition takes back more than 31 ends");
        entry = runtime_entry(entry);
    }
}

void Transducer::build_neighbours() {
    for (size_t q = 0; q < table_.size() / 256; ++q) {
        for (unsigned c = 0; c < 128; ++c) {
            unsigned entry = table_[q * 256 + c];
            if (entry >> 8 != table_[c] >> 8u || (entry >> 1 & 0x7F)) return;
        }
    }
    neighbours_.resize(1 << 15);
    for (unsigned a = 0; a < 128; ++a) {
        for (unsigned b = 0; b < 128; ++b) neighbours_[a | b << 8] = table_[(table_[a] & 0xFF00) | b] & 1;
    }
}

// What reading b after a does from each config; entries are as given still.
std::vector<Transducer::PairEntry> Transducer::effect_of(unsigned a, unsigned b) const {
    std::vector<PairEntry> effect;
    for (size_t q = 0; q < table_.size() / 256; ++q) {
        unsigned first = table_[q * 256 + a], second = table_[(first & 0xFF00) + b];
        int pops = first >> 1 & 0x7F, more = second >> 1 & 0x7F;
        bool is_first = (first & 1) && more == 0, is_second = second & 1;
        int back = pops + std::max(0, more - static_cast<int>(first & 1));  // the second may take back what the first has put
        effect.push_back({static_cast<uint16_t>(second >> 8), static_cast<int16_t>(-4 * back),
                          static_cast<int16_t>(4 * (is_first + is_second - back)), static_cast<uint16_t>(!is_first)});
    }
    return effect;
}

// Few characters of ASCII differ in what they do, and few pairs of them.
void Transducer::build_pairs() {
    size_t num_configs = table_.size() / 256;
    auto kinds = ascii_kinds(table_);
    std::vector<size_t> kind_of(128);
    for (size_t i = 0; i < kinds.size(); ++i) {
        for (uint8_t c : kinds[i]) kind_of[c] = i;
    }
    std::map<std::vector<PairEntry>, unsigned> classes;
    std::vector<unsigned> class_of;
    for (size_t i = 0; i < kinds.size() * kinds.size(); ++i) {
        auto effect = effect_of(kinds[i / kinds.size()][0], kinds[i % kinds.size()][0]);
        class_of.push_back(classes.try_emplace(std::move(effect), static_cast<unsigned>(classes.size())).first->second);
        if (num_configs * std::bit_ceil(classes.size()) > kMostPairEntries) return;
    }
    pair_shift_ = static_cast<unsigned>(std::bit_width(classes.size() - 1));
    pairs_.resize(num_configs << pair_shift_);
    for (const auto& [effect, number] : classes) {
        for (size_t q = 0; q < num_configs; ++q) {
            PairEntry& entry = pairs_[(q << pair_shift_) + number] = effect[q];
            entry.row = static_cast<uint16_t>(entry.row << pair_shift_);
        }
    }
    pair_classes_.resize(1 << 15);
    for (unsigned a = 0; a < 128; ++a) {
        for (unsigned b = 0; b < 128; ++b) {
            const uint8_t both[2] = {static_cast<uint8_t>(a), static_cast<uint8_t>(b)};
            uint16_t two;
            std::memcpy(&two, both, 2);
            pair_classes_[two] = static_cast<uint16_t>(class_of[kind_of[a] * kinds.size() + kind_of[b]] * sizeof(PairEntry));
        }
    }
}

inline unsigned Transducer::column(const uint8_t* p, unsigned& length) const {
    if (*p < 0x80) {
        length = 1;
        return *p;
    }
    uint32_t cp = utf8_decode(p, length);
    return 128u + classes_.of(cp);
}

inline void Transducer::step(const uint8_t* text, Lane& lane) const {
    unsigned length;
    unsigned col = column(text + lane.at, length);
    uint32_t entry = table_[(lane.entry & 0xFF00) | col];
    lane.out = put(lane.out, entry, lane.at);
    lane.entry = entry;
    lane.at += length;
}

// To the end of a lane: no character of ASCII waits for the one before it.
void Transducer::run_neighbours(const uint8_t* text, Lane& lane) const {
    const uint8_t* is_end = neighbours_.data();
    auto put_up_to = [&](size_t at, uint32_t* out, size_t count) __attribute__((always_inline)) {
        for (size_t i = 0; i < count; ++i) {
            uint16_t two;
            std::memcpy(&two, text + at + i - 1, 2);
            *out = static_cast<uint32_t>(at + i);
            out += is_end[two];
        }
        return out;
    };
    while (lane.at < lane.end) {
        step(text, lane);
        if (text[lane.at - 1] >= 0x80) continue;
        uint64_t beyond = 0;  // what is not ASCII among the next eight
        size_t at = lane.at;
        for (; at + 8 <= lane.end; at += 8) {
            std::memcpy(&beyond, text + at, 8);
            beyond &= 0x8080808080808080u;
            if (beyond) break;
            lane.out = put_up_to(at, lane.out, 8);
        }
        if (beyond) {
            auto count = static_cast<size_t>(std::countr_zero(beyond)) / 8;
            lane.out = put_up_to(at, lane.out, count);
            at += count;
        }
        lane.entry = table_[text[at - 1]];
        lane.at = at;
    }
}

// Takes all lanes through ASCII side by side, at most `steps` characters each: their table look-ups do not wait for
// each other, and three lanes just fit the registers of x86-64. Returns the steps left when a lane is not at ASCII.
template <size_t kCount>
size_t Transducer::run_ascii(const uint8_t* text, Lane* lanes, size_t steps) const {
    const uint16_t* table = table_.data();
    size_t at[kCount];
    uint32_t* out[kCount];
    uint32_t entry[kCount];
    for (size_t i = 0; i < kCount; ++i) at[i] = lanes[i].at, out[i] = lanes[i].out, entry[i] = lanes[i].entry;
    for (; steps; --steps) {
        unsigned any = 0;
        for (size_t i = 0; i < kCount; ++i) any |= text[at[i]];
        if (any >= 0x80) break;
        for (size_t i = 0; i < kCount; ++i) {
            entry[i] = table[(entry[i] & 0xFF00) | text[at[i]]];
            out[i] = put(out[i], entry[i], at[i]);
            ++at[i];
        }
    }
    for (size_t i = 0; i < kCount; ++i) lanes[i].at = at[i], lanes[i].out = out[i], lanes[i].entry = entry[i];
    return steps;
}

// The same two characters a step, which is half the work.
template <size_t kCount>
size_t Transducer::run_pairs(const uint8_t* text, Lane* lanes, size_t steps) const {
    const auto* table = reinterpret_cast<const char*>(pairs_.data());
    const uint16_t* class_of = pair_classes_.data();
    uint64_t ends[kCount];  // the two that may be, the second in the upper half
    char* out[kCount];
    size_t row[kCount];
    for (size_t i = 0; i < kCount; ++i) {
        ends[i] = lanes[i].at | uint64_t{lanes[i].at + 1} << 32;
        out[i] = reinterpret_cast<char*>(lanes[i].out), row[i] = size_t{lanes[i].entry >> 8} << pair_shift_;
    }
    for (; steps > 1; steps -= 2) {
        uint16_t two[kCount];
        unsigned any = 0;
        for (size_t i = 0; i < kCount; ++i) {
            std::memcpy(&two[i], text + static_cast<uint32_t>(ends[i]), 2);
            any |= two[i];
        }
        if (any & 0x8080) break;
        for (size_t i = 0; i < kCount; ++i) {
            PairEntry entry;
            std::memcpy(&entry, table + class_of[two[i]] + row[i] * sizeof entry, sizeof entry);
            uint64_t written = ends[i] + entry.is_second;
            std::memcpy(out[i] + entry.back, &written, 8);
            out[i] += entry.net;
            row[i] = entry.row;
            ends[i] += 2 | uint64_t{2} << 32;
        }
    }
    for (size_t i = 0; i < kCount; ++i) {
        lanes[i] = {static_cast<uint32_t>(ends[i]), lanes[i].end, static_cast<uint32_t>(row[i] >> pair_shift_ << 8), reinterpret_cast<uint32_t*>(out[i])};
    }
    return steps;
}

template <size_t kCount>
void Transducer::run_lanes(const uint8_t* text, Lane* lanes) const {
    for (;;) {
        size_t room = SIZE_MAX;
        for (size_t i = 0; i < kCount; ++i) room = std::min(room, lanes[i].end - lanes[i].at);
        room = pairs_.empty() ? run_ascii<kCount>(text, lanes, room) : run_pairs<kCount>(text, lanes, room);
        if (room <= 4) break;  // a character has at most 4 bytes, and the one after it is looked at
        unsigned any = 0x80;
        for (size_t steps = (room - 1) / 4; steps && any >= 0x80; --steps) {  // until all lanes are at ASCII
            any = 0;
            for (size_t i = 0; i < kCount; ++i) {
                step(text, lanes[i]);
                any |= text[lanes[i].at];
            }
        }
    }
}

// Takes the lane to its end; what follows is the end of the text, or a character before which a piece ends.
void Transducer::finish(const uint8_t* text, Lane& lane, bool to_text_end) const {
    while (lane.at < lane.end) step(text, lane);
    unsigned length;
    unsigned col = to_text_end ? end_column_ : column(text + lane.end, length);
    uint32_t entry = table_[(lane.entry & 0xFF00) | col];
    lane.out = put(lane.out, entry, lane.end);
}

size_t Transducer::safe_cut(const uint8_t* text, size_t from, size_t end) const {
    while (from < end && (text[from] & 0xC0) == 0x80) ++from;
    if (from >= end) return end;
    unsigned length;
    unsigned before = column(text + from, length);
    for (size_t q = from + length; q < end; q += length) {
        unsigned here = column(text + q, length);
        if (is_safe_pair_[before * 256 + here]) return q;
        before = here;
    }
    return end;
}

// Windows say where pieces end; around what they leave open, the transducer runs from a safe cut to the next. Returns where it
// stopped: the end, or a safe cut before it where too much is left open.
size_t Transducer::run_windows(const uint8_t* text, size_t begin, size_t end, bool to_text_end, Run& run, uint32_t* ends) const {
    auto is_safe = [&](size_t at) {
        return (text[at - 1] | text[at]) < 0x80 && is_safe_pair_[text[at - 1] * 256u + text[at]];
    };
    uint32_t* out = ends;
    size_t fresh = begin, open = begin, num_steps = 0;  // `fresh`: the last safe cut the transducer came to
    while (num_steps < kMostSteps + (fresh - begin) / 8) {
        size_t at = open;
        while (at > fresh && !is_safe(at)) --at;
        while (out > ends && out[-1] > at) --out;
        if (at > begin && (out == ends || out[-1] != at)) *out++ = static_cast<uint32_t>(at);
        Lane lane{at, end, 0, out};
        size_t ascii_from = at;
        for (;;) {
            if (lane.at == end) {
                finish(text, lane, to_text_end);
                run = {ends, static_cast<size_t>(lane.out - ends)};
                return end;
            }
            bool is_wide = text[lane.at] >= 0x80;
            bool is_done = !is_wide && lane.at > open && lane.at >= ascii_from + SplitWindows::kBefore - 1 && is_safe(lane.at);
            step(text, lane);
            if (is_wide) ascii_from = lane.at;
            if (is_done) break;
        }
        num_steps += lane.at - at;
        fresh = lane.at - 1;
        out = lane.out;
        open = windows_.run(text, lane.at, end, out);
    }
    // What lies behind `fresh` is for others to do.
    while (out > ends && out[-1] > fresh) --out;
    run = {ends, static_cast<size_t>(out - ends)};
    return fresh;
}

Transducer::Pieces Transducer::split(const uint8_t* text, size_t begin, size_t end, bool to_text_end, uint32_t* ends) const {
    Lane lanes[kLanes];
    Pieces pieces{};
    if (windows_.is_usable() && neighbours_.empty() && end - begin >= kMinWindows) {
        size_t done = run_windows(text, begin, end, to_text_end, pieces.runs[0], ends);
        pieces.num_runs = 1;
        ends += done - begin;
        begin = done;
    }
    size_t size = end - begin, num_lanes = 0;
    auto wanted = neighbours_.empty() ? std::clamp<size_t>(size / kMinLane, 1, kLanes) : 1;
    for (size_t at = begin; at < end && num_lanes < wanted; ++num_lanes) {
        size_t cut = end;
        if (num_lanes + 1 < wanted) cut = safe_cut(text, std::max(at, begin + size * (num_lanes + 1) / wanted), end);
        lanes[num_lanes] = {at, cut, 0, ends};
        ends += cut - at;  // a piece has at least one byte: lanes cannot meet
        at = cut;
    }
    Run* runs = pieces.runs + pieces.num_runs;
    for (size_t i = 0; i < num_lanes; ++i) runs[i].ends = lanes[i].out;
    if (!neighbours_.empty() && num_lanes) run_neighbours(text, lanes[0]);
    if (num_lanes == kLanes) run_lanes<kLanes>(text, lanes);
    if (num_lanes > 1) run_lanes<2>(text, lanes + num_lanes - 2);
    for (size_t i = 0; i < num_lanes; ++i) {
        finish(text, lanes[i], to_text_end && lanes[i].end == end);
        runs[i].count = static_cast<size_t>(lanes[i].out - runs[i].ends);
    }
    pieces.num_runs += num_lanes;
    return pieces;
}

void PlainSplitter::split(const uint8_t* text, size_t begin, size_t end, std::vector<Piece>& pieces) const {
    size_t width = num_classes + 1;
    size_t gap = begin;
    auto close_gap = [&](size_t at) {
        if (gap < at && keep_gaps) pieces.push_back({static_cast<uint32_t>(gap), static_cast<uint32_t>(at)});
    };
    size_t start = begin;
    while (start < end) {
        size_t at = start, last = 0, state = 0;
        for (;;) {
            unsigned length = 0;
            unsigned cls = num_classes;
            if (at < end) {
                uint32_t cp = utf8_decode(text + at, length);
                cls = classes.of(cp);
            }
            if (match[state * width + cls] && at > start) last = at;
            uint16_t next = next_state[state * width + cls];
            if (at == end || next == kDead) break;
            state = next;
            at += length;
        }
        if (last == 0) {
            start += utf8_length(text[start]);
            continue;
        }
        close_gap(start);
        if (keep_matches) pieces.push_back({static_cast<uint32_t>(start), static_cast<uint32_t>(last)});
        start = gap = last;
    }
    close_gap(end);
}

void split_by_chain(const std::vector<PlainSplitter>& chain, const uint8_t* text, size_t size,
                    std::vector<PlainSplitter::Piece>& pieces, std::vector<PlainSplitter::Piece>& scratch) {
    pieces.assign(1, {0, static_cast<uint32_t>(size)});
    for (const PlainSplitter& stage : chain) {
        scratch.clear();
        for (auto piece : pieces) stage.split(text, piece.begin, piece.end, scratch);
        pieces.swap(scratch);
    }
}

}  // namespace gristmill
