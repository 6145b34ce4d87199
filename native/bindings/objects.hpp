// Python's objects as views, and memory handed to it as arrays. This folder alone knows Python: it lets go of the GIL
// where the core works, and takes it again where the core calls back.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

// Every caster, for every file: a missing one is noticed only when what needs it is called.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "growing_array.hpp"
#include "memory.hpp"
#include "model.hpp"
#include "write_buffer.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gristmill {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Table = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;
template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> to_vector(const Table<T>& table) {
    return {table.data(), table.data() + table.size()};
}

// The bytes of a str or bytes, for as long as it lives.
inline std::string_view view_of(nb::handle object) {
    if (PyUnicode_Check(object.ptr())) {
        Py_ssize_t size;
        const char* data = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
        if (!data) throw nb::python_error();
        return {data, static_cast<size_t>(size)};
    }
    if (PyBytes_Check(object.ptr())) {
        return {PyBytes_AS_STRING(object.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(object.ptr()))};
    }
    throw ModelError("a token is neither str nor bytes");
}

// Number of parts; offsets that fall or point outside are refused.
inline size_t check_offsets(const Offsets& offsets, size_t size) {
    if (offsets.size() == 0) throw nb::value_error("offsets need one number more than there are parts");
    const int64_t* at = offsets.data();
    bool is_rising = at[0] >= 0 && static_cast<uint64_t>(at[offsets.size() - 1]) <= size;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) is_rising &= at[i] <= at[i + 1];
    if (!is_rising) throw nb::value_error("offsets must not fall and must stay inside the array");
    return offsets.size() - 1;
}

template <typename T>
nb::object array_of(T* data, size_t size, nb::capsule owner) {
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner));
}

template <typename T>
nb::object array_of(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return array_of(kept->data(), kept->size(), owner);
}

inline nb::capsule owner_of(Block block) {
    return nb::capsule(new Block(std::move(block)), [](void* p) noexcept { delete static_cast<Block*>(p); });
}

template <typename T>
nb::object array_of(WriteBuffer<T> buffer) {
    size_t size = buffer.size();
    Block block = buffer.release();
    static T nothing;
    T* data = block.data() ? static_cast<T*>(block.data()) : &nothing;
    return array_of(data, size, owner_of(std::move(block)));
}

template <typename T>
nb::object array_of(GrowingArray<T> values) {
    auto* kept = new GrowingArray<T>(std::move(values));
    nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<GrowingArray<T>*>(p); });
    static T nothing;
    return array_of(kept->size() ? kept->data() : &nothing, kept->size(), owner);
}

// Memory that becomes a numpy array without a copy.
template <typename T>
class NewArray {
public:
    explicit NewArray(size_t size) : block_(size * sizeof(T)) {}

    T* data() { return static_cast<T*>(block_.data()); }
    nb::object hand_over(std::initializer_list<size_t> shape) {
        T* data = this->data();
        return nb::cast(nb::ndarray<nb::numpy, T>(data, shape, owner_of(std::move(block_))));
    }

private:
    Block block_;
};

inline nb::object new_array_of(const std::vector<int64_t>& numbers) {
    NewArray<int64_t> array(numbers.size());
    std::copy(numbers.begin(), numbers.end(), array.data());
    return array.hand_over({numbers.size()});
}

}  // namespace gristmill
