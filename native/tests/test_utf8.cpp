// UTF-8 decoded and checked as its definition has it.
#include <cstring>
#include <string>
#include <vector>

#include "tests/chance.hpp"
#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"
#include "utf8_write.hpp"

namespace {

using namespace gristmill;

// The definition: shortest form, no surrogates, at most U+10FFFF.
bool is_character(const uint8_t* p, size_t size) {
    uint8_t again[4];
    if (size == 0 || size > 4) return false;
    const uint8_t leads[] = {0x00, 0xC0, 0xE0, 0xF0}, masks[] = {0x7F, 0x1F, 0x0F, 0x07};
    if ((p[0] & ~masks[size - 1] & 0xFF) != leads[size - 1]) return false;
    uint32_t code = p[0] & masks[size - 1];
    for (size_t i = 1; i < size; ++i) {
        if ((p[i] & 0xC0) != 0x80) return false;
        code = code << 6 | (p[i] & 0x3F);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    return utf8_encode(code, again) == size;
}

size_t first_invalid_slowly(const uint8_t* text, size_t size) {
    size_t at = 0;
    while (at < size) {
        size_t length = 1;
        while (length <= 4 && (at + length > size || !is_character(text + at, length))) ++length;
        if (length > 4) break;
        at += length;
    }
    return at;
}

void test_utf8_is_checked_as_the_definition_has_it() {
    const uint8_t marks[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                             0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFF};
    constexpr size_t kMarks = std::size(marks);
    for (size_t n = 0; n < kMarks * kMarks * kMarks * kMarks; ++n) {
        uint8_t text[4] = {marks[n % kMarks], marks[n / kMarks % kMarks], marks[n / kMarks / kMarks % kMarks],
                           marks[n / kMarks / kMarks / kMarks]};
        if (utf8_first_invalid(text, 4) != first_invalid_slowly(text, 4)) {
            check(false, "four bytes are checked right", {reinterpret_cast<char*>(text), 4});
        }
    }
    for (uint32_t code = 0; code < 0x110000; ++code) {
        if (code == 0xD800) code = 0xE000;
        uint8_t text[4];
        unsigned length, size = utf8_encode(code, text);
        bool is_same = utf8_first_invalid(text, size) == size && utf8_decode(text, length) == code && length == size;
        if (!is_same || utf8_length(text[0]) != size) check(false, "a code point comes back");
    }
    Chance chance(1);
    for (int round = 0; round < 20000; ++round) {
        std::string text = chance.text(kParts, chance.below(20));
        if (!text.empty() && chance.below(3)) text[chance.below(text.size())] = static_cast<char>(chance.below(256));
        if (chance.below(4) == 0) text.resize(chance.below(text.size() + 1));
        auto copy = exact(text);
        check(utf8_first_invalid(copy.data(), copy.size()) == first_invalid_slowly(copy.data(), copy.size()),
              "the first invalid byte is found", text);
        std::string valid = small::valid_text(copy.data(), copy.size());
        check(first_invalid_slowly(bytes_of(valid), valid.size()) == valid.size(), "replacing makes text valid", text);
    }
}

// A few other characters anywhere among letters, so that each kind comes at each place of a block.
template <typename Unit>
void test_strings_are_written_character_by_character() {
    const uint32_t codes[] = {'a', 0x7F, 0x80, 0xFF, 0x100, 0x7FF, 0x800, 0xD7FF, 0xD800, 0xDFFF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF};
    Chance chance(2);
    for (int round = 0; round < 20000; ++round) {
        std::vector<Unit> text(chance.below(50), Unit{'x'});
        for (size_t i = chance.below(4); i-- > 0 && !text.empty();) {
            uint32_t code = codes[chance.below(std::size(codes))];
            if (code <= Unit(-1)) text[chance.below(text.size())] = static_cast<Unit>(code);
        }
        std::vector<uint8_t> expected;
        size_t stop = 0;
        for (; stop < text.size() && (text[stop] < 0xD800 || text[stop] > 0xDFFF); ++stop) {
            uint8_t character[4];
            unsigned size = utf8_encode(text[stop], character);
            expected.insert(expected.end(), character, character + size);
        }
        std::vector<uint8_t> written(text.size() * kMostUtf8Bytes<Unit>);
        auto done = write_utf8<Unit>(text.data(), text.data() + text.size(), written.data());
        check(done.read == text.data() + stop, "writing stops before a surrogate");
        written.resize(static_cast<size_t>(done.end - written.data()));
        check(written == expected, "characters are written one after the other");
    }
}

}  // namespace

int main() {
    test_utf8_is_checked_as_the_definition_has_it();
    test_strings_are_written_character_by_character<uint8_t>();
    test_strings_are_written_character_by_character<uint16_t>();
    test_strings_are_written_character_by_character<uint32_t>();
    return num_failures ? 1 : 0;
}
