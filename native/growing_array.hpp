// An array that grows in place where the system can move its pages, and is not touched before it is written.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

#include "memory.hpp"

namespace gristmill {

// realloc moves the pages of a large block instead of copying them: growth needs no second copy in memory.
template <typename T>
class GrowingArray {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    GrowingArray() = default;
    GrowingArray(const GrowingArray&) = delete;
    GrowingArray& operator=(const GrowingArray&) = delete;
    ~GrowingArray() { std::free(data_); }

    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return size_; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

    // Room for this many in all.
    void reserve(size_t capacity) {
        if (capacity > capacity_) set_capacity(capacity);
    }
    // What is new is undefined.
    void resize(size_t size) {
        if (size > capacity_) set_capacity(std::max(size, capacity_ + capacity_ / 4));
        size_ = size;
    }
    void push(const T& value) {
        if (size_ == capacity_) set_capacity(std::max<size_t>(64, capacity_ + capacity_ / 2));
        data_[size_++] = value;
    }
    void clear() { size_ = 0; }
    void free() {
        std::free(std::exchange(data_, nullptr));
        size_ = capacity_ = 0;
    }

private:
    void set_capacity(size_t capacity) {
        void* grown = std::realloc(data_, capacity * sizeof(T));
        if (!grown) throw std::bad_alloc();
        data_ = static_cast<T*>(grown);
        capacity_ = capacity;
#if defined(__linux__)
        auto begin = (reinterpret_cast<uintptr_t>(grown) + kHugePage - 1) / kHugePage * kHugePage;
        auto end = (reinterpret_cast<uintptr_t>(grown) + capacity * sizeof(T)) / kHugePage * kHugePage;
        if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
    }

    T* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace gristmill
