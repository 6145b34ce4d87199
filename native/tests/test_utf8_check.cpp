// Every pair of bytes, and all characters changed at random, at every place in a block: as the slow twin judges them.
#include "utf8_check.hpp"

#include <cstdio>
#include <random>
#include <vector>

#include "utf8.hpp"

namespace {

using Bytes = std::vector<uint8_t>;

int num_failures = 0;

void check(const Bytes& bytes) {
    const Bytes copy(bytes);  // of exact size: a read past its end is seen
    size_t fast = gristmill::utf8_find_invalid(copy.data(), copy.size());
    size_t slow = gristmill::utf8_first_invalid(copy.data(), copy.size());
    bool is_right = fast == slow;
    for (gristmill::Utf8Check is_valid : gristmill::utf8_checks()) is_right &= is_valid(copy.data(), copy.size()) == (slow == copy.size());
    if (is_right) return;
    std::fprintf(stderr, "failed: %zu bytes, invalid at %zu, found at %zu\n", copy.size(), slow, fast);
    ++num_failures;
}

void test_every_start_of_a_character() {
    constexpr uint8_t third[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC3, 0xE1, 0xF0, 0xFF};
    for (unsigned pair = 0; pair < 0x10000; ++pair) {
        auto first = static_cast<uint8_t>(pair >> 8), second = static_cast<uint8_t>(pair);
        check({first, second});
        for (uint8_t c : third) {
            check({first, second, c});
            for (uint8_t d : {0x41, 0x80, 0xBF, 0xC3}) check({first, second, c, d, 'x'});
        }
    }
}

void test_every_character_and_surrogate() {
    for (uint32_t cp = 0; cp < 0x110000; ++cp) {
        Bytes bytes(4);
        bytes.resize(gristmill::utf8_encode(cp, bytes.data()));
        check(bytes);
    }
}

Bytes random_text(std::mt19937& random) {
    Bytes text(random() % 100, 'x');
    for (unsigned n = random() % 20; n > 0; --n) {
        const uint32_t limits[] = {0x80, 0x800, 0xD800, 0x110000};
        uint8_t bytes[4];
        uint32_t cp = random() % limits[random() % 4];
        if (cp - 0xD800u < 0x800u) cp = 0xFFFD;
        text.insert(text.end(), bytes, bytes + gristmill::utf8_encode(cp, bytes));
        if (random() % 4 == 0) text.insert(text.end(), random() % 40, 'y');
    }
    return text;
}

void test_text_whole_cut_and_changed_at_random() {
    std::mt19937 random(1);
    for (int round = 0; round < 50000; ++round) {
        Bytes text = random_text(random);
        check(text);
        if (text.empty()) continue;
        Bytes changed(text);
        changed[random() % text.size()] = static_cast<uint8_t>(random());
        check(changed);
        text.resize(random() % text.size());
        check(text);
    }
}

void test_a_fault_at_every_place_in_a_block() {
    const std::vector<Bytes> scraps = {{0x80}, {0xC3}, {0xE6, 0xB0}, {0xF0, 0x9F, 0x91}, {0xED, 0xA0, 0x80}, {0xF4, 0x90, 0x80, 0x80},
                                       {0xC3, 0xA9, 0xA9}, {0xE0, 0x9F, 0xBF}, {0xF0, 0x8F, 0xBF, 0xBF}, {0xF0, 0x9F, 0x91, 0xA9}};
    for (size_t before = 0; before < 140; ++before) {
        for (size_t after : {0, 1, 2, 3, 31, 32, 64}) {
            for (const Bytes& scrap : scraps) {
                Bytes text(before, 'x');
                text.insert(text.end(), scrap.begin(), scrap.end());
                text.insert(text.end(), after, 'x');
                check(text);
            }
        }
    }
}

}  // namespace

int main() {
    test_every_start_of_a_character();
    test_every_character_and_surrogate();
    test_text_whole_cut_and_changed_at_random();
    test_a_fault_at_every_place_in_a_block();
    return num_failures ? 1 : 0;
}
