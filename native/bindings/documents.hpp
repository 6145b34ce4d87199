// Documents of Python, whatever it holds them in, as the core takes them.
#pragma once
#include "batch.hpp"
#include "bindings/objects.hpp"
#include "utf8.hpp"

namespace gristmill {

// Documents as views; holds what had to be written anew (str that is not ASCII).
class DocumentViews {
public:
    std::vector<Document> documents;
    struct Surrogate {
        bool found = false;
        size_t document = 0, offset = 0;
    } surrogate;

    // Keeps the texts alive: the caller's list may change while the GIL is let go.
    DocumentViews(nb::list texts, bool replace_invalid) : owner_(nb::tuple(texts)) {
        documents.reserve(nb::len(owner_));
        for (nb::handle text : owner_) {
            if (!add(text.ptr(), replace_invalid)) return;
        }
        for (size_t i : written_) documents[i].data = arena_.data() + reinterpret_cast<size_t>(documents[i].data);
    }
    DocumentViews(const Bytes& buffer, const Offsets& offsets, bool is_checked) {
        for (size_t i = 0; i + 1 < offsets.size(); ++i) {
            int64_t begin = offsets.data()[i], end = offsets.data()[i + 1];
            if (begin < 0 || end < begin || static_cast<size_t>(end) > buffer.size()) {
                throw nb::value_error("offsets must not fall and must stay inside the buffer");
            }
            documents.push_back({buffer.data() + begin, static_cast<size_t>(end - begin), is_checked});
        }
    }

private:
    bool add(PyObject* text, bool replace_invalid) {
        if (PyBytes_Check(text)) {
            documents.push_back({reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(text)),
                                 static_cast<size_t>(PyBytes_GET_SIZE(text)), false});
            return true;
        }
        if (PyByteArray_Check(text)) {  // may change under us: copied
            const auto* data = reinterpret_cast<const uint8_t*>(PyByteArray_AS_STRING(text));
            auto size = static_cast<size_t>(PyByteArray_GET_SIZE(text));
            written_.push_back(documents.size());
            documents.push_back({reinterpret_cast<const uint8_t*>(arena_.size()), size, false});
            arena_.insert(arena_.end(), data, data + size);
            return true;
        }
        if (!PyUnicode_Check(text)) {
            std::string type = nb::cast<std::string>(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(text))).attr("__name__"));
            throw nb::type_error(("document " + std::to_string(documents.size()) + " is a " + type + ", not str or bytes").c_str());
        }
        if (PyUnicode_IS_COMPACT_ASCII(text)) {
            documents.push_back({static_cast<const uint8_t*>(PyUnicode_DATA(text)),
                                 static_cast<size_t>(PyUnicode_GET_LENGTH(text)), true});
            return true;
        }
        return write(text, replace_invalid);
    }

    // Not PyUnicode_AsUTF8: that would keep a second copy of every string for as long as the string lives.
    bool write(PyObject* text, bool replace_invalid) {
        int kind = PyUnicode_KIND(text);
        const void* data = PyUnicode_DATA(text);
        Py_ssize_t length = PyUnicode_GET_LENGTH(text);
        size_t begin = arena_.size();
        arena_.resize(begin + static_cast<size_t>(length) * (kind == 1 ? 2 : kind == 2 ? 3 : 4));
        uint8_t* out = arena_.data() + begin;
        for (Py_ssize_t i = 0; i < length; ++i) {
            uint32_t cp = PyUnicode_READ(kind, data, i);
            if (cp - 0xD800u < 0x800u) {
                if (!replace_invalid) {
                    surrogate = {true, documents.size(), static_cast<size_t>(out - arena_.data()) - begin};
                    return false;
                }
                cp = 0xFFFD;
            }
            out += utf8_encode(cp, out);
        }
        arena_.resize(static_cast<size_t>(out - arena_.data()));
        written_.push_back(documents.size());
        documents.push_back({reinterpret_cast<const uint8_t*>(begin), arena_.size() - begin, true});  // offset for now
        return true;
    }

    nb::tuple owner_;
    std::vector<uint8_t> arena_;
    std::vector<size_t> written_;
};

}  // namespace gristmill
