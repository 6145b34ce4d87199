// The first blocks of a JSON Lines file, read and counted or encoded while the program that will want them still gets
// ready.
#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "batch.hpp"
#include "count.hpp"
#include "json_lines.hpp"
#include "memory.hpp"

namespace gristmill {

// How far a head start goes.
struct Reach {
    size_t block_bytes;
    uint64_t most_bytes;  // of the file
};

struct FirstBlock {
    JsonDocuments documents;
    uint64_t begin, end;  // whole lines of the file
};

// Blocks of a file from its start. There is none after most_bytes, and none that is not plain: with a mark in front, a
// line that gives no document, or no line end at all. Whoever reads on finds out what is wrong there.
class FirstBlocks {
public:
    FirstBlocks(const std::string& path, JsonFields fields, Reach reach);
    FirstBlocks(const FirstBlocks&) = delete;
    FirstBlocks& operator=(const FirstBlocks&) = delete;
    ~FirstBlocks();

    std::optional<FirstBlock> next();

private:
    size_t read(size_t size);

    Reach reach_;
    Pages room_;  // before the file, which nobody would close if there were none
    int handle_;
    JsonFields fields_;
    uint64_t at_ = 0;
};

// Counts them on a thread of its own.
class CountedStart {
public:
    struct Block : FirstBlock {
        size_t num_counted = 0;  // documents, the first ones
    };

    CountedStart(std::string path, JsonFields fields, PieceCounter counter, Reach reach);
    ~CountedStart() { stop(); }

    // Until the thread ends by itself.
    void wait();
    // Lets the thread end after the document at hand. False: what was counted is of no use.
    bool stop();
    // After that, and where it was true: blocks in order, and the counter of what was counted in them.
    std::vector<Block>& blocks() { return blocks_; }
    PieceCounter& counter() { return counter_; }

private:
    void run();
    void count(Block& block);

    std::string path_;
    JsonFields fields_;
    PieceCounter counter_;
    Reach reach_;
    std::vector<Block> blocks_;
    std::atomic<bool> is_stopped_ = false;
    bool is_failed_ = false;
    std::jthread thread_;  // last: it ends before what it uses
};

// Encodes them on the thread that calls it, until another has had enough.
class EncodedStart {
public:
    struct Block : FirstBlock {
        BatchResult tokens;
    };

    EncodedStart(std::string path, JsonFields fields, SpecialPolicy policy, Reach reach)
        : path_(std::move(path)), fields_(std::move(fields)), policy_(policy), reach_(reach) {}

    // Once. What goes wrong ends it: blocks so far are whole.
    void run(Engine& engine);
    // Lets `run` end after the block at hand, and waits for it. Blocks in order; a run that comes later does nothing.
    std::vector<Block> take();

private:
    std::string path_;
    JsonFields fields_;
    SpecialPolicy policy_;
    Reach reach_;
    std::vector<Block> blocks_;
    std::atomic<bool> is_stopped_ = false;
    std::mutex mutex_;
};

}  // namespace gristmill
