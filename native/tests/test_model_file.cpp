// A compiled vocabulary packed and unpacked merges as before; bytes that were cut or changed never reach past an end.
#include <cstdio>
#include <random>
#include <string>

#include "merge.hpp"
#include "model_file.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;

int num_failures = 0;

void check(bool is_right, const char* claim) {
    if (is_right) return;
    ++num_failures;
    std::fprintf(stderr, "failed: %s\n", claim);
}

std::vector<uint32_t> merged(const Model& model, std::string_view text) {
    std::vector<uint32_t> ids;
    merge_slowly(model, text, ids);
    return ids;
}

// At each place of a text: whether a token may lie across it.
std::vector<bool> covered(const Model& model, std::string_view text) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    std::vector<bool> found;
    for (size_t at = 1; at < text.size(); ++at) {
        found.push_back(model.cover().may_cover(bytes, text.size(), at));
        if (at >= 3 && text.size() - at >= 3) found.push_back(model.cover().may_cover_between(bytes + at));
    }
    return found;
}

void test_again_the_same(const Model& model) {
    std::string packed = pack_model(model);
    Model again(unpack_model(packed));
    check(pack_model(again) == packed, "packed again it is the same");
    for (const std::string& token : small::grown_tokens()) {
        std::string text = token + "the\xE6\xB0\xB4\xE8\xBB\x8A" + token;
        check(merged(again, text) == merged(model, text), "merges are the same");
        check(covered(again, text) == covered(model, text), "places that tokens cover are the same");
    }
    for (uint32_t id = 0; id < model.num_ids(); ++id) {
        check(again.decoded(id) == model.decoded(id), "decoded bytes are the same");
        check(again.is_reachable(id) == model.is_reachable(id), "what is reachable is the same");
    }
}

void test_hostile(const Model& model) {
    std::string packed = pack_model(model), cover;
    model.cover().pack(cover);  // most of it: half of the changes are elsewhere
    size_t cover_at = packed.find(cover), num_others = packed.size() - cover.size();
    check(cover_at != packed.npos, "the filter is a part of it");
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        auto any_place = [&](size_t size) {
            size_t at = random() % num_others;
            at += at < cover_at ? 0 : cover.size();
            return round % 4 < 2 && at < size ? at : random() % size;
        };
        std::string changed = packed;
        if (round % 2) changed.resize(any_place(packed.size()));
        for (int i = 0; i < 3 && !changed.empty(); ++i) changed[any_place(changed.size())] ^= static_cast<char>(1 + random() % 255);
        try {
            Model again(unpack_model(changed));
            merged(again, "another brown \xE6\xB0\xB4");
            covered(again, "another brown \xE6\xB0\xB4\xE8\xBB\x8A");
        } catch (const std::exception&) {
            // Refused, as it may be.
        }
    }
}

}  // namespace

int main() {
    for (bool whole_piece_first : {false, true}) test_again_the_same(small::byte_model(whole_piece_first));
    test_again_the_same(small::character_model(7));
    test_hostile(small::byte_model(false));
    test_hostile(small::character_model(7));
    return num_failures != 0;
}
