// The first blocks of a JSON Lines file, read and counted by a thread of their own while the program that will want them
// still gets ready.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "count.hpp"
#include "json_lines.hpp"

namespace gristmill {

class HeadStart {
public:
    struct Block {
        JsonDocuments documents;
        uint64_t begin, end;     // whole lines of the file
        size_t num_counted = 0;  // documents, the first ones
    };
    struct Reach {
        size_t block_bytes;
        uint64_t most_bytes;  // of the file
    };

    // Ends by itself at most_bytes, and before a block that is not plain: with a mark in front, a line that gives no
    // document, or no line end at all. Whoever reads on finds out what is wrong there.
    HeadStart(std::string path, JsonFields fields, PieceCounter counter, Reach reach);
    ~HeadStart() { stop(); }

    // Until the thread ends by itself.
    void wait();
    // Lets the thread end after the document at hand. False: what was counted is of no use.
    bool stop();
    // After that, and where it was true: blocks in order, and the counter of what was counted in them.
    std::vector<Block>& blocks() { return blocks_; }
    PieceCounter& counter() { return counter_; }

private:
    void run();
    void read_blocks();
    bool add_block(const uint8_t* data, size_t size, uint64_t begin);

    std::string path_;
    JsonFields fields_;
    PieceCounter counter_;
    Reach reach_;
    std::vector<Block> blocks_;
    std::atomic<bool> is_stopped_ = false;
    bool is_failed_ = false;
    std::jthread thread_;  // last: it ends before what it uses
};

}  // namespace gristmill
