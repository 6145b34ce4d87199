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

void test_again_the_same(const Model& model) {
    std::string packed = pack_model(model);
    Model again(unpack_model(packed));
    check(pack_model(again) == packed, "packed again it is the same");
    for (const std::string& token : small::grown_tokens()) {
        check(merged(again, token + "the" + token) == merged(model, token + "the" + token), "merges are the same");
    }
    for (uint32_t id = 0; id < model.num_ids(); ++id) {
        check(again.decoded(id) == model.decoded(id), "decoded bytes are the same");
        check(again.is_reachable(id) == model.is_reachable(id), "what is reachable is the same");
    }
}

void test_hostile(const Model& model) {
    std::string packed = pack_model(model);
    std::mt19937 random(1);
    for (int round = 0; round < 3000; ++round) {
        std::string changed = packed;
        if (round % 2) changed.resize(random() % packed.size());
        for (int i = 0; i < 3 && !changed.empty(); ++i) changed[random() % changed.size()] ^= static_cast<char>(1 + random() % 255);
        try {
            Model again(unpack_model(changed));
            merged(again, "another brown \xE6\xB0\xB4");
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
