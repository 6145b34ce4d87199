// Large tables on huge pages where the system gives them: a table look-up then costs one miss, not two.
#pragma once
#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace gristmill {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kSmallestHuge = 256 << 10;  // bytes from which a huge page is asked for

// Memory for free(), on huge pages when it is large; its content is undefined.
inline void* allocate_large(size_t size) {
    bool is_huge = size >= kSmallestHuge;
    size_t alignment = is_huge ? kHugePage : 64;
    size = (size + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, size);
    if (!memory) throw std::bad_alloc();
#if defined(__linux__)
    if (is_huge) madvise(memory, size, MADV_HUGEPAGE);
#endif
    return memory;
}

template <typename T>
struct HugeAllocator {
    using value_type = T;
    HugeAllocator() = default;
    template <typename U>
    HugeAllocator(const HugeAllocator<U>&) {}  // NOLINT: allocators convert

    T* allocate(size_t count) { return static_cast<T*>(allocate_large(count * sizeof(T))); }
    void deallocate(T* memory, size_t) { std::free(memory); }
    bool operator==(const HugeAllocator&) const { return true; }
};

template <typename T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace gristmill
