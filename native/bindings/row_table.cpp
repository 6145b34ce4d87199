// Rows taken out of mapped shards.
#include <algorithm>
#include <cstring>

#include "bindings/subjects.hpp"
#include "row_table.hpp"

namespace gristmill {
namespace {

// The owner of an array may be let go of by any thread that drops the last of what stands on it.
std::shared_ptr<const void> owner_of(nb::object array) {
    return {array.release().ptr(), [](const void* held) {
                nb::gil_scoped_acquire acquire;
                Py_DECREF(static_cast<PyObject*>(const_cast<void*>(held)));
            }};
}

void new_row_table(RowTable* self, const Table<int64_t>& starts, size_t row_bytes) {
    std::vector<int64_t> checked = to_vector(starts);
    if (checked.empty() || checked[0] != 0 || !std::is_sorted(checked.begin(), checked.end())) {
        throw nb::value_error("starts rise from 0");
    }
    new (self) RowTable(std::move(checked), row_bytes);
}

size_t check_shard(const RowTable& table, size_t shard) {
    if (shard >= table.num_shards()) throw nb::index_error("no such shard");
    return shard;
}

void put_column(RowTable& table, size_t shard, nb::object array, const Table<int64_t>& starts, const Table<int64_t>& begins) {
    auto content = nb::cast<Bytes>(array);
    MappedColumn column{content.data(), content.size(), to_vector(starts), to_vector(begins), owner_of(array)};
    if (!table.put(check_shard(table, shard), std::move(column))) {
        throw nb::value_error("the rows are not those of the shard, or go on past its end");
    }
}

using RoomForBytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Copies row rows[order[i]] to its place order[i] of `out`, for i from `begin` on, in the order they come where none is
// given; returns the first i whose shard has not been put, or how many there are.
size_t take_rows(const RowTable& table, Offsets rows, std::optional<Offsets> order, size_t begin, RoomForBytes out) {
    size_t num_rows = rows.size(), row_bytes = table.row_bytes();
    if ((order && order->size() != num_rows) || out.size() != num_rows * row_bytes) {
        throw nb::value_error("arrays differ in length");
    }
    std::vector<std::pair<RowTable::Found, uint8_t*>> found;
    found.reserve(num_rows);
    for (; begin < num_rows; ++begin) {
        auto at = order ? static_cast<uint64_t>(order->data()[begin]) : begin;
        if (at >= num_rows) throw nb::index_error("order is outside the rows");
        int64_t row = rows.data()[at];
        if (row < 0 || row >= table.num_rows()) throw nb::index_error("no such row");
        auto place = table.find(row);
        if (!place) break;
        found.emplace_back(std::move(*place), out.data() + at * row_bytes);
    }
    // What is found is held, whatever another thread drops meanwhile.
    nb::gil_scoped_release release;
    for (const auto& [place, room] : found) std::memcpy(room, place.row, row_bytes);
    return begin;
}

}  // namespace

void bind_row_table(nb::module_& m) {
    nb::class_<RowTable>(m, "RowTable")
        .def("__init__", &new_row_table, nb::arg("starts").noconvert(), "row_bytes"_a)
        .def("put", &put_column, "shard"_a, "content"_a, nb::arg("starts").noconvert(), nb::arg("begins").noconvert())
        .def("drop", [](RowTable& table, size_t shard) { table.drop(check_shard(table, shard)); }, "shard"_a)
        .def("take", &take_rows, nb::arg("rows").noconvert(), nb::arg("order").noconvert().none(), "begin"_a,
             nb::arg("out").noconvert());
}

}  // namespace gristmill
