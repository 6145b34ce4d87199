#include "memory.hpp"

#include <mutex>

namespace gristmill {

namespace {
constexpr size_t kSmallestKept = 256 << 10;
constexpr size_t kMostKept = 64 << 20;  // bytes

// Few, and most are taken again at once.
struct Idle {
    std::mutex mutex;
    std::vector<Pages> blocks;
    size_t num_bytes = 0;
};

Idle& idle() {
    static Idle* all = new Idle;  // never taken down: arrays may live longer than everything else
    return *all;
}

// The smallest that is large enough, unless most of it would be wasted.
Pages take(size_t size) {
    Idle& all = idle();
    std::lock_guard lock(all.mutex);
    size_t best = all.blocks.size();
    for (size_t i = 0; i < all.blocks.size(); ++i) {
        size_t found = all.blocks[i].size();
        if (found < size || found / 4 > size) continue;
        if (best == all.blocks.size() || found < all.blocks[best].size()) best = i;
    }
    if (best == all.blocks.size()) return {};
    Pages taken = std::move(all.blocks[best]);
    all.blocks[best] = std::move(all.blocks.back());
    all.blocks.pop_back();
    all.num_bytes -= taken.size();
    return taken;
}
}  // namespace

Block::Block(size_t size) {
    if (size >= kSmallestKept) pages_ = take(size);
    if (!pages_.data()) pages_ = Pages(size);
}

void Block::give_back() noexcept {
    if (pages_.size() < kSmallestKept) return;
    Idle& all = idle();
    std::lock_guard lock(all.mutex);
    if (all.num_bytes + pages_.size() > kMostKept) return;
    try {
        all.blocks.push_back(std::move(pages_));
        all.num_bytes += all.blocks.back().size();
    } catch (const std::bad_alloc&) {
        // Then the system has it back.
    }
}

void drop_idle_blocks() {
    Idle& all = idle();
    std::lock_guard lock(all.mutex);
    all.blocks.clear();
    all.num_bytes = 0;
}

}  // namespace gristmill
