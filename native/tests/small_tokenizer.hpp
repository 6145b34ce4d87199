// Tokenizers small enough to be written by hand, with every path of the big ones in them. For tests and fuzz targets.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "utf8.hpp"
#include "vocabulary.hpp"

namespace small {

using namespace gristmill;

constexpr uint32_t kFirstAdded = 5000;  // ids of added tokens

// Bytes, and tokens of two to forty of them: words, runs, CJK, emoji, and some that merging cannot reach.
inline const std::vector<std::string>& grown_tokens() {
    static const std::vector<std::string> kTokens = [] {
        std::vector<std::string> tokens = {
            "th", "he", "in", "er", "an", " t", " a", "the", " the", "ing", "and", " and", "other", "another", "  ", "\n\n",
            "    ", "        ", "\r\n", "\t\t", "12", "123", "00", "000", "..", "...", "'s", "'ll", "ab", "abc", "bc", "aa",
            "aaa", "aaaa", "aaaaaaaa", "ba", "aab", "abab", "ababab", "\xC3\xA9", "\xC3\xA9t", "\xE6\xB0", "\xB4\xE8",
            "\xE6\xB0\xB4", "\xE6\xB0\xB4\xE8\xBB\x8A", "\xE8\xBB", "\xE8\xBB\x8A", "\xF0\x9F", "\xF0\x9F\x99\x82",
            "\x99\x82", "\x82\xF0", "\xE2\x96\x81", "unreachable", "zzzzzzzzzzzzzzzzzzzzzzzz", "zz", "zzzz", "zzzzzzzz",
            "zzzzzzzzzzzzzzzz", "quick", "qu", "ick", "ic", "brown", " brown", "br", "own", "ow"};
        tokens.push_back(std::string(32, 'a'));
        tokens.push_back(std::string(16, 'a'));
        return tokens;
    }();
    return kTokens;
}

// tiktoken's kind: ranks are ids, a whole piece that is a token is taken as it is.
inline Model byte_model(bool whole_piece_first) {
    static const std::string kBytes = [] {
        std::string bytes;
        for (int b = 0; b < 256; ++b) bytes.push_back(static_cast<char>(b));
        return bytes;
    }();
    VocabularyInput input;
    input.whole_piece_first = whole_piece_first;
    for (size_t b = 0; b < 256; ++b) input.tokens.push_back(std::string_view(kBytes).substr(b, 1));
    for (const std::string& token : grown_tokens()) input.tokens.push_back(token);
    for (uint32_t id = 0; id < input.tokens.size(); ++id) input.ids.push_back(id);
    return Model(from_ranks(input, input.ids));
}

// SentencePiece's kind: characters with byte fallback, ids 0..255; `num_ranks` scores, so that pieces share them.
inline Model character_model(uint32_t num_ranks) {
    static const std::vector<std::string> kPieces = {
        "t", "h", "e", "i", "n", "g", "a", "b", "c", "z", " ", "\xC3\xA9", "\xE6\xB0\xB4", "\xE8\xBB\x8A", "1", "2", ".",
        "th", "he", "the", " t", " the", "in", "ing", "an", " a", "ab", "bc", "abc", "aa", "aaa", "aaaa", "aaaaaaaa", "  ",
        "    ", "12", "..", "\xE6\xB0\xB4\xE8\xBB\x8A", "\xC3\xA9t", "t\xC3\xA9", "zz", "zzzz", "zzz"};
    std::vector<std::string> marked;
    for (const std::string& piece : kPieces) {
        std::string text;
        for (char c : piece) c == ' ' ? text.append("\xE2\x96\x81") : text.append(1, c);
        marked.push_back(std::move(text));
    }
    VocabularyInput input;
    input.text = TokenText::marks;
    std::vector<uint32_t> ranks, byte_ids;
    for (uint32_t i = 0; i < marked.size(); ++i) {
        input.tokens.push_back(marked[i]);
        input.ids.push_back(256 + i);
        ranks.push_back(i * 7 % num_ranks);
    }
    for (uint32_t b = 0; b < 256; ++b) byte_ids.push_back(b);
    return Model(from_ranks(input, ranks, byte_ids));
}

// Class of every code point by a rule.
template <typename Rule>
ClassTable classes_by(const Rule& rule) {
    ClassTable table;
    std::vector<uint8_t> last;
    for (uint32_t block = 0; block < 0x1100; ++block) {
        std::vector<uint8_t> here(256);
        for (uint32_t i = 0; i < 256; ++i) here[i] = rule(block * 256 + i);
        if (here != last) table.stage2.insert(table.stage2.end(), here.begin(), here.end());
        table.stage1.push_back(static_cast<uint16_t>(table.stage2.size() / 256 - 1));
        last = std::move(here);
    }
    return table;
}

// Both runners of one split.
struct Split {
    Transducer fast;
    PlainSplitter slow;
};

// Transitions of a transducer over few classes, spread over its 256 columns. go(config, class) is an entry.
template <typename Go>
std::vector<uint16_t> transducer_table(const ClassTable& classes, unsigned num_configs, unsigned num_classes, const Go& go) {
    std::vector<uint16_t> table(num_configs * 256);
    for (unsigned q = 0; q < num_configs; ++q) {
        for (unsigned c = 0; c < 128; ++c) table[q * 256 + c] = go(q, classes.of(c));
        for (unsigned k = 0; k <= num_classes; ++k) table[q * 256 + 128 + k] = go(q, k);
    }
    return table;
}

inline uint16_t entry(unsigned config, unsigned pops, bool push) {
    return static_cast<uint16_t>(config << 8 | pops << 1 | (push ? 1u : 0u));
}

constexpr uint16_t kDead = 0xFFFF;

// ` ?[letters]+|.` where letters are a-z, A-Z and everything from U+00C0 on.
inline Split word_split() {
    enum { letter, space, other, kClasses };
    ClassTable classes = classes_by([](uint32_t c) -> uint8_t {
        if (c == ' ') return space;
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0xC0 ? letter : other;
    });
    // Configs: 0 nothing read, 1 in a word, 2 after a space, 3 after another character.
    auto go = [](unsigned q, unsigned cls) {
        if (cls == kClasses) return entry(0, 0, q != 0);
        bool goes_on = cls == letter && (q == 1 || q == 2);
        return entry(cls == letter ? 1 : cls == space ? 2 : 3, 0, q != 0 && !goes_on);
    };
    PlainSplitter slow{classes, kClasses, {}, {}, true, true};
    slow.next_state = {1, 2, 3, kDead, 1, kDead, kDead, kDead, 1, kDead, kDead, kDead, kDead, kDead, kDead, kDead};
    slow.match = {0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    Transducer fast(classes, transducer_table(classes, 4, kClasses, go), kClasses);
    return {std::move(fast), std::move(slow)};
}

// `abc|.`: an end after "a" is taken back when "bc" follows.
inline Split backtracking_split() {
    enum { a, b, c, other, kClasses };
    ClassTable classes = classes_by([](uint32_t code) -> uint8_t {
        return code == 'a' ? a : code == 'b' ? b : code == 'c' ? c : other;
    });
    // Configs: 0 nothing read, 1 after "a", 2 after "ab", 3 after a whole piece.
    auto go = [](unsigned q, unsigned cls) {
        if (cls == kClasses) return entry(0, 0, q != 0);
        if (q == 1 && cls == b) return entry(2, 0, true);
        if (q == 2 && cls == c) return entry(3, 1, false);
        return entry(cls == a ? 1 : 3, 0, q != 0);
    };
    PlainSplitter slow{classes, kClasses, {}, {}, true, true};
    slow.next_state = {1, 4, 4, 4, kDead, kDead, 2, kDead, kDead, kDead, kDead, kDead, 3};
    slow.next_state.resize(25, kDead);
    slow.match = std::vector<uint8_t>(25);
    for (unsigned state : {1u, 3u, 4u}) {
        for (unsigned k = 0; k <= kClasses; ++k) slow.match[state * 5 + k] = 1;
    }
    Transducer fast(classes, transducer_table(classes, 4, kClasses, go), kClasses);
    return {std::move(fast), std::move(slow)};
}

// Letters, digits and _ are words; the ASCII spaces and U+3000 are white space.
inline const ClassTable& word_classes() {
    static const ClassTable kClasses = classes_by([](uint32_t c) -> uint8_t {
        if (c == ' ' || (c >= '\t' && c <= '\r') || c == 0x3000) return 2;
        bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0xC0;
        return is_word ? 1 : 0;
    });
    return kClasses;
}

// Every kind of flag, and contents that are parts of one another.
inline std::vector<AddedToken> added_tokens() {
    std::vector<AddedToken> tokens = {
        {0, "<s>", true, false, false, false},   {0, "<s><s>", true, false, false, false},
        {0, "</s>", true, false, true, false},   {0, "<pad>", true, false, false, true},
        {0, "the", false, true, false, false},   {0, "<x>", false, false, true, true},
        {0, "   ", false, false, false, false},  {0, "      ", false, false, false, false},
        {0, "\xE6\xB0\xB4", false, true, true, false}, {0, "<", false, true, false, false}};
    for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i].id = kFirstAdded + i;
    return tokens;
}

// An added token in a text, with the white space it takes.
struct Found {
    size_t begin, end;
    uint32_t id;
    bool operator==(const Found&) const = default;
};

inline std::vector<Found> find_fast(const AddedTokens& tokens, std::string_view text, SpecialPolicy policy) {
    std::vector<Found> all;
    if (tokens.is_idle(policy)) return all;
    size_t from = 0, taken = 0;
    AddedTokens::Match match;
    while (tokens.next(text, from, taken, policy, match)) {
        all.push_back({match.begin, match.end, match.token->id});
        taken = match.end;
    }
    return all;
}

// Every token tried at every place, the longest first.
inline std::vector<Found> find_slowly(const std::vector<AddedToken>& tokens, std::string_view text, SpecialPolicy policy) {
    const ClassTable& classes = word_classes();
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    auto class_at = [&](size_t at, size_t& size) {
        unsigned length;
        unsigned cls = classes.of(utf8_decode(bytes + at, length));
        size = length;
        return cls;
    };
    auto start_before = [&](size_t at) {
        do --at;
        while (at > 0 && (text[at] & 0xC0) == 0x80);
        return at;
    };
    std::vector<Found> all;
    size_t taken = 0, size;
    for (size_t at = 0; at < text.size();) {
        const AddedToken* best = nullptr;
        for (const AddedToken& token : tokens) {
            bool is_longer = !best || token.content.size() > best->content.size();
            if (is_longer && text.substr(at).starts_with(token.content)) best = &token;
        }
        if (!best) {
            ++at;
            continue;
        }
        size_t begin = at, end = at + best->content.size();
        at = end;
        if (best->special && policy == SpecialPolicy::text) continue;
        if (best->single_word && begin > 0 && class_at(start_before(begin), size) == 1) continue;
        if (best->single_word && end < text.size() && class_at(end, size) == 1) continue;
        while (best->strip_left && begin > taken && class_at(start_before(begin), size) == 2) begin = start_before(begin);
        if (best->strip_left) begin = std::max(begin, taken);
        while (best->strip_right && end < text.size() && class_at(end, size) == 2) end += size;
        all.push_back({begin, end, best->id});
        taken = end;
    }
    return all;
}

enum class Kind { bytes, whole_first, chain, characters, tied };
constexpr Kind kKinds[] = {Kind::bytes, Kind::whole_first, Kind::chain, Kind::characters, Kind::tied};

inline std::shared_ptr<const Model> model_of(Kind kind) {
    static const std::shared_ptr<const Model> kModels[] = {
        std::make_shared<Model>(byte_model(false)), std::make_shared<Model>(byte_model(true)),
        std::make_shared<Model>(byte_model(false)), std::make_shared<Model>(character_model(1000)),
        std::make_shared<Model>(character_model(2))};
    return kModels[static_cast<size_t>(kind)];
}

inline bool is_characters(Kind kind) { return kind == Kind::characters || kind == Kind::tied; }

// A whole tokenizer of each kind.
inline Program program(Kind kind, std::vector<AddedToken> tokens) {
    static const Split kSplit = word_split();
    Program program;
    program.model = model_of(kind);
    if (kind == Kind::chain) {
        program.chain.push_back(kSplit.slow);
    } else if (is_characters(kind)) {
        program.transducer = word_transducer(*program.model);
        program.is_cut_freely = true;
    } else {
        program.transducer = std::make_unique<Transducer>(kSplit.fast);
    }
    program.raw_tokens = std::make_unique<AddedTokens>(std::move(tokens), word_classes());
    program.normalized_tokens = std::make_unique<AddedTokens>(std::vector<AddedToken>{}, word_classes());
    return program;
}

inline uint32_t find_slowly(const Model& model, std::string_view bytes) {
    uint32_t id = 0;
    while (id < model.num_ids() && model.token(id) != bytes) ++id;
    return id < model.num_ids() ? id : kNoId;
}

// The ids of text without added tokens, by the slow twins alone.
inline void encode_slowly(const Program& program, Kind kind, std::string_view text, std::vector<uint32_t>& out) {
    const Model& model = *program.model;
    if (is_characters(kind)) {  // no pre-tokenizer: all of it is one piece
        merge_slowly(model, text, out);
        return;
    }
    static const PlainSplitter kSplitter = word_split().slow;
    std::vector<PlainSplitter::Piece> pieces;
    kSplitter.split(reinterpret_cast<const uint8_t*>(text.data()), 0, text.size(), pieces);
    for (auto piece : pieces) {
        std::string_view bytes = text.substr(piece.begin, piece.end - piece.begin);
        uint32_t id = model.whole_piece_first() ? find_slowly(model, bytes) : kNoId;
        if (id != kNoId) {
            out.push_back(id);
        } else {
            merge_slowly(model, bytes, out);
        }
    }
}

// Bytes made valid UTF-8: what is not becomes U+FFFD.
inline std::string valid_text(const uint8_t* data, size_t size) {
    std::string out;
    for (size_t at = 0; at < size;) {
        size_t valid = utf8_first_invalid(data + at, size - at);
        out.append(reinterpret_cast<const char*>(data) + at, valid);
        at += valid;
        if (at == size) break;
        out.append("\xEF\xBF\xBD");
        at += utf8_invalid_length(data, size, at);
    }
    return out;
}

}  // namespace small
