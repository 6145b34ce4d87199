// A compiled vocabulary as bytes, so that loading it again costs a fraction of compiling it. Only for a cache on the
// machine that wrote it: the bytes are as its memory has them.
#pragma once
#include <string>
#include <string_view>

#include "model.hpp"

namespace gristmill {

std::string pack_model(const Model& model);

// What `Model` was compiled from, and what was found out then, for as long as these bytes stay; ModelError for bytes
// that are none.
ModelInput unpack_model(std::string_view bytes);

}  // namespace gristmill
