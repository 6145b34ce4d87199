// The tokens of a training, by id and by spelling.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill::train {

class Vocabulary {
public:
    explicit Vocabulary(const std::vector<std::string>& tokens);

    uint32_t size() const { return static_cast<uint32_t>(ends_.size()) - 1; }
    std::string_view spelling(uint32_t id) const {
        return std::string_view(bytes_).substr(ends_[id], ends_[id + 1] - ends_[id]);
    }
    // Id of the token that two others make, or size() where it would be new. Of tokens that are spelled alike, the first.
    uint32_t find(uint32_t left, uint32_t right) const;
    void add(uint32_t left, uint32_t right);

private:
    // A polynomial of the bytes, so that the hash of two tokens together follows from theirs.
    struct Hash {
        uint64_t sum = 0, factor = 1;  // what a sum before these bytes is multiplied with

        Hash operator+(const Hash& next) const { return {sum * next.factor + next.sum, factor * next.factor}; }
    };
    static Hash hash_of(std::string_view token);
    size_t home(const Hash& hash) const { return static_cast<size_t>((hash.sum ^ hash.sum >> 29) * 0x9E3779B97F4A7C15ull >> shift_); }
    void append(std::string_view token, const Hash& hash);
    void place(uint32_t id);
    void grow();

    std::string bytes_;
    std::vector<size_t> ends_{0};
    std::vector<Hash> hashes_;
    std::vector<uint32_t> slots_;  // ids by hash
    unsigned shift_ = 0;
};

}  // namespace gristmill::train
