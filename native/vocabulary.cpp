#include "vocabulary.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "utf8.hpp"

namespace gristmill {

namespace {

constexpr size_t kMostWork = 1 << 28;  // all splits of a token are tried; o200k needs 2^24
constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581

// GPT-2's table the other way round: code point -> byte, or -1.
std::array<int16_t, 512> byte_of_character() {
    std::array<int16_t, 512> bytes;
    bytes.fill(-1);
    int next = 256;
    for (int b = 0; b < 256; ++b) {
        bool is_printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        bytes[static_cast<size_t>(is_printable ? b : next++)] = static_cast<int16_t>(b);
    }
    return bytes;
}

// The bytes a byte-level token stands for; empty when some character stands for none.
std::string from_byte_level(std::string_view token) {
    static const std::array<int16_t, 512> kBytes = byte_of_character();
    std::string out;
    const auto* p = reinterpret_cast<const uint8_t*>(token.data());
    for (size_t at = 0; at < token.size();) {
        unsigned length;
        uint32_t cp = utf8_decode(p + at, length);
        if (cp >= 512 || kBytes[cp] < 0) return {};
        out.push_back(static_cast<char>(kBytes[cp]));
        at += length;
    }
    return out;
}

// The text a SentencePiece-style token stands for; empty when it holds a space, which no text can after
// spaces became marks.
std::string from_marks(std::string_view token) {
    if (token.find(' ') != std::string_view::npos) return {};
    std::string out;
    for (size_t at = 0; at < token.size();) {
        if (token.substr(at, kMark.size()) == kMark) {
            out.push_back(' ');
            at += kMark.size();
        } else {
            out.push_back(token[at++]);
        }
    }
    return out;
}

// 0..255 for "<0x00>".."<0xFF>", else -1.
int byte_of_fallback(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
    int high = digit(token[3]), low = digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

ModelInput start(const VocabularyInput& vocabulary) {
    ModelInput input;
    bool is_bytes = vocabulary.text == TokenText::bytes || vocabulary.text == TokenText::byte_level;
    input.symbols = is_bytes ? Symbols::bytes : Symbols::characters;
    input.whole_piece_first = vocabulary.whole_piece_first;
    uint32_t num_ids = 0;
    for (uint32_t id : vocabulary.ids) {
        if (id > PairTable::kMaxId) throw ModelError("token id " + std::to_string(id) + " is too large");
        num_ids = std::max(num_ids, id + 1);
    }
    input.tokens.resize(num_ids);
    std::vector<uint8_t> is_taken(num_ids);
    if (vocabulary.byte_fallback) input.byte_ids.assign(256, kNoId);
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
        std::string_view token = vocabulary.tokens[i];
        uint32_t id = vocabulary.ids[i];
        if (is_taken[id]++) throw ModelError("id " + std::to_string(id) + " is given to two tokens");
        int byte = vocabulary.byte_fallback ? byte_of_fallback(token) : -1;
        if (byte >= 0) {
            input.byte_ids[static_cast<size_t>(byte)] = id;
        } else if (vocabulary.text == TokenText::byte_level) {
            input.tokens[id] = from_byte_level(token);
        } else if (vocabulary.text == TokenText::marks) {
            input.tokens[id] = from_marks(token);
        } else {
            input.tokens[id] = std::string(token);
        }
        if (byte < 0 && input.tokens[id].empty()) input.unproducible.emplace(id, token);
    }
    return input;
}

}  // namespace

ModelInput from_merges(const VocabularyInput& vocabulary,
                       const std::vector<std::pair<std::string_view, std::string_view>>& merges) {
    ModelInput input = start(vocabulary);
    std::unordered_map<std::string_view, uint32_t> ids;
    ids.reserve(vocabulary.tokens.size());
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) ids.emplace(vocabulary.tokens[i], vocabulary.ids[i]);
    std::string joined;
    uint32_t rank = 0;
    for (auto [left, right] : merges) {
        joined.assign(left).append(right);
        auto l = ids.find(left), r = ids.find(right), whole = ids.find(joined);
        if (l == ids.end() || r == ids.end() || whole == ids.end()) {
            throw ModelError("merge " + std::to_string(rank) + " (\"" + std::string(left.substr(0, 40)) + "\" + \"" +
                             std::string(right.substr(0, 40)) + "\") names a token that is not in the vocabulary");
        }
        if (vocabulary.byte_fallback && (byte_of_fallback(left) >= 0 || byte_of_fallback(right) >= 0)) {
            throw ModelError("merge " + std::to_string(rank) + " joins byte tokens");
        }
        // A merge of tokens no text can produce can never apply.
        if (!input.tokens[l->second].empty() && !input.tokens[r->second].empty()) {
            if (input.tokens[whole->second].empty()) throw ModelError("merge " + std::to_string(rank) + " makes a byte token");
            input.merges.push_back({l->second, r->second, rank, whole->second});
        }
        ++rank;
    }
    return input;
}

ModelInput from_ranks(const VocabularyInput& vocabulary, const std::vector<uint32_t>& ranks,
                      const std::vector<uint32_t>& byte_ids) {
    ModelInput input = start(vocabulary);
    input.byte_ids = byte_ids;
    for (uint32_t id : byte_ids) {
        if (id != kNoId && id >= input.tokens.size()) input.tokens.resize(id + 1);
    }
    TokenTable table;
    std::vector<std::string_view> views(input.tokens.begin(), input.tokens.end());
    table.build(views);
    size_t work = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
        uint32_t id = vocabulary.ids[i];
        std::string_view token = views[id];
        work += token.size() * token.size();
        if (work > kMostWork) throw ModelError("its tokens are too long to try all their splits");
        for (size_t at = 1; at < token.size(); ++at) {
            uint32_t left = table.find(token.substr(0, at));
            if (left == kNoId) continue;
            uint32_t right = table.find(token.substr(at));
            if (right != kNoId) input.merges.push_back({left, right, ranks[i], id});
        }
    }
    return input;
}

}  // namespace gristmill
