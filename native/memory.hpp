// Large tables on huge pages where the system gives them: a table look-up then costs one miss, not two.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#include <sys/mman.h>

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

// Zeroed memory that the system has back at once when it is given up. For what comes and goes inside a budget: malloc
// keeps what is freed, and large blocks of changing size leave holes there.
class Pages {
public:
    Pages() = default;
    explicit Pages(size_t size) : size_(size) {
        bool is_huge = size >= kSmallestHuge;
        if (size < kSmallestMapped) {
            data_ = static_cast<uint8_t*>(std::calloc(size ? size : 1, 1));
            if (!data_) throw std::bad_alloc();
            return;
        }
        mapped_ = size + (is_huge ? kHugePage : 0);  // room to begin at a huge page
        base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base_ == MAP_FAILED) throw std::bad_alloc();
        data_ = static_cast<uint8_t*>(base_);
        if (is_huge) data_ += kHugePage - reinterpret_cast<uintptr_t>(base_) % kHugePage;
#if defined(__linux__)
        if (is_huge) madvise(data_, size, MADV_HUGEPAGE);
#endif
    }
    Pages(Pages&& other) noexcept { swap(other); }
    Pages& operator=(Pages&& other) noexcept {
        Pages(std::move(other)).swap(*this);
        return *this;
    }
    ~Pages() {
        if (mapped_) {
            munmap(base_, mapped_);
        } else {
            std::free(data_);
        }
    }
    void swap(Pages& other) noexcept {
        std::swap(base_, other.base_);
        std::swap(mapped_, other.mapped_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    uint8_t* data() const { return data_; }
    size_t size() const { return size_; }

private:
    static constexpr size_t kSmallestMapped = 128 << 10;

    void* base_ = nullptr;
    size_t mapped_ = 0;
    uint8_t* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace gristmill
