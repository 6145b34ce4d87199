// A head start against counting or encoding the same documents one by one, wherever it is stopped; and what it leaves alone.
#include "head_start.hpp"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <thread>

#include <unistd.h>

#include "claims.hpp"
#include "small_tokenizer.hpp"

using namespace gristmill;

namespace {

using Counts = std::map<std::string, uint64_t>;

class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& content) {
        int handle = mkstemp(name_);
        if (handle < 0 || write(handle, content.data(), content.size()) != static_cast<ssize_t>(content.size())) std::abort();
        close(handle);
    }
    ~TemporaryFile() { unlink(name_); }
    const char* name() const { return name_; }

private:
    char name_[32] = "/tmp/head-start-XXXXXX";
};

JsonFields text_field() {
    JsonFields fields;
    fields.texts.push_back({"text"});
    return fields;
}

// Without splits a document is a piece.
PieceCounter new_counter(size_t max_bytes = 1 << 26) {
    return PieceCounter(std::make_shared<const Program>(), max_bytes, WhenFull::spill);
}

std::string lines_of(size_t count) {
    std::mt19937 random(7);
    std::string lines;
    for (size_t i = 0; i < count; ++i) lines += R"({"text": "document )" + std::to_string(random() % 300) + "\"}\n";
    return lines;
}

Counts counts_of(PieceCounter& counter) {
    CountedPieces all = counter.gather();
    Counts counts;
    const auto* text = reinterpret_cast<const char*>(all.bytes.data());
    for (size_t i = 0; i < all.counts.size(); ++i) counts[{text + all.offsets[i], text + all.offsets[i + 1]}] = all.counts[i];
    return counts;
}

// That what is in the counter are the documents said to be; returns how many bytes of whole lines were read.
uint64_t check_counts(CountedStart& head, const std::string& content) {
    check(head.stop(), "a head start on plain lines is of use");
    Counts expected;
    uint64_t end = 0;
    for (const auto& block : head.blocks()) {
        check(block.begin == end && block.end > end && content[block.end - 1] == '\n', "blocks are whole lines, without gaps");
        end = block.end;
        const auto& documents = block.documents;
        check(block.num_counted <= documents.lines.size(), "what is counted was read");
        const auto* text = reinterpret_cast<const char*>(documents.text.data());
        for (size_t i = 0; i < block.num_counted; ++i) {
            ++expected[{text + documents.offsets[i], text + documents.offsets[i + 1]}];
        }
    }
    check(counts_of(head.counter()) == expected, "the counter has the documents that are said to be counted");
    return end;
}

void test_it_may_be_stopped_at_any_time() {
    std::string content = lines_of(20000);
    TemporaryFile file(content);
    for (int num_yields = 0; num_yields < 60; ++num_yields) {
        CountedStart head(file.name(), text_field(), new_counter(), {4096, content.size()});
        for (int i = 0; i < num_yields * num_yields; ++i) std::this_thread::yield();
        check_counts(head, content);
    }
    CountedStart abandoned(file.name(), text_field(), new_counter(), {4096, content.size()});
}

// What lies before `limit`, once the thread has ended by itself.
uint64_t reach(const std::string& content, size_t block_bytes, uint64_t limit) {
    TemporaryFile file(content);
    CountedStart head(file.name(), text_field(), new_counter(), {block_bytes, limit});
    head.wait();
    return check_counts(head, content);
}

void test_it_ends_before_what_is_not_plain() {
    std::string lines = lines_of(1000);
    size_t size = lines.size();
    check(reach(lines, 4096, size) == size, "plain lines are read to their end");
    check(reach(lines, 4096, size / 2) <= size / 2 && reach(lines, 4096, size / 2) > size / 2 - 100, "no more than is asked for");
    check(reach("", 4096, 100) == 0, "an empty file has no lines");
    check(reach("\xEF\xBB\xBF" + lines, 4096, size) == 0, "a mark is left alone");
    check(reach("\xFF\xFE" + lines, 4096, size) == 0, "so is one of UTF-16");
    check(reach(std::string(5000, 'x') + lines, 4096, size) == 0, "so is a line longer than a block");
    std::string bad = lines + "{\n" + lines;
    uint64_t end = reach(bad, 4096, bad.size());
    check(end <= size && end + 4096 > size, "a block with a bad line is left alone, and all behind it");
}

void test_what_cannot_be_used_says_so() {
    CountedStart nowhere("/nonexistent/file.jsonl", text_field(), new_counter(), {4096, 1 << 20});
    check(nowhere.stop() && nowhere.blocks().empty(), "a file that is not there gives nothing");
    std::string lines;
    for (int i = 0; i < 60000; ++i) lines += R"({"text": "a document of its own )" + std::to_string(i) + "\"}\n";
    TemporaryFile file(lines);
    CountedStart full(file.name(), text_field(), new_counter(PieceCounter::kLeastBytes), {1 << 16, lines.size()});
    full.wait();
    check(!full.stop(), "a counter that would have to spill is of no use");
}

void test_what_is_encoded_before_is_what_is_encoded_later() {
    std::string content = lines_of(20000);
    TemporaryFile file(content);
    Engine engine(small::program(small::Kind::bytes, {}), 1 << 20), other(small::program(small::Kind::bytes, {}), 1 << 20);
    size_t most_blocks = 0;
    for (int num_yields = 0; num_yields < 40; ++num_yields) {
        EncodedStart head(file.name(), text_field(), SpecialPolicy::text, {4096, content.size()});
        std::jthread thread([&] { head.run(engine); });
        for (int i = 0; i < num_yields * num_yields; ++i) std::this_thread::yield();
        if (num_yields == 39) thread.join();
        std::vector<EncodedStart::Block> blocks = head.take();
        uint64_t end = 0;
        for (EncodedStart::Block& block : blocks) {
            check(block.begin == end && block.end > end && content[block.end - 1] == '\n', "blocks are whole lines, without gaps");
            end = block.end;
            const JsonDocuments& parsed = block.documents;
            std::vector<Document> documents;
            for (size_t i = 0; i + 1 < parsed.offsets.size(); ++i) {
                documents.push_back({parsed.text.data() + parsed.offsets[i], static_cast<size_t>(parsed.offsets[i + 1] - parsed.offsets[i]), false});
            }
            BatchResult expected = other.encode(documents, {});
            check(block.tokens.offsets == expected.offsets && block.tokens.ids.size() == expected.ids.size() &&
                      std::equal(expected.ids.data(), expected.ids.data() + expected.ids.size(), block.tokens.ids.data()),
                  "the ids of a block are those of its documents");
        }
        most_blocks = std::max(most_blocks, blocks.size());
        check(head.take().empty(), "it is taken once");
    }
    check(most_blocks * 4096 > content.size() / 2, "left alone it goes through the file");
}

}  // namespace

int main() {
    test_what_is_encoded_before_is_what_is_encoded_later();
    test_it_may_be_stopped_at_any_time();
    test_it_ends_before_what_is_not_plain();
    test_what_cannot_be_used_says_so();
    if (num_failures == 0) std::puts("ok");
    return num_failures != 0;
}
