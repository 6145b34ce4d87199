// Ids being written.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "memory.hpp"

namespace gristmill {

// A growing array of ids; memory is not touched before it is written.
class IdBuffer {
public:
    IdBuffer() = default;
    IdBuffer(IdBuffer&& other) noexcept { swap(other); }
    IdBuffer& operator=(IdBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~IdBuffer() { std::free(data_); }
    void swap(IdBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }
    // Room for `count` more; returns where they go. `commit` says how far was written.
    uint32_t* reserve(size_t count) {
        if (size_ + count > capacity_) grow(size_ + count);
        return data_ + size_;
    }
    void commit(const uint32_t* end) { size_ = static_cast<size_t>(end - data_); }
    void push(uint32_t id) {
        *reserve(1) = id;
        ++size_;
    }
    void clear() { size_ = 0; }
    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    const uint32_t* data() const { return data_; }
    // Gives the memory away (to be freed with free()).
    uint32_t* release() {
        size_ = capacity_ = 0;
        return std::exchange(data_, nullptr);
    }

private:
    void grow(size_t least) {
        size_t wanted = std::max(least, capacity_ + capacity_ / 2);
        auto* grown = static_cast<uint32_t*>(allocate_large(wanted * sizeof(uint32_t)));
        if (size_) std::memcpy(grown, data_, size_ * sizeof(uint32_t));
        std::free(data_);
        data_ = grown;
        capacity_ = wanted;
    }

    uint32_t* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace gristmill
