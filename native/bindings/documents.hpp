// Documents of Python, whatever it holds them in, as the core takes them.
#pragma once
#include "batch.hpp"
#include "bindings/objects.hpp"
#include "utf8_write.hpp"
#include "write_buffer.hpp"

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
            ByteBuffer& arena = arena_for(size);
            documents.push_back({arena.reserve(size), size, false});
            arena.append(data, size);
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
        int kind = PyUnicode_KIND(text);
        if (kind == PyUnicode_1BYTE_KIND) return write<Py_UCS1>(text, replace_invalid);
        return kind == PyUnicode_2BYTE_KIND ? write<Py_UCS2>(text, replace_invalid) : write<Py_UCS4>(text, replace_invalid);
    }

    // Not PyUnicode_AsUTF8: that would keep a second copy of every string for as long as the string lives.
    template <typename Unit>
    bool write(PyObject* text, bool replace_invalid) {
        const auto* from = static_cast<const Unit*>(PyUnicode_DATA(text));
        auto length = static_cast<size_t>(PyUnicode_GET_LENGTH(text));
        const Unit* end = from + length;
        ByteBuffer& arena = arena_for(length * kMostUtf8Bytes<Unit>);
        uint8_t* begin = arena.reserve(length * kMostUtf8Bytes<Unit>);
        uint8_t* out = begin;
        while (true) {
            auto written = write_utf8(from, end, out);
            from = written.read, out = written.end;
            if (from == end) break;
            if (!replace_invalid) {
                surrogate = {true, documents.size(), static_cast<size_t>(out - begin)};
                return false;
            }
            out += utf8_encode(0xFFFD, out);
            ++from;
        }
        arena.commit(out);
        documents.push_back({begin, static_cast<size_t>(out - begin), true});
        return true;
    }

    // The last arena, or a new one where that has no room for so many bytes: what is written never moves.
    ByteBuffer& arena_for(size_t num_bytes) {
        if (arenas_.empty() || arenas_.back().capacity() - arenas_.back().size() < num_bytes) {
            arenas_.emplace_back();
            arenas_.back().reserve(std::max(num_bytes, kArenaBytes));
        }
        return arenas_.back();
    }

    static constexpr size_t kArenaBytes = 4 << 20;

    nb::tuple owner_;
    std::vector<ByteBuffer> arenas_;
};

}  // namespace gristmill
