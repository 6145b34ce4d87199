// Any bytes as JSON Lines: no line is lost, what comes out is UTF-8, and a text is the same found alone or with others.
//
// Input: the first byte says whether the rest is taken as it is or, byte by byte, as scraps of JSON.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "json_lines.hpp"
#include "utf8.hpp"

using namespace gristmill;

namespace {

const std::string kScraps[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d83d", "\\udc69", "\\n", "\"text\"", "\"te\\u0078t\":", "\"doc\":", "0",
    "-", ".5", "e7", "true", "null", " ", "\r", "\n", "\xc3\xa9", "\xf0\x9f\x91\xa9", "\xe6\xb0", "\t", "\"a\"",
    "{\"text\":\"a\"}", "{\"doc\":[{\"text\":\"", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
};

std::string made_lines(const uint8_t* data, size_t size) {
    std::string text;
    for (size_t i = 1; i < size; ++i) {
        if (data[0] % 2) text += static_cast<char>(data[i]);
        else text += kScraps[data[i] % std::size(kScraps)];
    }
    return text;
}

void require(bool is_so, const char* claim) {
    if (is_so) return;
    std::fprintf(stderr, "not so: %s\n", claim);
    std::abort();
}

JsonDocuments parse(const std::string& text, const JsonFields& fields) {
    const std::vector<uint8_t> copy(text.begin(), text.end());  // of exact size, for AddressSanitizer
    JsonDocuments documents = parse_json_lines(copy.data(), copy.size(), fields);
    require(utf8_first_invalid(documents.text.data(), documents.text.size()) == documents.text.size(), "text is UTF-8");
    for (const BadLine& bad : documents.bad) {
        const auto* detail = reinterpret_cast<const uint8_t*>(bad.detail.data());
        require(utf8_first_invalid(detail, bad.detail.size()) == bad.detail.size(), "a detail is UTF-8");
    }
    size_t num_lines = 0, num_blank = 0;
    for (size_t begin = 0; begin < text.size(); ++num_lines) {
        size_t end = std::min(text.find('\n', begin), text.size());
        num_blank += text.substr(begin, end - begin).find_first_not_of(" \t\r") == std::string::npos;
        begin = end + 1;
    }
    require(static_cast<size_t>(documents.num_lines) == num_lines, "lines are counted");
    require(documents.lines.size() + documents.bad.size() + num_blank == num_lines, "no line is lost");
    return documents;
}

bool is_same_text(const JsonDocuments& left, const JsonDocuments& right) {
    return left.offsets == right.offsets && left.positions == right.positions &&
           std::equal(left.text.data(), left.text.data() + left.text.size(), right.text.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string text = made_lines(data, size);
    for (const JsonPath& path : {JsonPath{"text"}, JsonPath{"doc", "0", "text"}}) {
        // Alone it is unescaped while it is passed; with others, afterwards.
        JsonDocuments alone = parse(text, {{path}, "", {}});
        JsonDocuments with_others = parse(text, {{path, {"no such field"}}, "", {}});
        require(is_same_text(alone, with_others), "a text is the same alone and with others");
        JsonDocuments named = parse(text, {{path}, "", path});
        require(named.name_offsets == named.offsets && named.offsets == alone.offsets, "a text can be its own name");
    }
    return 0;
}
