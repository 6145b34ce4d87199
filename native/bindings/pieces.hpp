// Pieces and their counts, flat.
#pragma once
#include "bindings/objects.hpp"
#include "train_alphabet.hpp"

namespace gristmill {

inline train::Pieces pieces_of(const Bytes& bytes, const Offsets& offsets, const Array<uint64_t>& counts) {
    size_t size = check_offsets(offsets, bytes.size());
    if (counts.size() != size) throw nb::value_error("every piece has one count");
    return {bytes.data(), offsets.data(), counts.data(), size};
}

}  // namespace gristmill
