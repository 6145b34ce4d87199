// Any bytes, made valid text, through every kind of tokenizer: the ids are those of the slow twins.
#include <cstdio>
#include <cstdlib>

#include "tests/small_tokenizer.hpp"

using namespace gristmill;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static std::vector<std::unique_ptr<Engine>> engines = [] {
        std::vector<std::unique_ptr<Engine>> all;
        for (small::Kind kind : small::kKinds) all.push_back(std::make_unique<Engine>(small::program(kind, {}), 1));
        return all;
    }();
    const std::string text = small::valid_text(data, size);
    if (text.size() > 2000) return 0;  // the slow twins take quadratic time
    for (size_t i = 0; i < engines.size(); ++i) {
        std::vector<uint32_t> expected;
        small::encode_slowly(engines[i]->program(), small::kKinds[i], text, expected);
        BatchResult result = engines[i]->encode({{data, size, false}}, {SpecialPolicy::parse, true, false, 1});
        std::vector<uint32_t> ids(result.ids.data(), result.ids.data() + result.ids.size());
        if (ids == expected && result.error.kind == DocumentError::Kind::none) continue;
        std::fprintf(stderr, "tokenizer %zu: %zu ids, %zu expected\n", i, ids.size(), expected.size());
        std::abort();
    }
    return 0;
}
