// Many documents, several threads, one result whose bytes do not depend on how many.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "encoder.hpp"

namespace gristmill {

struct Document {
    const uint8_t* data;
    size_t size;
    bool is_checked;  // known to be valid UTF-8
};

struct DocumentError {
    enum class Kind : uint8_t { none, invalid_utf8, too_large } kind = Kind::none;
    size_t document = 0, offset = 0;
};

struct BatchOptions {
    SpecialPolicy special = SpecialPolicy::text;
    bool replace_invalid = false;
    bool count_only = false;
    unsigned num_threads = 1;
};

struct BatchResult {
    IdBuffer ids;
    std::vector<int64_t> offsets;  // one more than documents
    DocumentError error;           // the first in document order, if any
};

class Engine {
public:
    Engine(Program program, size_t cache_bytes);

    BatchResult encode(const std::vector<Document>& documents, const BatchOptions& options);
    const Program& program() const { return program_; }
    // The bytes an id stands for; empty for one that nothing has.
    std::string_view decoded(uint32_t id) const;
    // Memory of all encoders kept between calls.
    size_t state_bytes();

private:
    class Lease;
    void encode_range(Encoder& encoder, const std::vector<Document>& documents, size_t begin, size_t end,
                      const BatchOptions& options, IdBuffer& ids, int64_t* sizes, DocumentError& error) const;

    Program program_;
    size_t cache_bytes_;
    std::unordered_map<uint32_t, std::string_view> added_;  // by id
    std::mutex mutex_;
    size_t num_encoders_ = 0;                     // ever made
    std::vector<std::unique_ptr<Encoder>> idle_;  // kept with what they remember
};

}  // namespace gristmill
