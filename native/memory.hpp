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

template <typename T>
struct HugeAllocator {
    using value_type = T;
    HugeAllocator() = default;
    template <typename U>
    HugeAllocator(const HugeAllocator<U>&) {}  // NOLINT: allocators convert

    static constexpr size_t kPage = 2 << 20, kSmallest = 256 << 10;

    T* allocate(size_t count) {
        size_t size = count * sizeof(T);
        bool is_huge = size >= kSmallest;
        size_t alignment = is_huge ? kPage : 64;
        size = (size + alignment - 1) / alignment * alignment;
        void* memory = std::aligned_alloc(alignment, size);
        if (!memory) throw std::bad_alloc();
#if defined(__linux__)
        if (is_huge) madvise(memory, size, MADV_HUGEPAGE);
#endif
        return static_cast<T*>(memory);
    }
    void deallocate(T* memory, size_t) { std::free(memory); }
    bool operator==(const HugeAllocator&) const { return true; }
};

template <typename T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace gristmill
