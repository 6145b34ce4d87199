// JSON Lines to documents: one flat buffer of text, and a reason for every line that gives none.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json_record.hpp"
#include "write_buffer.hpp"

namespace gristmill {

struct JsonFields {
    std::vector<JsonPath> texts;  // their strings are joined
    std::string join;
    std::optional<JsonPath> id;
};

// In the order in which a line with several faults names one: text before id.
enum class LineFault : uint8_t { none, bad_utf8, bad_json, wrong_type, lone_surrogate, missing_field, null, empty };

struct BadLine {
    int64_t line, position;
    LineFault fault;
    std::string detail;  // UTF-8
};

struct JsonDocuments {
    ByteBuffer text;
    std::vector<int64_t> offsets{0};
    std::vector<int64_t> lines;      // of each document: its line, blank ones counted
    std::vector<int64_t> positions;  // of each document: where its line begins
    ByteBuffer names;                // what stands at the id's path, or nothing
    std::vector<int64_t> name_offsets{0};
    std::vector<BadLine> bad;
    int64_t num_lines = 0;
};

// Any bytes: lines that end with a line feed, the last one perhaps without. A line of white space gives nothing. Ends
// after `max_bad` bad lines (more than none): a bad line may take far more memory than the two bytes it stands in.
JsonDocuments parse_json_lines(const uint8_t* data, size_t size, const JsonFields& fields, size_t max_bad = SIZE_MAX);

}  // namespace gristmill
