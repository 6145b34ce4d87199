// Ids to rows.
#include <limits>

#include "bindings/subjects.hpp"
#include "pack.hpp"

namespace gristmill {
namespace {

std::string name_misfit(const Array<uint32_t>& ids, const Offsets& offsets, int64_t bos, int64_t eos) {
    for (auto [id, name] : {std::pair{bos, "BOS"}, std::pair{eos, "EOS"}}) {
        if (id > UINT16_MAX) return std::string(name) + ", id " + std::to_string(id) + ", does not fit";
    }
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
        for (int64_t at = offsets.data()[i]; at < offsets.data()[i + 1]; ++at) {
            uint32_t id = ids.data()[at];
            if (id > UINT16_MAX) return "document " + std::to_string(i) + ": id " + std::to_string(id) + " does not fit";
        }
    }
    return "an id does not fit";
}

template <typename Id>
nb::tuple lay_out_as(const Array<uint32_t>& ids, const Offsets& offsets, int64_t bos, int64_t eos) {
    size_t num_documents = check_offsets(offsets, ids.size());
    auto num_ids = static_cast<size_t>(offsets.data()[num_documents] - offsets.data()[0]);
    size_t size = num_ids + num_documents * ((bos != kNone) + (eos != kNone));
    NewArray<Id> out(size);
    NewArray<int64_t> out_offsets(num_documents + 1);
    bool is_fitting;
    {
        nb::gil_scoped_release release;
        is_fitting = lay_out(ids.data(), offsets.data(), num_documents, bos, eos, out.data(), out_offsets.data());
    }
    if (!is_fitting) throw nb::value_error((name_misfit(ids, offsets, bos, eos) + " in 2 bytes").c_str());
    return nb::make_tuple(out.hand_over({size}), out_offsets.hand_over({num_documents + 1}));
}

nb::tuple lay_out_width(Array<uint32_t> ids, Offsets offsets, int64_t bos, int64_t eos, int width) {
    if (bos < kNone || eos < kNone || bos > UINT32_MAX || eos > UINT32_MAX) {
        throw nb::value_error("bos and eos are ids, or -1 for none");
    }
    if (width == 2) return lay_out_as<uint16_t>(ids, offsets, bos, eos);
    if (width == 4) return lay_out_as<uint32_t>(ids, offsets, bos, eos);
    throw nb::value_error("width is 2 or 4");
}

std::vector<int64_t> check_lengths(const Offsets& lengths, int64_t row_length) {
    std::vector<int64_t> checked(lengths.data(), lengths.data() + lengths.size());
    bool is_fitting = row_length >= 1;
    for (int64_t length : checked) is_fitting &= length >= 1 && length <= row_length;
    if (!is_fitting) throw nb::value_error("lengths are from 1 to the length of a row");
    return checked;
}

nb::tuple tuple_of(const RowPlan& plan) {
    return nb::make_tuple(new_array_of(plan.row_offsets), new_array_of(plan.picks), new_array_of(plan.left));
}

nb::tuple plan_rows_of(Offsets lengths, size_t num_pooled, int64_t row_length, int64_t max_pieces, int64_t max_tokens) {
    std::vector<int64_t> checked = check_lengths(lengths, row_length);
    if (max_pieces < 0 || max_tokens < 0) throw nb::value_error("a pool has no negative limits");
    RowPlan plan;
    {
        nb::gil_scoped_release release;
        plan = plan_rows(checked, num_pooled, row_length, {max_pieces, max_tokens});
    }
    return tuple_of(plan);
}

nb::tuple plan_rest_of(Offsets lengths, int64_t row_length, int64_t least_tokens) {
    std::vector<int64_t> checked = check_lengths(lengths, row_length);
    RowPlan plan;
    {
        nb::gil_scoped_release release;
        plan = plan_rest(checked, row_length, least_tokens);
    }
    return tuple_of(plan);
}

void check_pieces(const PieceRows& rows, int64_t first_size, int64_t second_size) {
    for (size_t row = 0; row < rows.num_rows; ++row) {
        int64_t room = rows.row_length;
        for (int64_t i = rows.row_offsets[row]; i < rows.row_offsets[row + 1]; ++i) {
            int64_t begin = rows.begins[i], length = rows.lengths[i];
            int64_t end = begin < first_size ? first_size : first_size + second_size;
            if (begin < 0 || begin > end || length < 1 || length > end - begin) {
                throw nb::value_error("a piece lies outside its array");
            }
            if (length > room) throw nb::value_error("the pieces of a row are longer than the row");
            room -= length;
        }
    }
}

template <typename Id>
nb::object gather_rows_of(Array<Id> first, Array<Id> second, Offsets begins, Offsets lengths, Offsets row_offsets,
                          int64_t row_length, uint32_t pad) {
    if (row_length < 0 || begins.size() != lengths.size() || pad > std::numeric_limits<Id>::max()) {
        throw nb::value_error("bad row length, begins or pad");
    }
    PieceRows rows{begins.data(), lengths.data(), row_offsets.data(), check_offsets(row_offsets, begins.size()), row_length};
    auto first_size = static_cast<int64_t>(first.size());
    check_pieces(rows, first_size, static_cast<int64_t>(second.size()));
    auto width = static_cast<size_t>(row_length);
    NewArray<Id> out(rows.num_rows * width);
    {
        nb::gil_scoped_release release;
        gather_rows({first.data(), first_size, second.data()}, rows, static_cast<Id>(pad), out.data());
    }
    return out.hand_over({rows.num_rows, width});
}

template <typename Id>
void bind_gather_rows(nb::module_& m) {
    m.def("gather_rows", &gather_rows_of<Id>, nb::arg("first").noconvert(), nb::arg("second").noconvert(),
          nb::arg("begins").noconvert(), nb::arg("lengths").noconvert(), nb::arg("row_offsets").noconvert(), "row_length"_a,
          "pad"_a);
}

}  // namespace

void bind_pack(nb::module_& m) {
    m.def("lay_out", &lay_out_width, nb::arg("ids").noconvert(), nb::arg("offsets").noconvert(), "bos"_a, "eos"_a, "width"_a);
    m.def("plan_rows", &plan_rows_of, nb::arg("lengths").noconvert(), "num_pooled"_a, "row_length"_a, "max_pieces"_a,
          "max_tokens"_a);
    m.def("plan_rest", &plan_rest_of, nb::arg("lengths").noconvert(), "row_length"_a, "least_tokens"_a);
    bind_gather_rows<uint16_t>(m);
    bind_gather_rows<uint32_t>(m);
}

}  // namespace gristmill
