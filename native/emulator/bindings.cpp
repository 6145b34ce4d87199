// The emulator as a Python module of its own, so that nothing but tests loads it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "kernels.hpp"

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_cuda_emulator, m) {
    m.def("run", [](const std::string& kernel, uint32_t grid, uint32_t block, nb::bytes work, bool is_narrow, unsigned class_bits) {
        Run* narrow = class_bits == 4 ? run_narrow_4 : run_narrow_5;
        Run* wide = class_bits == 4 ? run_wide_4 : run_wide_5;
        if (!(is_narrow ? narrow : wide)(kernel, grid, block, work.c_str())) throw nb::value_error("there is no such kernel");
    }, "kernel"_a, "grid"_a, "block"_a, "work"_a, "is_narrow"_a, "class_bits"_a);
}
