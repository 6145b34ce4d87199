// What the parts of a tokenizer are gathered in.
#pragma once
#include "encoder.hpp"

namespace gristmill {

// A compiled tokenizer being put together; Engine takes it over.
struct Build {
    Program program;
    std::vector<AddedToken> raw, normalized;
    ClassTable word_class;
};

}  // namespace gristmill
