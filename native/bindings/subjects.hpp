// The module's parts, which module.cpp puts together.
#pragma once
#include "bindings/objects.hpp"

namespace gristmill {

void bind_model(nb::module_& m);
void bind_documents(nb::module_& m);
void bind_build(nb::module_& m);
void bind_engine(nb::module_& m);
void bind_read(nb::module_& m);
void bind_pack(nb::module_& m);
void bind_row_table(nb::module_& m);
void bind_gpu(nb::module_& m);
void bind_count(nb::module_& m);
void bind_train(nb::module_& m);

}  // namespace gristmill
