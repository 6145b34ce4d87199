// What the engine for a GPU asks of the processor.
#include "bindings/subjects.hpp"
#include "pack.hpp"

namespace gristmill {
namespace {

// Kernels one behind the other, by a driver that only who calls this knows: cuLaunchKernel, whose address is given.
int launch_kernels(uintptr_t launch, nb::ndarray<const uint64_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu> kernels,
                   uintptr_t stream, uintptr_t argument) {
    using Launch = int(uint64_t, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, uintptr_t, void**, void**);
    void* arguments[] = {reinterpret_cast<void*>(argument)};
    for (size_t i = 0; i < kernels.shape(0); ++i) {
        const uint64_t* kernel = kernels.data() + 3 * i;
        auto grid = static_cast<unsigned>(kernel[1]), block = static_cast<unsigned>(kernel[2]);
        int status = reinterpret_cast<Launch*>(launch)(kernel[0], grid, 1, 1, block, 1, 1, 0, stream, arguments, nullptr);
        if (status) return status;
    }
    return 0;
}

// Undefined content, in the memory of blocks that are done.
nb::object empty_ids(size_t count) {
    if (count > SIZE_MAX / 8) throw std::bad_alloc();
    NewArray<uint32_t> ids(count);
    return ids.hand_over({count});
}

void widen_ids_into(Array<uint16_t> low, Bytes high, nb::ndarray<uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> out) {
    if (low.size() != high.size() || low.size() != out.size()) throw nb::value_error("arrays differ in length");
    nb::gil_scoped_release release;
    widen_ids(low.data(), high.data(), low.size(), out.data());
}

}  // namespace

void bind_gpu(nb::module_& m) {
    m.def("launch", &launch_kernels, "launch"_a, nb::arg("kernels").noconvert(), "stream"_a, "argument"_a);
    m.def("empty_ids", &empty_ids, "count"_a);
    m.def("widen_ids", &widen_ids_into, nb::arg("low").noconvert(), nb::arg("high").noconvert(), nb::arg("out").noconvert());
}

}  // namespace gristmill
