// Large tables on huge pages where the system gives them: a table look-up then costs one miss, not two. And memory that is
// used again: what is fresh must be cleared first, and where the machine is a virtual one, that can take longer than all
// that is done with it.
#pragma once
#include <algorithm>
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
        base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    // Makes room where its pages need not be copied and cleared, only moved; false where that cannot be done.
    bool grow(size_t size);

private:
    static constexpr size_t kSmallestMapped = 128 << 10;

    void* base_ = nullptr;
    size_t mapped_ = 0;
    uint8_t* data_ = nullptr;
    size_t size_ = 0;
};

// Memory of undefined content for what comes again and again, blocks of a run above all: when it is given up, the next
// block of about its size has it.
class Block {
public:
    Block() = default;
    explicit Block(size_t size);
    Block(Block&& other) noexcept = default;
    Block& operator=(Block&& other) noexcept {
        std::swap(pages_, other.pages_);
        return *this;
    }
    ~Block() { give_back(); }
    void* data() const { return pages_.data(); }
    // As Pages does.
    bool grow(size_t size);

private:
    void give_back() noexcept;

    Pages pages_;
};

// The most that is kept for next blocks, in all of the process; 64 MB unless told: the ids of 200 MB of text.
void limit_idle_blocks(size_t max_bytes);
// Lets the system have what is kept now.
void drop_idle_blocks();

// An array that has room for as many as there may ever be, and memory for those there are: it grows where it lies. Its
// content is zero at first.
template <typename T>
class RoomyArray {
public:
    explicit RoomyArray(size_t capacity, size_t size = 0) : pages_(capacity * sizeof(T)), size_(size), most_(size) {}
    T* data() const { return reinterpret_cast<T*>(pages_.data()); }
    T& operator[](size_t i) const { return data()[i]; }
    T* begin() const { return data(); }
    T* end() const { return data() + size_; }
    size_t size() const { return size_; }
    size_t capacity() const { return pages_.size() / sizeof(T); }
    void resize(size_t size) {
        size_ = size;
        most_ = std::max(most_, size);
    }
    void clear() { size_ = 0; }
    void append(const T* values, size_t count) {
        std::copy_n(values, count, end());
        resize(size_ + count);
    }
    // Of the most that there were.
    size_t memory_bytes() const { return most_ * sizeof(T); }

private:
    Pages pages_;
    size_t size_, most_;
};

}  // namespace gristmill
