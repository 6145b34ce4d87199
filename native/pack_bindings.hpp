#pragma once
#include <nanobind/nanobind.h>

namespace gristmill {

void bind_pack(nanobind::module_& m);

}  // namespace gristmill
