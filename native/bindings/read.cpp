// JSON Lines to documents.
#include "bindings/subjects.hpp"
#include "json_lines.hpp"

namespace gristmill {
namespace {

JsonPath path_of(const std::vector<nb::bytes>& names) {
    JsonPath path;
    for (const nb::bytes& name : names) path.emplace_back(name.c_str(), name.size());
    return path;
}

// Text for people, whatever a file called its fields.
nb::object printable(const std::string& text) {
    nb::object shown = nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
    if (nb::cast<bool>(shown.attr("isprintable")())) return shown;
    return nb::steal(PyObject_ASCII(shown.ptr()))[nb::slice(1, -1)];
}

nb::list list_of(const std::vector<BadLine>& bad) {
    std::vector<nb::str> reasons;
    for (const char* name : {"", "bad_utf8", "bad_json", "wrong_type", "lone_surrogate", "missing_field", "null", "empty"}) {
        reasons.emplace_back(name);
    }
    nb::list lines;
    nb::object detail;  // where all lines of a file are wrong, they are wrong alike
    for (size_t i = 0; i < bad.size(); ++i) {
        if (i == 0 || bad[i].detail != bad[i - 1].detail) detail = printable(bad[i].detail);
        lines.append(nb::make_tuple(bad[i].line, bad[i].position, reasons[static_cast<size_t>(bad[i].fault)], detail));
    }
    return lines;
}

// (text, offsets, lines, positions, (names, offsets) or None, bad, number of lines)
nb::tuple parse_lines(const Bytes& buffer, const std::vector<std::vector<nb::bytes>>& text_paths, nb::bytes join,
                      const std::optional<std::vector<nb::bytes>>& id_path, std::optional<size_t> max_bad) {
    JsonFields fields;
    for (const auto& path : text_paths) fields.texts.push_back(path_of(path));
    fields.join.assign(join.c_str(), join.size());
    if (id_path) fields.id = path_of(*id_path);
    JsonDocuments documents;
    {
        nb::gil_scoped_release release;
        documents = parse_json_lines(buffer.data(), buffer.size(), fields, max_bad.value_or(SIZE_MAX));
    }
    nb::object names = nb::none();
    if (id_path) names = nb::make_tuple(array_of(std::move(documents.names)), array_of(std::move(documents.name_offsets)));
    return nb::make_tuple(array_of(std::move(documents.text)), array_of(std::move(documents.offsets)),
                          array_of(std::move(documents.lines)), array_of(std::move(documents.positions)), names,
                          list_of(documents.bad), documents.num_lines);
}

}  // namespace

void bind_read(nb::module_& m) {
    m.def("parse_json_lines", &parse_lines, "buffer"_a, "text_paths"_a, "join"_a, "id_path"_a.none(),
          "max_bad"_a = nb::none());
}

}  // namespace gristmill
