// Every way to merge against the slow one, and what models leave out.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/chance.hpp"
#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;
using Ids = std::vector<uint32_t>;

void check_merges(const Model& model, std::string_view text) {
    static MergeScratch scratch;  // of texts of all sizes, and of other models
    Ids expected, longest;
    merge_slowly(model, text, expected);
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

void test_pairs_by_rank_are_merged_the_slow_way() {
    Chance chance(12);
    const Model models[] = {small::byte_model(false), small::byte_model(true), small::character_model(3), small::character_model(1)};
    for (const Model& model : models) {
        for (size_t size : {kFewSymbols - 1, kFewSymbols, kFewSymbols + 1}) check_merges(model, std::string(size, 'a'));
        for (int round = 0; round < 20; ++round) check_merges(model, chance.text(kParts, 2 * kFewSymbols));
    }
    for (int round = 0; round < 100; ++round) {
        Model model(random_vocabulary(chance));
        check_merges(model, chance.text({"a", "b", "c", "\xE6\xB0\xB4", "d"}, 2 * kFewSymbols));
        check_merges(model, chance.text({"a", "ab"}, 2 * kFewSymbols));
    }
}

void test_windows_that_fit_are_the_slow_way() {
    Chance chance(11);
    size_t num_fitting = 0, num_tried = 0;
    auto check_windows = [&](const Model& model, const std::string& text) {
        Ids expected, ids = {7};
        merge_slowly(model, text, expected);
        expected.insert(expected.begin(), 7);
        MergeScratch scratch;
        for (size_t window_bytes : {size_t{8}, size_t{20}, size_t{64}, size_t{200}, kFewSymbols + 50}) {
            ids.resize(1);
            bool is_done = merge_by_windows(model, text, window_bytes, scratch, ids);
            num_fitting += is_done;
            ++num_tried;
            check(is_done ? ids == expected : ids == Ids{7}, "merge_by_windows is merge_slowly, or nothing", text);
        }
    };
    const Model models[] = {small::byte_model(false), small::byte_model(true)};
    for (const Model& model : models) {
        for (size_t size : {0, 1, 7, 8, 9, 63, 64, 65, 300, 511}) check_windows(model, std::string(size, 'a'));
        for (int round = 0; round < 300; ++round) check_windows(model, chance.text(kParts, chance.below(120)));
        for (int round = 0; round < 20; ++round) check_windows(model, chance.text(kParts, kFewSymbols));
    }
    for (int round = 0; round < 300; ++round) {
        Model model(random_vocabulary(chance));
        for (int n = 0; n < 5; ++n) check_windows(model, chance.text({"a", "b", "c", "\xE6\xB0\xB4", "d"}, 1 + chance.below(300)));
        check_windows(model, chance.text({"a", "ab"}, 1 + chance.below(300)));
        if (round % 10 == 0) check_windows(model, chance.text({"a", "b", "c", "\xE6\xB0\xB4", "d"}, 3 * kFewSymbols));
    }
    check(num_fitting > num_tried / 2 && num_fitting < num_tried, "windows mostly fit, and not always");
    Ids ids;
    MergeScratch scratch;
    check(!merge_by_windows(small::character_model(3), "the text", 64, scratch, ids), "characters have no windows");
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
    for (size_t size : {0u, 1u, 2u, 9u, 1000u, 98303u, 100000u}) {
        std::vector<uint64_t> keys;
        for (size_t i = 0; i < size; ++i) keys.push_back(chance.below(1000) << 32 | i);
        PerfectHash hash;
        check(hash.build(keys), "places are found");
        std::vector<bool> is_taken(hash.num_places());
        for (uint64_t key : keys) {
            check(!is_taken[hash.place(key)], "no two keys share a place");
            is_taken[hash.place(key)] = true;
        }
        size_t num_first = 0;
        for (size_t i = 0; i < size; ++i) num_first += hash.place(1001ull << 32 | i) == 0;
        check(size < 1000 || num_first > size / 2, "most keys that were not given have the first place");
        PerfectHash again;
        check(again.take(size, hash.found()) && !again.take(8 * size + 64, hash.found()), "what was found is of so many keys");
        check(again.take(size, hash.found()), "it can be taken again");
        for (uint64_t key : keys) check(again.place(key) == hash.place(key), "places are the same without the search");
    }
    PerfectHash alike;
    check(alike.build(std::vector<uint64_t>{5, 5 | 4096ull << 32, 5 | 8192ull << 32}), "keys that differ in few bits are parted");
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

}  // namespace

int main() {
    test_every_way_to_merge_is_the_slow_way();
    test_pairs_by_rank_are_merged_the_slow_way();
    test_windows_that_fit_are_the_slow_way();
    test_merges_left_out_are_never_needed();
    test_a_perfect_hash_gives_each_key_a_place_of_its_own();
    test_a_cover_of_no_between_characters_is_never_wrong();
    test_a_cover_of_no_is_never_wrong();
    return num_failures ? 1 : 0;
}
