// One line of JSON: checked as a whole, with the values at some paths found on the way.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gristmill {

constexpr unsigned kMaxJsonDepth = 256;  // of arrays and objects
constexpr size_t kMaxJsonPaths = 64;
constexpr size_t kKeysKept = 8;

enum class JsonKind : uint8_t { missing, null, boolean, number, string, array, object };

// Field names from the outside in; a decimal number also names an element of an array.
using JsonPath = std::vector<std::string>;

// What was found at a path. Of two equal names in an object the last one counts.
struct JsonFound {
    JsonKind kind = JsonKind::missing;
    bool is_on_the_way = false;  // the value stands where the path goes on
    bool has_escapes = false;
    unsigned depth = 0;  // names of the path that lead to the value
    const uint8_t* begin = nullptr;
    const uint8_t* end = nullptr;  // of a string: between its quotes
    const uint8_t* lone = nullptr;  // in a string: the first half of a surrogate pair that stands alone
};

class JsonRecord {
public:
    // At least one path and at most kMaxJsonPaths, none of them empty.
    explicit JsonRecord(std::vector<JsonPath> paths);

    // Whether the line is one JSON value and nothing more; else `error_at` and `expected` tell. It is valid UTF-8 and
    // ends with its buffer or before a line feed. With `out`, a string at the first path is unescaped there while it is
    // passed, and ends at `out_end`: room for the line and kUnescapeSlack more is needed.
    bool read(const uint8_t* begin, const uint8_t* end, const uint8_t* buffer_end, uint8_t* out);

    const std::vector<JsonPath>& paths() const { return paths_; }
    const JsonFound& found(size_t path) const { return found_[path]; }
    bool is_object() const { return is_object_; }
    // The first names of the outermost object, as they stand between the quotes, and how many there are.
    const std::vector<std::string_view>& keys() const { return keys_; }
    size_t num_keys() const { return num_keys_; }

    const uint8_t* error_at = nullptr;
    const char* expected = nullptr;
    uint8_t* out_end = nullptr;

private:
    using Paths = uint64_t;  // a bit a path: those whose names so far led here

    bool fail(const char* what);
    void skip_space();
    bool read_value(Paths here, unsigned depth);
    bool read_object(Paths here, unsigned depth);
    bool read_array(Paths here, unsigned depth);
    bool read_key(Paths here, unsigned depth, Paths& inside);
    bool read_string(Paths here, unsigned depth);
    bool read_number(Paths here, unsigned depth);
    bool read_word(std::string_view word, JsonKind kind, Paths here, unsigned depth);
    bool pass_digits();
    void settle(Paths here, unsigned depth, JsonKind kind, const uint8_t* begin, const uint8_t* end);
    Paths named(Paths here, unsigned depth, std::string_view name) const;
    Paths numbered(Paths here, unsigned depth, uint64_t index) const;

    std::vector<JsonPath> paths_;
    std::vector<Paths> complete_;                  // by depth: paths of just so many names
    std::vector<std::vector<int64_t>> numbers_;    // by path and depth: the name as a number, or -1
    std::vector<JsonFound> found_;
    std::vector<std::string_view> keys_;
    size_t num_keys_ = 0;
    bool is_object_ = false;
    const uint8_t* at_ = nullptr;
    const uint8_t* end_ = nullptr;
    const uint8_t* buffer_end_ = nullptr;
    uint8_t* out_ = nullptr;
    std::string key_;  // with its escapes undone
};

}  // namespace gristmill
