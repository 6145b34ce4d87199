// Blocks that are used again, and tables of pieces that grow where they lie.
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "piece_table.hpp"
#include "write_buffer.hpp"

using namespace gristmill;

namespace {

constexpr size_t kMegabyte = 1 << 20;
int num_failures = 0;

void require(bool is_so, const char* claim) {
    if (is_so) return;
    std::fprintf(stderr, "not so: %s\n", claim);
    ++num_failures;
}

void test_a_block_is_the_next_ones_of_about_its_size() {
    drop_idle_blocks();
    void* first = Block(3 * kMegabyte).data();
    require(Block(3 * kMegabyte - 1000).data() == first, "a block of about the size is used again");
    require(Block(kMegabyte / 2).data() != first, "one that would mostly be wasted is not");
    Block held(3 * kMegabyte);
    require(held.data() == first, "what is given up again is used again");
    Block other(3 * kMegabyte);
    require(other.data() != first, "what is held is nobody else's");
    Block taken = std::move(held);
    require(taken.data() == first && held.data() == nullptr, "it moves with its owner");
}

void test_no_more_is_kept_than_allowed() {
    limit_idle_blocks(4 * kMegabyte);
    void* large = Block(5 * kMegabyte).data();
    (void)large;
    std::vector<Block> blocks;
    for (int i = 0; i < 3; ++i) blocks.emplace_back(2 * kMegabyte);
    std::vector<void*> places;
    for (const Block& block : blocks) places.push_back(block.data());
    for (Block& block : blocks) {
        std::memset(block.data(), 1, 2 * kMegabyte);
        block = Block();
    }
    Block again(2 * kMegabyte), next(2 * kMegabyte);
    require((again.data() == places[1] && next.data() == places[2]) || (again.data() == places[2] && next.data() == places[1]),
            "the oldest go first");
    limit_idle_blocks(64 * kMegabyte);
}

void test_what_grows_keeps_its_content() {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([t] {
            for (uint32_t round = 0; round < 20; ++round) {
                IdBuffer ids;
                uint32_t first = round * 7919 + static_cast<uint32_t>(t), count = 40'000 * (1 + round % 5 * 5);
                for (uint32_t i = 0; i < count; ++i) ids.push(first + i);
                bool is_kept = ids.size() == count;
                for (uint32_t i = 0; i < count; ++i) is_kept &= ids.data()[i] == first + i;
                require(is_kept, "ids are where they were put, whatever the array grew to");
            }
        });
    }
}

void test_threads_share_blocks() {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([t] {
            for (size_t i = 1; i < 300; ++i) {
                Block block(300'000 + (i * 7919 + static_cast<size_t>(t)) % 3 * 900'000);
                auto* bytes = static_cast<uint8_t*>(block.data());
                std::memset(bytes, t, 300'000);
                for (size_t at = 0; at < 300'000; at += 9973) require(bytes[at] == t, "a block is one thread's");
                if (i % 50 == 0) drop_idle_blocks();
            }
        });
    }
}

void test_a_buffer_keeps_what_was_written_while_it_grows() {
    WriteBuffer<uint32_t> buffer;
    for (uint32_t i = 0; i < 700'000; ++i) buffer.push(i);
    bool is_whole = buffer.size() == 700'000;
    for (uint32_t i = 0; i < 700'000; ++i) is_whole &= buffer.data()[i] == i;
    require(is_whole, "all numbers are there in order");
    buffer.cut(3);
    Block block = buffer.release();
    require(buffer.size() == 0 && static_cast<uint32_t*>(block.data())[2] == 2, "what is given away is cut to its content");
}

// Ids that tell the piece, so that a wrong entry is seen.
std::vector<uint32_t> ids_of(const std::string& piece) {
    std::vector<uint32_t> ids(1 + piece.size() % 6);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(std::hash<std::string>()(piece) + i);
    return ids;
}

void test_pieces_stay_when_the_table_grows() {
    PieceTable table(size_t{64} << 20);
    std::vector<std::string> pieces;
    for (uint32_t i = 0; i < 300'000; ++i) {
        pieces.push_back(std::to_string(i * 2654435761u) + std::string(i % 5 == 0 ? 12 : 0, 'x'));
    }
    for (const std::string& piece : pieces) {
        auto ids = ids_of(piece);
        if (piece.size() > ShortKey::kMaxBytes) {
            table.insert_long(piece, hash_bytes(piece), ids.data(), ids.size());
        } else {
            ShortKey key = ShortKey::load_safely(reinterpret_cast<const uint8_t*>(piece.data()), piece.size());
            table.insert(key, key.hash(), ids.data(), ids.size());
        }
    }
    size_t num_found = 0;
    for (const std::string& piece : pieces) {
        const uint32_t* found;
        size_t count;
        if (piece.size() > ShortKey::kMaxBytes) {
            auto entry = table.find_long(piece, hash_bytes(piece));
            found = entry.ids, count = entry.count;
        } else {
            ShortKey key = ShortKey::load_safely(reinterpret_cast<const uint8_t*>(piece.data()), piece.size());
            const ShortSlot* slot = table.find(key, key.hash());
            found = !slot ? nullptr : slot->count <= 3 ? slot->ids : table.arena(slot->ids[0]);
            count = slot ? slot->count : 0;
        }
        if (!found) continue;
        ++num_found;
        require(std::vector<uint32_t>(found, found + count) == ids_of(piece), "what is there is right");
    }
    require(num_found > 297'000, "nearly all are there: some find no room near their place");
    require(table.memory_bytes() <= size_t{64} << 20, "it stays below its bound");
}

}  // namespace

int main() {
    test_a_block_is_the_next_ones_of_about_its_size();
    test_no_more_is_kept_than_allowed();
    test_what_grows_keeps_its_content();
    test_threads_share_blocks();
    test_a_buffer_keeps_what_was_written_while_it_grows();
    test_pieces_stay_when_the_table_grows();
    if (num_failures == 0) std::puts("ok");
    return num_failures != 0;
}
