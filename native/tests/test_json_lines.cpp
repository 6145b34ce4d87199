// Known lines, then many cut and joined ones: a line gives the same alone and among others.
#include "json_lines.hpp"

#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "utf8.hpp"

namespace {

using namespace gristmill;

int num_failures = 0;

void check(bool is_right, const char* claim) {
    if (is_right) return;
    std::fprintf(stderr, "failed: %s\n", claim);
    ++num_failures;
}

const JsonFields kPlain{{{"text"}}, "", {}};
const JsonFields kJoined{{{"title"}, {"doc", "text"}}, "\n", JsonPath{"id"}};

// A copy of exact size on the heap: a read past its end is then seen.
JsonDocuments parse(const std::string& text, const JsonFields& fields = kPlain) {
    const std::vector<uint8_t> copy(text.begin(), text.end());
    return parse_json_lines(copy.data(), copy.size(), fields);
}

std::string text_of(const JsonDocuments& documents) {
    return {reinterpret_cast<const char*>(documents.text.data()), documents.text.size()};
}

std::string names_of(const JsonDocuments& documents) {
    return {reinterpret_cast<const char*>(documents.names.data()), documents.names.size()};
}

LineFault fault_of(const std::string& line, const JsonFields& fields = kPlain) {
    JsonDocuments documents = parse(line, fields);
    check(documents.text.size() == 0 && documents.names.size() == 0, "a bad line leaves no text");
    return documents.bad.size() == 1 ? documents.bad[0].fault : LineFault::none;
}

void test_lines_become_documents() {
    JsonDocuments documents = parse("{\"text\":\"a\\n\\u00e9\"}\n\n[]\n{\"id\":1,\"text\":\"bc\"}");
    check(text_of(documents) == "a\n\xc3\xa9" "bc", "texts stand one after the other, unescaped");
    check(documents.offsets == std::vector<int64_t>{0, 4, 6}, "offsets divide them");
    check(documents.lines == std::vector<int64_t>{0, 3}, "blank and bad lines count");
    check(documents.positions == std::vector<int64_t>{0, 25}, "positions are those of lines");
    check(documents.num_lines == 4 && documents.bad.size() == 1 && documents.bad[0].line == 2, "a bad line is told");
}

void test_fields_are_joined_and_named() {
    JsonDocuments documents = parse("{\"doc\":{\"text\":\"b\"},\"id\":-1.5e3,\"title\":\"a\"}\n{\"title\":\"c\"}\n", kJoined);
    check(text_of(documents) == "a\nbc", "what is missing is left out");
    check(names_of(documents) == "-1.5e3" && documents.name_offsets == std::vector<int64_t>{0, 6, 6}, "a number is a name");
}

void test_a_join_may_be_longer_than_the_input() {
    JsonFields fields{{{"a"}, {"a"}, {"a"}}, std::string(100000, '-'), {}};
    check(parse("{\"a\":\"\\n\"}", fields).text.size() == 200003, "the buffer grows");
}

void test_faults() {
    check(fault_of("{\"text\":\"\xff\"") == LineFault::bad_utf8, "UTF-8 comes first");
    check(fault_of("{\"text\":1") == LineFault::bad_json, "then JSON");
    check(fault_of("{\"text\":\"a\"}}") == LineFault::bad_json, "to the end of the line");
    check(fault_of("{\"text\":1}") == LineFault::wrong_type, "a number is no text");
    check(fault_of("{\"text\":\"\\ud800\"}") == LineFault::lone_surrogate, "half a pair is no character");
    check(fault_of("{\"text\":null}") == LineFault::null, "null");
    check(fault_of("{\"text\":\"\"}") == LineFault::empty, "empty");
    check(fault_of("{}") == LineFault::missing_field, "missing");
    check(fault_of("{\"title\":\"a\",\"id\":[]}", kJoined) == LineFault::wrong_type, "an array is no name");
}

void test_any_depth_is_survived() {
    for (const char* opening : {"[", "{\"text\":", "[[[{\"a\":["}) {
        std::string text;
        while (text.size() < 1000000) text += opening;
        check(fault_of(text) == LineFault::bad_json, "nesting without end is refused");
    }
}

const std::string kScraps[] = {
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "d83d", "\\udc69", "\\n", "\"text\"", "\"title\":", "\"doc\":", "\"id\":",
    "1", "-0.5e7", "true", "null", " ", "\r", "\n", "\xc3\xa9", "\xe6\xb0\xb4", "\xf0\x9f\x91\xa9", "\xc3", "\x01",
    "{\"text\":\"a\"}", "{\"doc\":{\"text\":\"\\ud83d\\udc69\"},\"id\":\"b\"}", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
};

// Parses the text whole, and line by line.
bool is_same_alone(const std::string& text, const JsonFields& fields) {
    JsonDocuments whole = parse(text, fields);
    std::string joined, names;
    size_t num_documents = 0, num_bad = 0;
    for (size_t begin = 0; begin < text.size();) {
        size_t end = std::min(text.find('\n', begin), text.size());
        JsonDocuments one = parse(text.substr(begin, end - begin), fields);
        joined += text_of(one);
        names += names_of(one);
        num_documents += one.lines.size();
        num_bad += one.bad.size();
        begin = end + 1;
    }
    return joined == text_of(whole) && names == names_of(whole) && num_documents == whole.lines.size() &&
           num_bad == whole.bad.size() && utf8_first_invalid(whole.text.data(), whole.text.size()) == whole.text.size();
}

void test_a_line_gives_the_same_alone_and_among_others() {
    std::mt19937 random(1);
    for (int round = 0; round < 20000; ++round) {
        std::string text;
        for (unsigned n = random() % 30; n > 0; --n) text += kScraps[random() % std::size(kScraps)];
        check(is_same_alone(text, kPlain) && is_same_alone(text, kJoined), "random scraps");
    }
}

}  // namespace

int main() {
    test_lines_become_documents();
    test_fields_are_joined_and_named();
    test_a_join_may_be_longer_than_the_input();
    test_faults();
    test_any_depth_is_survived();
    test_a_line_gives_the_same_alone_and_among_others();
    return num_failures ? 1 : 0;
}
