// The kernels of gristmill/engines/cuda, for ids of 16 and 32 bits and classes of 4 and 5.
#pragma once
#include <cstdint>
#include <string_view>

// Runs one kernel to its end; `work` is a struct Work with addresses of this process. False: there is no such kernel.
using Run = bool(std::string_view kernel, uint32_t grid, uint32_t block, const void* work);
Run run_narrow_4, run_narrow_5, run_wide_4, run_wide_5;
