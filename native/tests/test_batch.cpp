// Ids of ranges of documents, put together in order by several threads.
#include <algorithm>
#include <string>
#include <vector>

#include "batch.hpp"
#include "claims.hpp"
#include "small_tokenizer.hpp"

using namespace gristmill;

namespace {

BatchResult encode(Engine& engine, const std::vector<std::string>& texts, unsigned num_threads) {
    std::vector<Document> documents;
    for (const std::string& text : texts) documents.push_back({reinterpret_cast<const uint8_t*>(text.data()), text.size(), false});
    return engine.encode(documents, {SpecialPolicy::text, false, false, num_threads});
}

bool are_equal(const BatchResult& a, const BatchResult& b) {
    return a.offsets == b.offsets && a.ids.size() == b.ids.size() &&
           std::equal(a.ids.data(), a.ids.data() + a.ids.size(), b.ids.data());
}

// The first range tells how much room to make: what follows has up to 32 times as many ids, or as few.
void test_ranges_come_in_order_however_many_ids_they_have() {
    const std::string few(6000, 'a');
    std::string many;
    for (int i = 0; i < 6000; ++i) many += "xqj"[i % 3];
    for (const auto& [first, then] : {std::pair(few, many), std::pair(many, few), std::pair(std::string(), many)}) {
        for (size_t num_first : {1, 200, 390}) {
            std::vector<std::string> texts(num_first, first);
            texts.resize(400, then);
            Engine engine(small::program(small::Kind::bytes, {}), 1 << 20);
            const BatchResult expected = encode(engine, texts, 1);
            check(expected.offsets.back() > 0 && expected.error.kind == DocumentError::Kind::none, "there are ids");
            for (unsigned num_threads : {2u, 3u, 8u}) check(are_equal(encode(engine, texts, num_threads), expected), "the same ids");
        }
    }
}

}  // namespace

int main() {
    test_ranges_come_in_order_however_many_ids_they_have();
    return num_failures ? 1 : 0;
}
