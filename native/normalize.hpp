// Unicode normal forms, equal to `tokenizers` (unicode-normalization-alignments, Unicode 9.0) for every text.
// Characters that its Unicode version does not know are left alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace gristmill {

enum class Form : uint8_t { none, nfc, nfkc };

// True when the text is certainly normalised already: no character may change, join the one before it, or stand
// out of canonical order. False means that normalize has to look; it may still leave the text as it is.
bool is_normalized(Form form, const uint8_t* text, size_t size);

// Appends the normal form of the text, in time linear in its size. The text is valid UTF-8 and no part of `out`.
void normalize(Form form, const uint8_t* text, size_t size, std::string& out);

}  // namespace gristmill
