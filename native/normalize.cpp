// The argument for exactness. The normal form is: take every character apart, sort each run of marks (characters of
// class > 0) stably by class, then join characters to the last starter (class 0) where nothing in between blocks
// them. Call a character inert in a form if it is a starter, its normal form is itself, and the first part of its
// decomposition is never the second of a composing pair. Then
//   1. normal(x + y) = normal(x) + normal(y) when y starts with an inert character: taking apart is done character by
//      character, marks never move across the starter that y begins with, and that starter joins nothing before it,
//      so it becomes the new joining point and shuts x off from the rest of y.
//   2. a text of inert characters and of marks that never change and never join, with the marks of each run in order,
//      is its own normal form: every composite finds its own parts again, because a mark that follows it stays behind
//      the parts of its own class and lower ones, and is of a lower class than the parts it moves before, so it blocks
//      none of them.
// So text is scanned for the first character that breaks 2, and only the stretch from the last inert character before
// it to the next one after it is worked on; by 1 the rest is copied. Property bits of a character are zero, in a form,
// exactly when it is inert. Canonical order depends on the order of the classes alone, so ranks stand for classes.
#include "normalize.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <vector>

#include "utf8.hpp"

namespace gristmill {

namespace {

#include "normalize_tables.inc"

constexpr unsigned kBlock = 64;
constexpr uint8_t kRank = 0x3F, kNotNfc = 0x40, kNotNfkc = 0x80;

constexpr uint8_t form_bits(Form form) { return kRank | (form == Form::nfc ? kNotNfc : kNotNfkc); }

// Property byte of the character whose code point is 64 * high + low.
constexpr uint8_t property(uint32_t high, uint32_t low) {
    return high < std::size(kPropertyIndex) ? kPropertyBlocks[kPropertyIndex[high] * kBlock + low] : 0;
}

// Property byte of the character at p, and its length. The last byte of a character is its place in a block.
inline uint8_t property_at(const uint8_t* p, unsigned& length) {
    length = utf8_length(*p);
    switch (length) {
        case 1: return 0;
        case 2: return property(p[0] & 0x1Fu, p[1] & 0x3Fu);
        case 3: return property((p[0] & 0x0Fu) << 6 | (p[1] & 0x3Fu), p[2] & 0x3Fu);
        default: return property((p[0] & 0x07u) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu), p[3] & 0x3Fu);
    }
}

// Open-addressed table made at compile time: keys of 42 bits, values of 21 bits above zero, a slot each 64 bits.
template <unsigned bits>
class FlatMap {
public:
    static constexpr unsigned kValueBits = 21;

    constexpr void insert(uint64_t key, uint64_t value) {
        size_t i = slot(key);
        while (slots_[i] != 0) i = (i + 1) & kLast;
        slots_[i] = key << kValueBits | value;
    }

    // Value of the key, or 0.
    constexpr uint32_t find(uint64_t key) const {
        for (size_t i = slot(key); slots_[i] != 0; i = (i + 1) & kLast) {
            if (slots_[i] >> kValueBits == key) return slots_[i] & ((1u << kValueBits) - 1);
        }
        return 0;
    }

private:
    static constexpr size_t kLast = (size_t{1} << bits) - 1;
    static constexpr size_t slot(uint64_t key) { return key * 0x9E3779B97F4A7C15ull >> (64 - bits); }

    std::array<uint64_t, kLast + 1> slots_{};
};

constexpr uint64_t pair_key(uint32_t first, uint32_t second) { return uint64_t{first} << 21 | second; }

consteval auto make_compositions() {
    FlatMap<11> map;
    for (size_t i = 0; i < std::size(kCompositions); i += 3) {
        map.insert(pair_key(kCompositions[i], kCompositions[i + 1]), kCompositions[i + 2]);
    }
    return map;
}

// A decomposition is known by its place in the stream that lists it: the number of parts stands there, then the parts.
template <unsigned bits, size_t size>
consteval auto make_decompositions(const uint32_t (&stream)[size]) {
    FlatMap<bits> map;
    uint32_t code_point = 0;
    for (size_t i = 0; i < size; i += 2 + stream[i + 1]) map.insert(code_point += stream[i], i + 1);
    return map;
}

constexpr auto kJoins = make_compositions();
constexpr auto kCanonical = make_decompositions<12>(kCanonicalStream);
constexpr auto kCompatible = make_decompositions<13>(kCompatibleStream);

constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;  // tail 0: no tail
constexpr uint32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;
constexpr uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

// The character that the two join to, or 0.
uint32_t join(uint32_t first, uint32_t second) {
    if (second - kVowels < kNumVowels && first - kLeads < kNumLeads) {
        return kSyllables + ((first - kLeads) * kNumVowels + second - kVowels) * kNumTails;
    }
    uint32_t tail = second - kTails;
    if (tail - 1 < kNumTails - 1 && first - kSyllables < kNumSyllables && (first - kSyllables) % kNumTails == 0) {
        return first + tail;
    }
    return kJoins.find(pair_key(first, second));
}

// Says which characters, by their first three bytes, may not be inert. Bytes that start no character pass, so every
// byte of a window can be asked at once: T is a byte or a vector of bytes. It may be wrong to one side only, and
// lets the bulk of the large scripts pass; check_suspects compares it with the tables.
template <Form form, typename T>
constexpr auto is_suspect(T a, T b, T c) {
    auto within = [](T byte, uint8_t low, uint8_t high) {
        return static_cast<T>(byte - low) <= static_cast<uint8_t>(high - low);
    };
    auto is_lead = a >= uint8_t{0xC2};
    auto is_plain = within(a, 0xD0, 0xD1) | within(a, 0xE4, 0xE9) | within(a, 0xEB, 0xEC);  // Cyrillic, Han, Hangul
    if constexpr (form == Form::nfkc) return is_lead & (is_plain == 0);
    auto is_latin = within(a, 0xC2, 0xCB) | ((a == uint8_t{0xE1}) & within(b, 0xBA, 0xBB));
    auto is_punctuation = (a == uint8_t{0xE2}) & (b == uint8_t{0x80}) & (c >= uint8_t{0x82});
    auto is_tone_mark = (b == uint8_t{0x80}) & within(c, 0xAA, 0xAF);
    auto is_voice_mark = (b == uint8_t{0x82}) & within(c, 0x99, 0x9A);
    auto is_kana = (a == uint8_t{0xE3}) & ((is_tone_mark | is_voice_mark) == 0);
    auto is_hangul = ((a == uint8_t{0xEA}) & (b >= uint8_t{0xB0})) | (a == uint8_t{0xED});
    auto is_wide = (a == uint8_t{0xEF}) & (b >= uint8_t{0xBC});
    auto is_emoji = (a == uint8_t{0xF0}) & (b == uint8_t{0x9F});
    return is_lead & ((is_plain | is_latin | is_punctuation | is_kana | is_hangul | is_wide | is_emoji) == 0);
}

// True when every character that is not inert is suspect.
template <Form form>
consteval bool check_suspects() {
    for (uint32_t cp = 0x80; cp < std::size(kPropertyIndex) * kBlock; ++cp) {
        if ((property(cp / kBlock, cp % kBlock) & form_bits(form)) == 0) continue;
        // What follows a two-byte character does not matter: rules for such leads look at no other byte.
        unsigned tail = cp < 0x800 ? 6 : cp < 0x10000 ? 12 : 18;
        uint8_t lead = (cp < 0x800 ? 0xC0 : cp < 0x10000 ? 0xE0 : 0xF0) | cp >> tail;
        uint8_t second = 0x80 | (cp >> (tail - 6) & 0x3F), third = tail > 6 ? 0x80 | (cp >> (tail - 12) & 0x3F) : 0;
        if (!is_suspect<form>(lead, second, third)) return false;
    }
    return true;
}
static_assert(check_suspects<Form::nfc>() && check_suspects<Form::nfkc>());

constexpr ptrdiff_t kWindow = 32;
constexpr ptrdiff_t kStride = 64;  // bytes to look at one by one before windows are tried again

// True when a character that may not be inert starts in [p, p + kWindow); reads two bytes more.
template <Form form>
inline bool has_suspect(const uint8_t* p) {
    typedef uint8_t Vector __attribute__((vector_size(16)));
    uint64_t found[2], any = 0;
    for (ptrdiff_t i = 0; i < kWindow; i += sizeof(Vector)) {
        Vector a, b, c;
        std::memcpy(&a, p + i, sizeof a);
        std::memcpy(&b, p + i + 1, sizeof b);
        std::memcpy(&c, p + i + 2, sizeof c);
        auto suspects = is_suspect<form>(a, b, c);
        std::memcpy(found, &suspects, sizeof found);
        any |= found[0] | found[1];
    }
    return any != 0;
}

inline bool is_ascii_window(const uint8_t* p) {
    uint64_t words[kWindow / 8];
    std::memcpy(words, p, kWindow);
    return ((words[0] | words[1] | words[2] | words[3]) & 0x8080808080808080ull) == 0;
}

inline bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

// Start of the character that ends at p.
inline const uint8_t* previous(const uint8_t* p) {
    do --p;
    while (is_continuation(*p));
    return p;
}

// Where work is needed: the character that may need it, and the last inert one before it (or the start).
struct Work {
    const uint8_t *from, *at;
};

// Finds the first work in [begin, end), where begin is the start of the text or an inert character; both places are
// end when there is none. Characters are looked at one by one for a stride and to the end of the marks there, then
// windows are skipped for as long as they hold inert characters alone.
template <Form form>
Work find_work(const uint8_t* begin, const uint8_t* end) {
    for (const uint8_t* p = begin; p < end;) {
        const uint8_t* stop = end - p > kStride ? p + kStride : end;
        const uint8_t* marks = p;  // where the marks after the last inert character begin
        unsigned last_rank = 0;
        while (p < stop || (last_rank != 0 && p < end)) {
            unsigned length;
            unsigned bits = property_at(p, length) & form_bits(form);
            if (bits > kRank || (bits != 0 && bits < last_rank)) return {marks == begin ? begin : previous(marks), p};
            p += length;
            if (bits == 0) marks = p;
            last_rank = bits;
        }
        while (end - p >= kWindow + 2 && (is_ascii_window(p) || !has_suspect<form>(p))) p += kWindow;
        while (p < end && is_continuation(*p)) ++p;  // of an inert character
    }
    return {end, end};
}

// Takes characters apart, orders and joins them, and appends the result to a string.
template <Form form>
class Composer {
public:
    explicit Composer(std::string& out) : out_(out) {}

    void add(uint32_t code_point) {
        if (code_point - kSyllables < kNumSyllables) {
            uint32_t index = code_point - kSyllables, tail = index % kNumTails;
            add_part(kLeads + index / (kNumVowels * kNumTails));
            add_part(kVowels + index / kNumTails % kNumVowels);
            if (tail) add_part(kTails + tail);
        } else if (const uint32_t* parts = decomposition(code_point)) {
            for (uint32_t i = 1; i <= parts[0]; ++i) add_part(parts[i]);
        } else {
            add_part(code_point);
        }
    }

    // Appends what is pending; to be called where no later character can reach it.
    void flush() {
        order();
        compose();
        size_t size = out_.size();
        out_.resize(size + 4 * pending_.size());
        uint8_t* start = reinterpret_cast<uint8_t*>(out_.data());
        uint8_t* p = start + size;
        for (uint32_t part : pending_) p += utf8_encode(part & kCodePoint, p);
        out_.resize(p - start);
        pending_.clear();
    }

private:
    // A part is its code point with its property byte on top: rank, and whether it can join what stands before.
    static constexpr unsigned kPropertyShift = 24;
    static constexpr uint32_t kCodePoint = 0x1FFFFF;
    static constexpr uint32_t kCanJoin = uint32_t{kNotNfc} << kPropertyShift;
    static constexpr size_t kFlushSize = 4096;      // parts, so that long stretches need little memory
    static constexpr size_t kShortRun = 16;         // up to here insertion beats counting
    static constexpr uint32_t kFirstMapped = 0xA0;  // nothing below decomposes

    static uint32_t rank(uint32_t part) { return part >> kPropertyShift & kRank; }

    static const uint32_t* decomposition(uint32_t code_point) {
        if (code_point < kFirstMapped) return nullptr;
        if constexpr (form == Form::nfkc) {
            if (uint32_t place = kCompatible.find(code_point)) return kCompatibleStream + place;
        }
        uint32_t place = kCanonical.find(code_point);
        return place ? kCanonicalStream + place : nullptr;
    }

    void add_part(uint32_t code_point) {
        uint32_t bits = property(code_point / kBlock, code_point % kBlock) & form_bits(Form::nfc);
        if (bits == 0 && pending_.size() >= kFlushSize) flush();
        pending_.push_back(bits << kPropertyShift | code_point);
    }

    // Sorts every run of marks by rank, keeping the order of equals.
    void order() {
        auto is_mark = [](uint32_t part) { return rank(part) != 0; };
        auto by_rank = [](uint32_t a, uint32_t b) { return rank(a) < rank(b); };
        auto run = pending_.begin();
        while ((run = std::find_if(run, pending_.end(), is_mark)) != pending_.end()) {
            auto run_end = std::find_if_not(run, pending_.end(), is_mark);
            if (!std::is_sorted(run, run_end, by_rank)) {
                if (static_cast<size_t>(run_end - run) <= kShortRun) {
                    sort_short(&*run, run_end - run);
                } else {
                    sort_long(&*run, run_end - run);
                }
            }
            run = run_end;
        }
    }

    static void sort_short(uint32_t* run, size_t size) {
        for (size_t i = 1; i < size; ++i) {
            uint32_t part = run[i];
            size_t j = i;
            for (; j > 0 && rank(run[j - 1]) > rank(part); --j) run[j] = run[j - 1];
            run[j] = part;
        }
    }

    // Counting sort: a run may be as long as the text, and time must stay linear.
    void sort_long(uint32_t* run, size_t size) {
        size_t starts[kRank + 2] = {};
        for (size_t i = 0; i < size; ++i) ++starts[rank(run[i]) + 1];
        for (size_t r = 1; r < std::size(starts); ++r) starts[r] += starts[r - 1];
        sorted_.resize(size);
        for (size_t i = 0; i < size; ++i) sorted_[starts[rank(run[i])]++] = run[i];
        std::copy(sorted_.begin(), sorted_.end(), run);
    }

    // Joins parts in place. A part reaches the last starter when it follows directly, or when all marks kept between
    // have a lower class; as they are in order it is enough to look at the last one (rank 0: none was kept).
    void compose() {
        size_t num_kept = 0;
        uint32_t* starter = nullptr;
        uint32_t last_rank = 0;
        for (uint32_t part : pending_) {
            uint32_t part_rank = rank(part);
            if ((part & kCanJoin) && starter && (last_rank == 0 || last_rank < part_rank)) {
                if (uint32_t joined = join(*starter & kCodePoint, part & kCodePoint)) {
                    *starter = joined;
                    continue;
                }
            }
            if (part_rank == 0) starter = &pending_[num_kept];
            last_rank = part_rank;
            pending_[num_kept++] = part;
        }
        pending_.resize(num_kept);
    }

    std::string& out_;
    std::vector<uint32_t> pending_;
    std::vector<uint32_t> sorted_;
};

template <Form form>
void normalize_as(const uint8_t* p, const uint8_t* end, std::string& out) {
    Composer<form> composer(out);
    for (;;) {
        Work work = find_work<form>(p, end);
        out.append(reinterpret_cast<const char*>(p), work.from - p);
        if (work.at == end) return;
        p = work.from;
        unsigned length;
        do {
            composer.add(utf8_decode(p, length));
            p += length;
        } while (p < end && (property_at(p, length) & form_bits(form)) != 0);
        composer.flush();
    }
}

}  // namespace

bool is_normalized(Form form, const uint8_t* text, size_t size) {
    const uint8_t* end = text + size;
    if (form == Form::nfc) return find_work<Form::nfc>(text, end).at == end;
    if (form == Form::nfkc) return find_work<Form::nfkc>(text, end).at == end;
    return true;
}

void normalize(Form form, const uint8_t* text, size_t size, std::string& out) {
    const uint8_t* end = text + size;
    if (form == Form::nfc) return normalize_as<Form::nfc>(text, end, out);
    if (form == Form::nfkc) return normalize_as<Form::nfkc>(text, end, out);
    out.append(reinterpret_cast<const char*>(text), size);
}

std::string marks_to_spaces(std::string_view text) {
    std::string spaced;
    for (size_t at = 0; at < text.size();) {
        size_t mark = std::min(text.find(kMark, at), text.size());
        spaced.append(text, at, mark - at);
        if (mark < text.size()) spaced.push_back(' ');
        at = mark + kMark.size();
    }
    return spaced;
}

}  // namespace gristmill
