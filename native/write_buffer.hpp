// Text and ids being written.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "memory.hpp"

namespace gristmill {

// A growing array; memory is not touched before it is written.
template <typename T>
class WriteBuffer {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    WriteBuffer() = default;
    WriteBuffer(WriteBuffer&& other) noexcept { swap(other); }
    WriteBuffer& operator=(WriteBuffer&& other) noexcept {
        WriteBuffer(std::move(other)).swap(*this);
        return *this;
    }
    void swap(WriteBuffer& other) noexcept {
        std::swap(block_, other.block_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }
    // Room for `count` more; returns where they go. `commit` says how far was written.
    T* reserve(size_t count) {
        if (capacity_ - size_ < count) grow(size_ + count);
        return begin() + size_;
    }
    void commit(const T* end) { size_ = static_cast<size_t>(end - begin()); }
    void push(T value) {
        *reserve(1) = value;
        ++size_;
    }
    void append(const T* values, size_t count) {
        if (count == 0) return;
        std::memcpy(reserve(count), values, count * sizeof(T));
        size_ += count;
    }
    void cut(size_t size) { size_ = size; }
    void clear() { size_ = 0; }
    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    const T* data() const { return begin(); }
    // There is no more to come: room that was never written takes no memory, and need not be cut off.
    void close() { capacity_ = size_; }
    // Gives the memory away, cut to its content when that fills less than half of it.
    Block release() {
        if (size_ < capacity_ / 2) move_to(size_);
        size_ = capacity_ = 0;
        return std::move(block_);
    }

private:
    T* begin() const { return static_cast<T*>(block_.data()); }
    void grow(size_t least) {
        size_t capacity = std::max(least, capacity_ + capacity_ / 2);
        if (block_.grow(capacity * sizeof(T))) {
            capacity_ = capacity;
        } else {
            move_to(capacity);
        }
    }
    void move_to(size_t capacity) {
        Block moved(capacity * sizeof(T));
        if (size_) std::memcpy(moved.data(), block_.data(), size_ * sizeof(T));
        block_ = std::move(moved);
        capacity_ = capacity;
    }

    Block block_;
    size_t size_ = 0, capacity_ = 0;
};

using ByteBuffer = WriteBuffer<uint8_t>;
using IdBuffer = WriteBuffer<uint32_t>;

}  // namespace gristmill
