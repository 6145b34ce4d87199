// Unicode normal forms, equal to `tokenizers` (unicode-normalization-alignments, Unicode 9.0) for every text.
// Characters that its Unicode version does not know are left alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gristmill {

enum class Form : uint8_t { none, nfc, nfkc };

// True when the text is certainly normalised already: no character may change, join the one before it, or stand
// out of canonical order. False means that normalize has to look; it may still leave the text as it is.
bool is_normalized(Form form, const uint8_t* text, size_t size);

// Appends the normal form of the text, in time linear in its size. The text is valid UTF-8 and no part of `out`.
void normalize(Form form, const uint8_t* text, size_t size, std::string& out);

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, which SentencePiece writes for a space
// The text with a space for every mark.
std::string marks_to_spaces(std::string_view text);

}  // namespace gristmill
