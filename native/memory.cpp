#include "memory.hpp"

#include <bit>
#include <mutex>

#include <unistd.h>

namespace gristmill {

namespace {
constexpr size_t kSmallestKept = 256 << 10;

// Few, those given up last at the end: most are taken again at once.
struct Idle {
    std::mutex mutex;
    std::vector<Pages> blocks;
    size_t num_bytes = 0, max_bytes = 64 << 20;

    // Gives up the oldest until `added` more bytes may be kept.
    void make_room(size_t added) {
        size_t count = 0;
        while (count < blocks.size() && num_bytes + added > max_bytes) num_bytes -= blocks[count++].size();
        blocks.erase(blocks.begin(), blocks.begin() + static_cast<ptrdiff_t>(count));
    }
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
    all.blocks.erase(all.blocks.begin() + static_cast<ptrdiff_t>(best));
    all.num_bytes -= taken.size();
    return taken;
}

size_t whole_pages(size_t size) {
    static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return (size + page - 1) / page * page;
}

// Sizes of blocks that come one after another differ by little: eight to each power of two.
size_t rounded(size_t size) {
    size_t step = std::bit_floor(size) / 8;
    return (size + step - 1) / step * step;
}
}  // namespace

bool Pages::grow(size_t size) {
#if defined(__linux__)
    if (size_ < kSmallestHuge || size < size_) return false;
    // To the start of a huge page again: only there a huge page is moved as one.
    size_t mapped = size + kHugePage;
    void* base = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return false;
    auto* data = static_cast<uint8_t*>(base) + (kHugePage - reinterpret_cast<uintptr_t>(base) % kHugePage);
    if (mremap(data_, size_, size, MREMAP_MAYMOVE | MREMAP_FIXED, data) == MAP_FAILED) {
        munmap(base, mapped);
        return false;
    }
    // Only what lay before and behind: the place between may be another thread's already.
    auto* old_base = static_cast<uint8_t*>(base_);
    uint8_t *old_end = old_base + whole_pages(mapped_), *moved_end = data_ + whole_pages(size_);
    if (data_ > old_base) munmap(old_base, static_cast<size_t>(data_ - old_base));
    if (old_end > moved_end) munmap(moved_end, static_cast<size_t>(old_end - moved_end));
    base_ = base;
    mapped_ = mapped;
    data_ = data;
    size_ = size;
    return true;
#else
    (void)size;
    return false;
#endif
}

Block::Block(size_t size) {
    if (size >= kSmallestKept) {
        size = rounded(size);
        pages_ = take(size);
    }
    if (!pages_.data()) pages_ = Pages(size);
}

bool Block::grow(size_t size) { return size >= kSmallestKept && pages_.grow(rounded(size)); }

void Block::give_back() noexcept {
    if (pages_.size() < kSmallestKept) return;
    Idle& all = idle();
    std::lock_guard lock(all.mutex);
    if (pages_.size() > all.max_bytes) return;
    all.make_room(pages_.size());
    try {
        all.blocks.push_back(std::move(pages_));
        all.num_bytes += all.blocks.back().size();
    } catch (const std::bad_alloc&) {
        // Then the system has it back.
    }
}

void limit_idle_blocks(size_t max_bytes) {
    Idle& all = idle();
    std::lock_guard lock(all.mutex);
    all.max_bytes = max_bytes;
    all.make_room(0);
}

void drop_idle_blocks() {
    Idle& all = idle();
    std::lock_guard lock(all.mutex);
    all.make_room(all.max_bytes);
}

}  // namespace gristmill
