// What a head start has read, as Python takes it over.
#pragma once
#include "bindings/objects.hpp"
#include "head_start.hpp"

namespace gristmill {

inline JsonFields top_field(const nb::bytes& name) {
    JsonFields fields;
    fields.texts.push_back({std::string(name.c_str(), name.size())});
    return fields;
}

// (text, offsets, lines, positions, number of lines, begin, end)
inline nb::tuple tuple_of(FirstBlock&& block) {
    JsonDocuments& documents = block.documents;
    return nb::make_tuple(array_of(std::move(documents.text)), array_of(std::move(documents.offsets)),
                          array_of(std::move(documents.lines)), array_of(std::move(documents.positions)), documents.num_lines,
                          block.begin, block.end);
}

}  // namespace gristmill
