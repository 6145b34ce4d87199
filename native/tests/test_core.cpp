// Every fast path against its slow twin, on tables small enough to be written by hand (small_tokenizer.hpp).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;
using Ids = std::vector<uint32_t>;

class Chance {
public:
    explicit Chance(uint32_t seed) : random_(seed) {}
    size_t below(size_t limit) { return random_() % limit; }
    // `count` parts one after the other.
    std::string text(const std::vector<std::string>& parts, size_t count) {
        std::string out;
        for (; count > 0; --count) out += parts[below(parts.size())];
        return out;
    }

private:
    std::mt19937 random_;
};

const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }

// On the heap and of exact size, so that AddressSanitizer sees a read past its end.
std::vector<uint8_t> exact(std::string_view text) { return {bytes_of(text), bytes_of(text) + text.size()}; }

const std::vector<std::string> kParts = {
    "a", "b", "c", "z", "t", "h", "e", "the", " the", " ", "  ", "\n", "\r\n", "1", "23", ".", "'s", "ing", "another",
    "\xC3\xA9", "\xE6\xB0\xB4", "\xE8\xBB\x8A", "\xF0\x9F\x99\x82", "\xE2\x96\x81", "\xE2\x80\x8D", "quick", "brown",
    "aaaaaaaa", "unreachable", "<s>", "<x>", "zzzz", "qqqqqqqqqqqq", "\xE6\xB0\xB4\xE8\xBB\x8A\xE6\xB0\xB4\xE8\xBB\x8A"};

// UTF-8

// The definition: shortest form, no surrogates, at most U+10FFFF.
bool is_character(const uint8_t* p, size_t size) {
    uint8_t again[4];
    if (size == 0 || size > 4) return false;
    const uint8_t leads[] = {0x00, 0xC0, 0xE0, 0xF0}, masks[] = {0x7F, 0x1F, 0x0F, 0x07};
    if ((p[0] & ~masks[size - 1] & 0xFF) != leads[size - 1]) return false;
    uint32_t code = p[0] & masks[size - 1];
    for (size_t i = 1; i < size; ++i) {
        if ((p[i] & 0xC0) != 0x80) return false;
        code = code << 6 | (p[i] & 0x3F);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    return utf8_encode(code, again) == size;
}

size_t first_invalid_slowly(const uint8_t* text, size_t size) {
    size_t at = 0;
    while (at < size) {
        size_t length = 1;
        while (length <= 4 && (at + length > size || !is_character(text + at, length))) ++length;
        if (length > 4) break;
        at += length;
    }
    return at;
}

void test_utf8_is_checked_as_the_definition_has_it() {
    const uint8_t marks[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                             0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF};
    constexpr size_t kMarks = std::size(marks);
    for (size_t n = 0; n < kMarks * kMarks * kMarks * kMarks; ++n) {
        uint8_t text[4] = {marks[n % kMarks], marks[n / kMarks % kMarks], marks[n / kMarks / kMarks % kMarks],
                           marks[n / kMarks / kMarks / kMarks]};
        if (utf8_first_invalid(text, 4) != first_invalid_slowly(text, 4)) {
            check(false, "four bytes are checked right", {reinterpret_cast<char*>(text), 4});
        }
    }
    for (uint32_t code = 0; code < 0x110000; ++code) {
        if (code == 0xD800) code = 0xE000;
        uint8_t text[4];
        unsigned length, size = utf8_encode(code, text);
        bool is_same = utf8_first_invalid(text, size) == size && utf8_decode(text, length) == code && length == size;
        if (!is_same || utf8_length(text[0]) != size) check(false, "a code point comes back");
    }
    Chance chance(1);
    for (int round = 0; round < 20000; ++round) {
        std::string text = chance.text(kParts, chance.below(20));
        if (!text.empty() && chance.below(3)) text[chance.below(text.size())] = static_cast<char>(chance.below(256));
        if (chance.below(4) == 0) text.resize(chance.below(text.size() + 1));
        auto copy = exact(text);
        check(utf8_first_invalid(copy.data(), copy.size()) == first_invalid_slowly(copy.data(), copy.size()),
              "the first invalid byte is found", text);
        std::string valid = small::valid_text(copy.data(), copy.size());
        check(first_invalid_slowly(bytes_of(valid), valid.size()) == valid.size(), "replacing makes text valid", text);
    }
}

// Splitting

Ids ends_slowly(const PlainSplitter& splitter, std::string_view text) {
    std::vector<PlainSplitter::Piece> pieces;
    splitter.split(bytes_of(text), 0, text.size(), pieces);
    Ids ends;
    uint32_t at = 0;
    for (auto piece : pieces) {
        check(piece.begin == at && piece.end > piece.begin, "pieces follow one another", text);
        ends.push_back(at = piece.end);
    }
    return ends;
}

Ids ends_fast(const Transducer& transducer, const std::vector<uint8_t>& text, size_t begin, size_t end) {
    Ids room(end - begin), ends;
    auto pieces = transducer.split(text.data(), begin, end, end == text.size(), room.data());
    for (size_t i = 0; i < pieces.num_runs; ++i) {
        ends.insert(ends.end(), pieces.runs[i].ends, pieces.runs[i].ends + pieces.runs[i].count);
    }
    return ends;
}

void test_the_transducer_splits_as_the_plain_splitter() {
    const small::Split splits[] = {small::word_split(), small::backtracking_split()};
    Chance chance(2);
    for (int round = 0; round < 6000; ++round) {
        const small::Split& split = splits[round % 2];
        size_t count = round % 50 == 0 ? 400 + chance.below(2000) : chance.below(12);  // long ones run in lanes
        std::string text = chance.text(kParts, count);
        Ids expected = ends_slowly(split.slow, text);
        auto copy = exact(text);
        check(ends_fast(split.fast, copy, 0, copy.size()) == expected, "one run gives the pieces", text);
        if (text.empty()) continue;
        size_t cut = split.fast.safe_cut(copy.data(), chance.below(copy.size()), copy.size());
        Ids parts = ends_fast(split.fast, copy, 0, cut), rest = ends_fast(split.fast, copy, cut, copy.size());
        parts.insert(parts.end(), rest.begin(), rest.end());
        check(parts == expected, "two runs from a safe cut give the same", text);
    }
}

// A table of chance: `kinds` kinds of ASCII characters, and an end may be taken back by the character behind it. Before
// the first kind a piece always ends, so that there are safe cuts and several lanes.
std::vector<uint16_t> table_by_chance(Chance& chance, unsigned kinds, unsigned num_states) {
    std::vector<uint16_t> table((1 + 2 * num_states) * 256);  // config 0, then two a state: the last step put no end, or one
    for (unsigned q = 0; q < 1 + 2 * num_states; ++q) {
        uint16_t* row = table.data() + q * 256;
        for (unsigned column = 0; column <= 128; ++column) {
            bool is_put = q && (column == 0 || chance.below(2)), is_taken_back = q && q % 2 == 0 && chance.below(3) == 0;
            unsigned next = column == 0 ? 1 : 1 + 2 * static_cast<unsigned>(chance.below(num_states)) + is_put;
            row[column] = column < 128 && column >= kinds ? row[column % kinds] : small::entry(next, is_taken_back, is_put);
        }
        row[129] = small::entry(0, 0, q != 0);
    }
    return table;
}

Ids ends_by_table(const std::vector<uint16_t>& table, const std::vector<uint8_t>& text) {
    Ids ends;
    unsigned config = 0;
    auto step = [&](unsigned column, size_t at) {
        uint16_t entry = table[config * 256 + column];
        ends.resize(ends.size() - (entry >> 1 & 0x7F));
        if (entry & 1) ends.push_back(static_cast<uint32_t>(at));
        config = entry >> 8;
    };
    for (size_t at = 0; at < text.size(); at += utf8_length(text[at])) step(text[at] < 128 ? text[at] : 128, at);
    if (!text.empty()) step(129, text.size());
    return ends;
}

void test_a_transducer_does_what_its_table_says() {
    Chance chance(12);
    for (int round = 0; round < 60; ++round) {
        bool has_too_many_pairs = round % 6 == 0;  // then it goes one character a step
        auto kinds = has_too_many_pairs ? 128u : 1 + static_cast<unsigned>(chance.below(6));
        auto table = table_by_chance(chance, kinds, has_too_many_pairs ? 40 : 3);
        Transducer transducer({std::vector<uint16_t>(0x1100), std::vector<uint8_t>(256)}, table, 1);
        for (int i = 0; i < 40; ++i) {
            std::string text;
            for (size_t size = chance.below(600); text.size() < size;) {
                text += chance.below(60) ? std::string(1, static_cast<char>(chance.below(128))) : "\xC3\xA9";
            }
            auto copy = exact(text);
            check(ends_fast(transducer, copy, 0, copy.size()) == ends_by_table(table, copy), "ends are those of the table", text);
        }
    }
}

void test_what_a_split_leaves_out_is_left_out() {
    PlainSplitter splitter = small::backtracking_split().slow;
    splitter.next_state[3] = kNoId & 0xFFFF;  // other characters match nothing now
    auto kept = [&](bool keep_matches, bool keep_gaps) {
        splitter.keep_matches = keep_matches;
        splitter.keep_gaps = keep_gaps;
        std::vector<PlainSplitter::Piece> pieces;
        splitter.split(bytes_of("xyabcaz"), 0, 7, pieces);
        std::string out;
        for (auto piece : pieces) out += std::string("xyabcaz").substr(piece.begin, piece.end - piece.begin) + "|";
        return out;
    };
    check(kept(true, true) == "xy|abc|a|z|", "both are kept");
    check(kept(true, false) == "abc|a|", "gaps are dropped");
    check(kept(false, true) == "xy|z|", "matches are dropped");
}

// Merging

void check_merges(const Model& model, std::string_view text) {
    Ids expected, longest;
    merge_slowly(model, text, expected);
    MergeScratch scratch;
    merge_long(model, text, scratch, longest);
    check(longest == expected, "merge_long is merge_slowly", text);
    if (text.size() > kShortSymbols) return;
    Ids shortest(text.size() + 1);
    shortest.resize(text.empty() ? 0 : merge_short(model, text, shortest.data()));
    check(shortest == expected, "merge_short is merge_slowly", text);
}

template <size_t kSize>
void check_many(const Model& model, const std::vector<std::string>& texts) {
    std::vector<MergeJob<kSize - 1>> jobs;
    for (const std::string& text : texts) {
        if (text.size() < kSize) jobs.emplace_back().set(text);
    }
    merge_many<kSize>(model, jobs.data(), jobs.size());
    for (const auto& job : jobs) {
        Ids expected;
        merge_slowly(model, job.text, expected);
        check(Ids(job.ids, job.ids + job.count) == expected, "merge_many is merge_slowly", job.text);
    }
}

void test_every_way_to_merge_is_the_slow_way() {
    const Model models[] = {small::byte_model(false), small::byte_model(true), small::character_model(1000),
                            small::character_model(3), small::character_model(1)};
    Chance chance(3);
    for (const Model& model : models) {
        for (size_t size = 0; size <= 70; ++size) check_merges(model, std::string(size, 'a'));
        for (int round = 0; round < 1500; ++round) {
            std::string text = chance.text(kParts, chance.below(round % 30 ? 10 : 100));
            check_merges(model, text);
            std::vector<std::string> many;
            for (size_t n = chance.below(40); n > 0; --n) {
                std::string part = chance.text(kParts, 1 + chance.below(4));
                many.push_back(part);
            }
            check_many<16>(model, many);
            check_many<32>(model, many);
        }
    }
}

// The definition, with every merge of the input: no table, nothing left out.
Ids merge_by_list(const ModelInput& input, std::string_view text) {
    Ids ids;
    for (char c : text) ids.push_back(static_cast<uint8_t>(c));
    for (;;) {
        const Merge* best = nullptr;
        size_t where = 0;
        for (size_t i = 0; i + 1 < ids.size(); ++i) {
            for (const Merge& merge : input.merges) {
                bool is_pair = merge.left == ids[i] && merge.right == ids[i + 1];
                if (is_pair && (!best || merge.rank < best->rank)) best = &merge, where = i;
            }
        }
        if (!best) return ids;
        ids[where] = best->result;
        ids.erase(ids.begin() + static_cast<ptrdiff_t>(where) + 1);
    }
}

// Bytes, and strings of a few letters with ranks in no order, some of them shared; a merge for each way to put one together.
ModelInput random_vocabulary(Chance& chance) {
    ModelInput input;
    for (int b = 0; b < 256; ++b) input.tokens.emplace_back(1, static_cast<char>(b));
    std::vector<uint32_t> ranks(256);
    size_t num_ranks = chance.below(2) ? 8 : 1000;
    for (int n = 0; n < 40; ++n) {
        std::string token = chance.text({"a", "b", "c", "\xE6\xB0\xB4"}, 2 + chance.below(4));
        if (std::find(input.tokens.begin(), input.tokens.end(), token) != input.tokens.end()) continue;
        input.tokens.push_back(token);
        ranks.push_back(static_cast<uint32_t>(chance.below(num_ranks)));
    }
    auto id_of = [&](std::string_view token) {
        return static_cast<size_t>(std::find(input.tokens.begin(), input.tokens.end(), token) - input.tokens.begin());
    };
    for (uint32_t id = 256; id < input.tokens.size(); ++id) {
        std::string_view token = input.tokens[id];
        for (size_t at = 1; at < token.size(); ++at) {
            size_t left = id_of(token.substr(0, at)), right = id_of(token.substr(at));
            if (std::max(left, right) == input.tokens.size()) continue;
            input.merges.push_back({static_cast<uint32_t>(left), static_cast<uint32_t>(right), ranks[id], id});
        }
    }
    return input;
}

void test_merges_left_out_are_never_needed() {
    Chance chance(8);
    size_t num_left_out = 0;
    for (int round = 0; round < 150; ++round) {
        ModelInput input = random_vocabulary(chance);
        Model model(input);
        num_left_out += input.merges.size() - model.pairs().in_order().size();
        for (int n = 0; n < 40; ++n) {
            std::string text = chance.text({"a", "b", "c", "\xE6\xB0\xB4", "d"}, 1 + chance.below(12));
            Ids ids;
            merge_slowly(model, text, ids);
            check(ids == merge_by_list(input, text), "merging with the merges kept is merging with all", text);
        }
    }
    check(num_left_out > 1000, "merges were left out");
}

void test_a_perfect_hash_gives_each_key_a_place_of_its_own() {
    Chance chance(9);
    for (size_t size : {0u, 1u, 2u, 9u, 1000u, 100000u}) {
        std::vector<uint64_t> keys;
        for (size_t i = 0; i < size; ++i) keys.push_back(chance.below(1000) << 32 | i);
        PerfectHash hash;
        check(hash.build(keys), "places are found");
        std::vector<bool> is_taken(hash.num_places());
        for (uint64_t key : keys) {
            check(!is_taken[hash.place(key)], "no two keys share a place");
            is_taken[hash.place(key)] = true;
        }
        PerfectHash again;
        check(again.take(size, hash.found()) && !again.take(8 * size + 64, hash.found()), "what was found is of so many keys");
        check(again.take(size, hash.found()), "it can be taken again");
        for (uint64_t key : keys) check(again.place(key) == hash.place(key), "places are the same without the search");
    }
    PerfectHash hash;
    check(!hash.build(std::vector<uint64_t>{7, 7}), "equal keys have no places of their own");
}

void test_a_cover_of_no_between_characters_is_never_wrong() {
    const std::vector<std::string> parts = {"\xE6\xB0\xB4", "\xE8\xBB\x8A", "\xE6\xB0\xB8", "\xF0\x9F\x99\x82", "\xC3\xA9", "a"};
    const Model models[] = {small::byte_model(false), small::character_model(3)};
    Chance chance(10);
    size_t num_cuts = 0;
    for (const Model& model : models) {
        for (int round = 0; round < 5000; ++round) {
            std::string text = chance.text(parts, 2 + chance.below(6));
            for (size_t at = 3; at + 3 <= text.size(); ++at) {
                if ((text[at] & 0xC0) == 0x80 || model.cover().may_cover_between(bytes_of(text) + at)) continue;
                Ids whole, apart;
                merge_slowly(model, text, whole);
                merge_slowly(model, text.substr(0, at), apart);
                merge_slowly(model, text.substr(at), apart);
                check(whole == apart, "apart is the same as together where six bytes show no token across", text);
                ++num_cuts;
            }
        }
    }
    check(num_cuts > 1000, "there were cuts");
}

void test_a_cover_of_no_is_never_wrong() {
    const Model models[] = {small::byte_model(false), small::character_model(3)};
    Chance chance(4);
    for (const Model& model : models) {
        for (int round = 0; round < 3000; ++round) {
            std::string text = chance.text(kParts, 1 + chance.below(6));
            for (size_t at = 1; at < text.size(); ++at) {
                if ((text[at] & 0xC0) == 0x80 || model.cover().may_cover(bytes_of(text), text.size(), at)) continue;
                Ids whole, parts;
                merge_slowly(model, text, whole);
                merge_slowly(model, text.substr(0, at), parts);
                merge_slowly(model, text.substr(at), parts);
                check(whole == parts, "apart is the same as together where no token lies across", text);
            }
        }
    }
}

// Remembering pieces

void test_the_piece_table_gives_back_what_it_was_given() {
    for (size_t max_bytes : {size_t{1}, size_t{1} << 20, size_t{8} << 20}) {
        PieceTable table(max_bytes);
        const size_t first_bytes = table.memory_bytes();
        Chance chance(5);
        size_t num_found = 0, num_asked = 0, most = 0;
        std::vector<std::string> recent(64);
        for (uint32_t n = 0; n < 200000; ++n) {
            std::string piece = std::to_string(n * 2654435761u) + std::string(chance.below(n % 3 ? 5 : 40), 'x');
            // Ids that tell the piece, so that a wrong entry is seen.
            auto ids_of = [](const std::string& text) {
                Ids ids(1 + text.size() % 7);
                for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(std::hash<std::string>()(text) + i);
                return ids;
            };
            auto look_up = [&](const std::string& text, bool& is_there) {
                if (text.size() > ShortKey::kMaxBytes) {
                    auto found = table.find_long(text, hash_bytes(text));
                    is_there = found.ids != nullptr;
                    return is_there ? Ids(found.ids, found.ids + found.count) : Ids{};
                }
                ShortKey key = ShortKey::load_safely(bytes_of(text), text.size());
                const ShortSlot* slot = table.find(key, key.hash());
                is_there = slot != nullptr;
                if (!slot) return Ids{};
                const uint32_t* ids = slot->count <= 3 ? slot->ids : table.arena(slot->ids[0]);
                return Ids(ids, ids + slot->count);
            };
            bool is_there;
            look_up(piece, is_there);
            check(!is_there, "a piece never given is not there", piece);
            Ids ids = ids_of(piece);
            if (piece.size() > ShortKey::kMaxBytes) {
                table.insert_long(piece, hash_bytes(piece), ids.data(), ids.size());
            } else {
                ShortKey key = ShortKey::load_safely(bytes_of(piece), piece.size());
                table.insert(key, key.hash(), ids.data(), ids.size());
            }
            recent[n % recent.size()] = piece;
            const std::string& asked = recent[chance.below(recent.size())];
            if (asked.empty()) continue;
            Ids found = look_up(asked, is_there);
            ++num_asked;
            num_found += is_there;
            check(!is_there || found == ids_of(asked), "what is there is right", asked);
            most = std::max(most, table.memory_bytes());
        }
        check(most <= std::max(max_bytes, first_bytes + (size_t{1} << 19)), "memory stays under the bound");
        check(num_found * 10 > num_asked * 9, "what was just given is mostly there");
    }
}

// Added tokens

void test_added_tokens_are_found_leftmost_and_longest() {
    const std::vector<AddedToken> tokens = small::added_tokens();
    std::vector<std::string> parts = {"a", "_", " ", "  ", "\n", "\xE3\x80\x80", "\xC3\xA9", "<", "s>", "x", "th", "-"};
    for (const AddedToken& token : tokens) parts.insert(parts.end(), 2, token.content);
    Chance chance(6);
    for (size_t kept = 0; kept <= tokens.size(); ++kept) {
        std::vector<AddedToken> some(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(kept));
        const AddedTokens added(some, small::word_classes());
        for (int round = 0; round < 3000; ++round) {
            auto copy = exact(chance.text(parts, chance.below(12)));
            std::string_view text(reinterpret_cast<const char*>(copy.data()), copy.size());
            for (SpecialPolicy policy : {SpecialPolicy::text, SpecialPolicy::parse}) {
                auto fast = small::find_fast(added, text, policy), slow = small::find_slowly(some, text, policy);
                check(fast == slow, "the same tokens at the same places", text);
            }
        }
    }
}

// The whole engine

BatchResult encode(Engine& engine, const std::vector<std::vector<uint8_t>>& texts, const BatchOptions& options) {
    std::vector<Document> documents;
    for (const auto& text : texts) documents.push_back({text.data(), text.size(), false});
    return engine.encode(documents, options);
}

std::vector<std::vector<uint8_t>> some_texts(uint32_t seed, size_t count) {
    Chance chance(seed);
    std::vector<std::vector<uint8_t>> texts;
    for (size_t i = 0; i < count; ++i) texts.push_back(exact(chance.text(kParts, chance.below(i % 40 ? 30 : 3000))));
    // Words that never come back, short ones of other scripts among them: tables grow and are forgotten.
    std::string words;
    for (uint32_t i = 0; i < 30000; ++i) {
        words += i % 3 ? '\n' : ' ';
        for (uint32_t code : {0x4E00 + i % 5000, 0x3041 + i / 5000, 0xE0 + i % 30, uint32_t{'a'} + i % 26}) {
            uint8_t bytes[4];
            words.append(reinterpret_cast<char*>(bytes), utf8_encode(code, bytes));
        }
    }
    texts.push_back(exact(words));
    for (char run : {'a', ' ', '\n', '1', 'z'}) texts.push_back(exact(std::string(20000, run)));
    return texts;
}

bool are_equal(const BatchResult& a, const BatchResult& b) {
    return a.offsets == b.offsets && a.ids.size() == b.ids.size() &&
           std::equal(a.ids.data(), a.ids.data() + a.ids.size(), b.ids.data());
}

void test_the_engine_is_its_slow_twins() {
    for (small::Kind kind : small::kKinds) {
        Engine engine(small::program(kind, {}), 1 << 20), forgetful(small::program(kind, {}), 1);
        Chance chance(7);
        for (int round = 0; round < 2000; ++round) {
            std::string text = chance.text(kParts, chance.below(25));
            Ids expected;
            small::encode_slowly(engine.program(), kind, text, expected);
            for (Engine* one : {&engine, &forgetful}) {
                BatchResult result = encode(*one, {exact(text)}, {});
                check(Ids(result.ids.data(), result.ids.data() + result.ids.size()) == expected, "ids are right", text);
            }
        }
    }
}

// Enough long words that none shares with another for the table to forget all of them in the middle of a batch.
void test_a_long_piece_found_and_then_forgotten_keeps_its_ids() {
    Chance chance(13);
    auto long_word = [&] {
        std::string word = " ";
        for (int i = 0; i < 200; ++i) word += static_cast<char>('a' + chance.below(26));
        return word;
    };
    for (small::Kind kind : small::kKinds) {
        Engine forgetful(small::program(kind, {}), 1);
        std::string known = long_word();
        for (int round = 0; round < 3; ++round) {
            std::string text;
            for (int i = 0; i < 900; ++i) text += i % 100 ? long_word() : known;
            Ids expected;
            if (!small::is_characters(kind)) small::encode_slowly(forgetful.program(), kind, text, expected);
            BatchResult result = encode(forgetful, {exact(text)}, {}), fresh;
            Engine other(small::program(kind, {}), 64 << 20);
            fresh = encode(other, {exact(text)}, {});
            check(are_equal(result, fresh), "a table that forgets gives the same ids");
            if (expected.empty()) continue;
            check(Ids(result.ids.data(), result.ids.data() + result.ids.size()) == expected, "and the right ones");
        }
    }
}

void test_ids_do_not_depend_on_threads_or_memory() {
    const auto texts = some_texts(8, 300);
    for (small::Kind kind : small::kKinds) {
        for (SpecialPolicy policy : {SpecialPolicy::text, SpecialPolicy::parse}) {
            Engine engine(small::program(kind, small::added_tokens()), 4 << 20);
            Engine forgetful(small::program(kind, small::added_tokens()), 1);
            BatchOptions options{policy, false, false, 1};
            const BatchResult expected = encode(engine, texts, options);
            check(expected.error.kind == DocumentError::Kind::none, "valid text has no error");
            for (unsigned num_threads : {1u, 2u, 3u, 8u}) {
                options.num_threads = num_threads;
                check(are_equal(encode(engine, texts, options), expected), "any threads, the same ids");
                check(are_equal(encode(forgetful, texts, options), expected), "any memory, the same ids");
            }
            options.count_only = true;
            check(encode(engine, texts, options).offsets == expected.offsets, "counts are the ids' counts");
            check(forgetful.state_bytes() < 9 * (size_t{4} << 20), "little is held when little is allowed");
        }
    }
}

void test_callers_at_once_do_not_disturb_one_another() {
    const auto texts = some_texts(9, 60);
    Engine engine(small::program(small::Kind::whole_first, small::added_tokens()), 1);
    const BatchResult expected = encode(engine, texts, {});
    std::vector<int> is_equal(4);
    {
        std::vector<std::jthread> callers;
        for (size_t i = 0; i < is_equal.size(); ++i) {
            callers.emplace_back([&, i] { is_equal[i] = are_equal(encode(engine, texts, {}), expected); });
        }
    }
    check(std::count(is_equal.begin(), is_equal.end(), 1) == 4, "every caller gets the same");
}

void test_the_first_broken_document_is_reported() {
    Engine engine(small::program(small::Kind::bytes, {}), 1 << 20);
    std::vector<std::vector<uint8_t>> texts(500, exact("fine text, more than once"));
    texts[300] = exact("ab\xFF");
    texts[400] = exact("\xC3");
    for (unsigned num_threads : {1u, 2u, 8u}) {
        BatchResult result = encode(engine, texts, {SpecialPolicy::text, false, false, num_threads});
        check(result.error.kind == DocumentError::Kind::invalid_utf8, "broken text is an error");
        check(result.error.document == 300 && result.error.offset == 2, "the first one, and where");
        BatchResult replaced = encode(engine, texts, {SpecialPolicy::text, true, false, num_threads});
        check(replaced.error.kind == DocumentError::Kind::none, "or it is replaced");
        check(replaced.offsets[301] - replaced.offsets[300] == 4, "by U+FFFD, three bytes here");
    }
}

}  // namespace

int main() {
    test_utf8_is_checked_as_the_definition_has_it();
    test_the_transducer_splits_as_the_plain_splitter();
    test_a_transducer_does_what_its_table_says();
    test_what_a_split_leaves_out_is_left_out();
    test_every_way_to_merge_is_the_slow_way();
    test_merges_left_out_are_never_needed();
    test_a_perfect_hash_gives_each_key_a_place_of_its_own();
    test_a_cover_of_no_between_characters_is_never_wrong();
    test_a_cover_of_no_is_never_wrong();
    test_the_piece_table_gives_back_what_it_was_given();
    test_added_tokens_are_found_leftmost_and_longest();
    test_the_engine_is_its_slow_twins();
    test_a_long_piece_found_and_then_forgotten_keeps_its_ids();
    test_ids_do_not_depend_on_threads_or_memory();
    test_callers_at_once_do_not_disturb_one_another();
    test_the_first_broken_document_is_reported();
    return num_failures ? 1 : 0;
}
