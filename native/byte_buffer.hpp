// Text being written.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "memory.hpp"

namespace gristmill {

// A growing array of bytes; memory is not touched before it is written.
class ByteBuffer {
public:
    ByteBuffer() = default;
    ByteBuffer(ByteBuffer&& other) noexcept { swap(other); }
    ByteBuffer& operator=(ByteBuffer&& other) noexcept {
        swap(other);
        return *this;
    }
    ~ByteBuffer() { std::free(data_); }
    void swap(ByteBuffer& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }
    // Room for `count` more; returns where they go. `commit` says how far was written.
    uint8_t* reserve(size_t count) {
        if (capacity_ - size_ < count) grow(size_ + count);
        return data_ + size_;
    }
    void commit(const uint8_t* end) { size_ = static_cast<size_t>(end - data_); }
    void append(const void* bytes, size_t count) {
        if (count == 0) return;
        std::memcpy(reserve(count), bytes, count);
        size_ += count;
    }
    void cut(size_t size) { size_ = size; }
    size_t size() const { return size_; }
    const uint8_t* data() const { return data_; }
    // Gives the memory away (to be freed with free()), cut to its content when that fills less than half of it.
    uint8_t* release() {
        if (size_ < capacity_ / 2) {
            if (auto* smaller = static_cast<uint8_t*>(std::realloc(data_, std::max<size_t>(size_, 1)))) data_ = smaller;
        }
        size_ = capacity_ = 0;
        return std::exchange(data_, nullptr);
    }

private:
    void grow(size_t least) {
        size_t wanted = std::max(least, capacity_ + capacity_ / 2);
        auto* grown = static_cast<uint8_t*>(allocate_large(wanted));
        if (size_) std::memcpy(grown, data_, size_);
        std::free(data_);
        data_ = grown;
        capacity_ = wanted;
    }

    uint8_t* data_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace gristmill
