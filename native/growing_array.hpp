// An array that grows without a second copy of itself, and is not touched before it is written.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "memory.hpp"

namespace gristmill {

// On Linux the pages of a large array are moved, not copied. realloc would do that too, but not on huge pages: asking for
// them splits its mapping, and then it copies.
template <typename T>
class GrowingArray {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    GrowingArray() = default;
    GrowingArray(GrowingArray&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), capacity_(std::exchange(other.capacity_, 0)) {}
    GrowingArray& operator=(GrowingArray&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
        return *this;
    }
    ~GrowingArray() { free(); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return size_; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

    // Room for this many in all.
    void reserve(size_t capacity) {
        if (capacity > capacity_) grow(capacity);
    }
    // The same for an array that will go on growing.
    void reserve_more(size_t capacity) {
        if (capacity > capacity_) grow(std::max(capacity, capacity_ + capacity_ / 4));
    }
    // What is new is undefined.
    void resize(size_t size) {
        reserve_more(size);
        size_ = size;
    }
    void push(const T& value) {
        if (size_ == capacity_) grow(std::max<size_t>(64, capacity_ + capacity_ / 2));
        data_[size_++] = value;
    }
    void clear() { size_ = 0; }
    void free() {
        release(data_, capacity_ * sizeof(T));
        data_ = nullptr;
        size_ = capacity_ = 0;
    }

private:
    void grow(size_t capacity) {
        data_ = static_cast<T*>(resized(data_, capacity_ * sizeof(T), capacity * sizeof(T)));
        capacity_ = capacity;
    }

#if defined(__linux__)
    static constexpr size_t kMapped = 1 << 20;  // bytes from which an array has a mapping of its own

    static void* resized(void* memory, size_t old_size, size_t size) {
        if (size < kMapped) return checked(std::realloc(memory, size));
        if (old_size >= kMapped) return checked(mremap(memory, old_size, size, MREMAP_MAYMOVE));
        void* mapped = checked(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        madvise(mapped, size, MADV_HUGEPAGE);
        if (old_size) std::copy_n(static_cast<const char*>(memory), old_size, static_cast<char*>(mapped));
        std::free(memory);
        return mapped;
    }
    static void release(void* memory, size_t size) { size < kMapped ? std::free(memory) : void(munmap(memory, size)); }
    static void* checked(void* memory) {
        if (!memory || memory == MAP_FAILED) throw std::bad_alloc();
        return memory;
    }
#else
    static void* resized(void* memory, size_t, size_t size) {
        void* grown = std::realloc(memory, size);
        if (!grown) throw std::bad_alloc();
        return grown;
    }
    static void release(void* memory, size_t) { std::free(memory); }
#endif

    T* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace gristmill
