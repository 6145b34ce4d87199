// Documents checked, and put into one buffer.
#include "bindings/documents.hpp"
#include "bindings/subjects.hpp"
#include "normalize.hpp"
#include "utf8_check.hpp"

namespace gristmill {
namespace {

// Offsets and validity of a flat buffer: (document, offset) of the first invalid byte, or None.
nb::object find_invalid(const Bytes& buffer, const Offsets& offsets) {
    DocumentViews views(buffer, offsets, false);
    for (size_t i = 0; i < views.documents.size(); ++i) {
        size_t at = utf8_find_invalid(views.documents[i].data, views.documents[i].size);
        if (at < views.documents[i].size) return nb::make_tuple(i, at);
    }
    return nb::none();
}

// One flat buffer of UTF-8 and its offsets, or None and (document, offset) of a lone surrogate.
nb::tuple pack(nb::list texts, bool replace_invalid) {
    DocumentViews views(texts, replace_invalid);
    if (views.surrogate.found) {
        return nb::make_tuple(nb::none(), nb::make_tuple(views.surrogate.document, views.surrogate.offset));
    }
    size_t total = 0;
    for (const auto& document : views.documents) total += document.size;
    ByteBuffer buffer;
    buffer.reserve(total);
    std::vector<int64_t> offsets{0};
    for (const auto& document : views.documents) {
        buffer.append(document.data, document.size);
        offsets.push_back(static_cast<int64_t>(buffer.size()));
    }
    return nb::make_tuple(array_of(std::move(buffer)), array_of(std::move(offsets)));
}

}  // namespace

void bind_documents(nb::module_& m) {
    m.def("find_invalid", &find_invalid, "buffer"_a, "offsets"_a);
    m.def("pack", &pack, "texts"_a, "replace_invalid"_a);
    m.def("normalize", [](const std::string& form, nb::bytes text) {
        std::string out;
        normalize(form == "nfkc" ? Form::nfkc : Form::nfc, reinterpret_cast<const uint8_t*>(text.c_str()), text.size(), out);
        return nb::bytes(out.data(), out.size());
    }, "form"_a, "text"_a);
}

}  // namespace gristmill
