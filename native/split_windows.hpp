// Whether a piece ends before a character of ASCII follows nearly always from the three before it and the two from it
// on. Tables made of the transducer say so for 64 places at a time, where the machine has AVX-512 with byte permutes;
// what five characters leave open is for the transducer itself.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gristmill {

// Sets of ASCII characters that do the same in every config of a transducer's table.
std::vector<std::vector<uint8_t>> ascii_kinds(const std::vector<uint16_t>& table);

class SplitWindows {
public:
    static constexpr size_t kBefore = 3, kFrom = 2, kWindow = kBefore + kFrom;  // characters

    // The table is that given to Transducer. What does not fit is not built, nor where it could not be run.
    SplitWindows(const std::vector<uint16_t>& table, unsigned end_column);
    bool is_usable() const { return is_built_; }

    // Puts the ends at places from `at` on, up to the first that is open, which is returned: the last of text[.., end)
    // at the latest. kBefore bytes lie before `at`. There is room at `out` for the bytes from `at` on.
    size_t run(const uint8_t* text, size_t at, size_t end, uint32_t*& out) const;

private:
    static bool has_instructions();
    bool build(const std::vector<uint16_t>& table, unsigned end_column);

    bool is_built_ = false;
    // A step adds two numbers and looks up what they stand for: the first two characters of a window have an effect,
    // which with the third gives a row; the last two give a column.
    alignas(64) std::array<std::array<uint8_t, 128>, kWindow> kind_of_{};  // by place in the window and character
    alignas(64) std::array<uint8_t, 64> effect_of_{};
    alignas(64) std::array<uint8_t, 128> row_of_{};
    alignas(64) std::array<uint8_t, 64> column_of_{};
    alignas(64) std::array<uint8_t, 256> answer_of_{};
};

}  // namespace gristmill
