// The module _native: everything that Python sees of the core.
#include "bindings/subjects.hpp"
#include "memory.hpp"

NB_MODULE(_native, m) {
    using namespace gristmill;
    nb::set_leak_warnings(false);
    m.def("limit_idle_blocks", &limit_idle_blocks, "max_bytes"_a);
    m.def("drop_idle_blocks", &drop_idle_blocks);
    bind_model(m);
    bind_documents(m);
    bind_build(m);
    bind_engine(m);
    bind_read(m);
    bind_pack(m);
    bind_row_table(m);
    bind_gpu(m);
    bind_count(m);
    bind_train(m);
}
