// The only file that knows Python: turns its objects into views, lets go of the GIL, hands arrays back.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "batch.hpp"
#include "count.hpp"
#include "inventory.hpp"
#include "json_lines.hpp"
#include "memory.hpp"
#include "model_file.hpp"
#include "pack.hpp"
#include "row_table.hpp"
#include "train.hpp"
#include "utf8.hpp"
#include "utf8_check.hpp"
#include "vocabulary.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace gristmill {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Table = nb::ndarray<const T, nb::c_contig, nb::device::cpu>;

template <typename T>
std::vector<T> to_vector(const Table<T>& table) {
    return {table.data(), table.data() + table.size()};
}

std::string_view view_of(nb::handle object) {
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

void add_vocabulary(nb::dict vocab, VocabularyInput& input) {
    for (auto [token, id] : vocab) {
        input.tokens.push_back(view_of(token));
        input.ids.push_back(nb::cast<uint32_t>(id));
    }
}

// "left right", or a pair of strings.
std::pair<std::string_view, std::string_view> pair_of(nb::handle merge) {
    if (PyUnicode_Check(merge.ptr())) {
        std::string_view both = view_of(merge);
        size_t space = both.find(' ');
        if (space == std::string_view::npos || both.find(' ', space + 1) != std::string_view::npos) {
            throw ModelError("a merge is not two tokens with a space between: \"" + std::string(both.substr(0, 60)) + "\"");
        }
        return {both.substr(0, space), both.substr(space + 1)};
    }
    if (nb::len(merge) != 2) throw ModelError("a merge is not a pair of tokens");
    return {view_of(merge[0]), view_of(merge[1])};
}

std::shared_ptr<Model> compile_merges(nb::dict vocab, nb::list merges, const std::string& token_text, bool byte_fallback,
                                      bool whole_piece_first) {
    VocabularyInput input;
    input.text = token_text == "byte_level" ? TokenText::byte_level : token_text == "marks" ? TokenText::marks : TokenText::plain;
    input.byte_fallback = byte_fallback;
    input.whole_piece_first = whole_piece_first;
    add_vocabulary(vocab, input);
    std::vector<std::pair<std::string_view, std::string_view>> pairs;
    pairs.reserve(nb::len(merges));
    for (nb::handle merge : merges) pairs.push_back(pair_of(merge));
    // Their texts lie in the caller's objects, which nobody changes meanwhile.
    nb::gil_scoped_release release;
    return std::make_shared<Model>(from_merges(input, pairs));
}

std::shared_ptr<Model> compile_ranks(nb::dict ranks, uint32_t id_offset) {
    VocabularyInput input;
    input.text = TokenText::bytes;
    input.whole_piece_first = true;
    add_vocabulary(ranks, input);
    std::vector<uint32_t> order = input.ids;
    for (uint32_t& id : input.ids) id += id_offset;
    return std::make_shared<Model>(from_ranks(input, order));
}

// Pieces and their ranks, best first (equal ones go left to right), and the ids of <0x00>..<0xFF>.
std::shared_ptr<Model> compile_scores(nb::list pieces, const std::vector<uint32_t>& ids, const std::vector<uint32_t>& ranks,
                                      const std::vector<uint32_t>& byte_ids) {
    VocabularyInput input;
    input.text = TokenText::marks;
    for (nb::handle piece : pieces) input.tokens.push_back(view_of(piece));
    input.ids = ids;
    if (ids.size() != input.tokens.size() || ranks.size() != ids.size() || byte_ids.size() != 256) {
        throw ModelError("pieces, ids and ranks must be of one length, byte ids 256");
    }
    return std::make_shared<Model>(from_ranks(input, ranks, byte_ids));
}

ClassTable class_table(const Table<uint16_t>& stage1, const Table<uint8_t>& stage2, unsigned num_classes) {
    ClassTable table{to_vector(stage1), to_vector(stage2)};
    for (uint8_t cls : table.stage2) {
        if (cls >= num_classes) throw ModelError("a class table has a class past its last");
    }
    if (table.stage1.size() != 0x1100) throw ModelError("a class table needs 0x1100 blocks");
    for (uint16_t block : table.stage1) {
        if ((block + 1u) * 256 > table.stage2.size()) throw ModelError("a class table points past its end");
    }
    return table;
}

SpecialPolicy policy_of(const std::string& name) {
    if (name == "text") return SpecialPolicy::text;
    if (name == "parse") return SpecialPolicy::parse;
    throw nb::value_error("special_tokens is one of text, parse");
}

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

nb::capsule owner_of(Block block) {
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

// (ids or None, offsets, error): error is None or (kind, document, byte offset).
nb::tuple result_of(BatchResult result, bool count_only) {
    nb::object offsets_array = array_of(std::move(result.offsets));
    if (result.error.kind != DocumentError::Kind::none) {
        const char* kinds[] = {"", "invalid_utf8", "too_large"};
        return nb::make_tuple(nb::none(), offsets_array,
                              nb::make_tuple(kinds[static_cast<int>(result.error.kind)], result.error.document,
                                             result.error.offset));
    }
    if (count_only) return nb::make_tuple(nb::none(), offsets_array, nb::none());
    return nb::make_tuple(array_of(std::move(result.ids)), offsets_array, nb::none());
}

nb::tuple encode(Engine& engine, DocumentViews& views, const std::string& special, bool replace_invalid, bool count_only,
                 unsigned num_threads) {
    if (views.surrogate.found) {
        return nb::make_tuple(nb::none(), nb::none(),
                              nb::make_tuple("lone_surrogate", views.surrogate.document, views.surrogate.offset));
    }
    BatchOptions options{policy_of(special), replace_invalid, count_only, std::max(1u, num_threads)};
    BatchResult result;
    {
        nb::gil_scoped_release release;
        result = engine.encode(views.documents, options);
    }
    return result_of(std::move(result), count_only);
}

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

template <typename T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

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

nb::object new_array_of(const std::vector<int64_t>& numbers) {
    NewArray<int64_t> array(numbers.size());
    std::copy(numbers.begin(), numbers.end(), array.data());
    return array.hand_over({numbers.size()});
}

// Number of parts; offsets that fall or point outside are refused.
size_t check_offsets(const Offsets& offsets, size_t size) {
    if (offsets.size() == 0) throw nb::value_error("offsets need one number more than there are parts");
    const int64_t* at = offsets.data();
    bool is_rising = at[0] >= 0 && static_cast<uint64_t>(at[offsets.size() - 1]) <= size;
    for (size_t i = 0; i + 1 < offsets.size(); ++i) is_rising &= at[i] <= at[i + 1];
    if (!is_rising) throw nb::value_error("offsets must not fall and must stay inside the array");
    return offsets.size() - 1;
}

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

void bind_pack(nb::module_& m) {
    m.def("lay_out", &lay_out_width, nb::arg("ids").noconvert(), nb::arg("offsets").noconvert(), "bos"_a, "eos"_a, "width"_a);
    m.def("plan_rows", &plan_rows_of, nb::arg("lengths").noconvert(), "num_pooled"_a, "row_length"_a, "max_pieces"_a,
          "max_tokens"_a);
    m.def("plan_rest", &plan_rest_of, nb::arg("lengths").noconvert(), "row_length"_a, "least_tokens"_a);
    bind_gather_rows<uint16_t>(m);
    bind_gather_rows<uint32_t>(m);
}

void bind_gpu(nb::module_& m) {
    m.def("launch", &launch_kernels, "launch"_a, nb::arg("kernels").noconvert(), "stream"_a, "argument"_a);
    m.def("empty_ids", &empty_ids, "count"_a);
    m.def("widen_ids", &widen_ids_into, nb::arg("low").noconvert(), nb::arg("high").noconvert(), nb::arg("out").noconvert());
}

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

void bind_row_table(nb::module_& m) {
    nb::class_<RowTable>(m, "RowTable")
        .def("__init__", &new_row_table, nb::arg("starts").noconvert(), "row_bytes"_a)
        .def("put", &put_column, "shard"_a, "content"_a, nb::arg("starts").noconvert(), nb::arg("begins").noconvert())
        .def("drop", [](RowTable& table, size_t shard) { table.drop(check_shard(table, shard)); }, "shard"_a)
        .def("take", &take_rows, nb::arg("rows").noconvert(), nb::arg("order").noconvert().none(), "begin"_a,
             nb::arg("out").noconvert());
}

train::Pieces pieces_of(const Bytes& bytes, const Offsets& offsets, const Array<uint64_t>& counts) {
    size_t size = check_offsets(offsets, bytes.size());
    if (counts.size() != size) throw nb::value_error("every piece has one count");
    return {bytes.data(), offsets.data(), counts.data(), size};
}

train::SymbolKind symbols_of(const std::string& name) {
    if (name == "bytes") return train::SymbolKind::bytes;
    if (name == "characters") return train::SymbolKind::characters;
    throw nb::value_error("symbols are bytes or characters");
}

// What encodes with all merges of a learner, as compile_merges would make it of their texts; symbols are bytes.
std::shared_ptr<Model> learned_model(const train::Learner& learner, bool whole_piece_first, size_t num_threads) {
    ModelInput input;
    input.symbols = Symbols::bytes;
    input.whole_piece_first = whole_piece_first;
    input.num_threads = num_threads;
    const auto& vocabulary = learner.vocabulary();
    for (uint32_t id = 0; id < vocabulary.size(); ++id) input.tokens.emplace_back(vocabulary.spelling(id));
    uint32_t rank = 0;
    for (const auto* rules : {&learner.known(), &learner.rules()}) {
        for (auto [left, right, token] : *rules) {
            if (!input.tokens[left].empty() && !input.tokens[right].empty()) input.merges.push_back({left, right, rank, token});
            ++rank;
        }
    }
    return std::make_shared<Model>(std::move(input));
}

// (symbols that occur, how often)
nb::tuple count_symbols_of(Bytes bytes, Offsets offsets, Array<uint64_t> counts, const std::string& symbols) {
    train::Pieces pieces = pieces_of(bytes, offsets, counts);
    std::vector<std::pair<uint32_t, uint64_t>> found;
    {
        nb::gil_scoped_release release;
        found = train::count_symbols(pieces, symbols_of(symbols));
    }
    std::vector<uint32_t> values;
    std::vector<uint64_t> sums;
    for (auto [symbol, count] : found) {
        values.push_back(symbol);
        sums.push_back(count);
    }
    return nb::make_tuple(array_of(std::move(values)), array_of(std::move(sums)));
}

using Rules = nb::ndarray<const uint32_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

// How often each rule's token is there once all later rules are taken back, from how often each token is there.
nb::object take_back_rules(Rules rules, Array<int64_t> used) {
    std::vector<int64_t> left(used.data(), used.data() + used.size());
    std::vector<int64_t> taken(rules.shape(0));
    for (size_t i = taken.size(); i-- > 0;) {
        const uint32_t* rule = rules.data() + i * 3;
        if (std::max({rule[0], rule[1], rule[2]}) >= left.size()) throw nb::value_error("a rule has an id that no token has");
        taken[i] = left[rule[2]];
        left[rule[0]] += taken[i];
        left[rule[1]] += taken[i];
    }
    return array_of(std::move(taken));
}

void bind_train(nb::module_& m) {
    using train::Learner;
    m.def("count_symbols", &count_symbols_of, nb::arg("bytes").noconvert(), nb::arg("offsets").noconvert(),
          nb::arg("counts").noconvert(), "symbols"_a);
    m.def("take_back_rules", &take_back_rules, nb::arg("rules").noconvert(), nb::arg("used").noconvert());
    m.def("training_memory", &train::memory_needed, "num_pieces"_a, "num_symbols"_a, "vocab_size"_a, "num_threads"_a);
    nb::class_<Learner>(m, "Learner")
        .def("__init__", [](Learner* self, Bytes bytes, Offsets offsets, Array<uint64_t> counts, const std::string& symbols,
                            Array<uint32_t> alphabet, Array<uint32_t> alphabet_ids, nb::list tokens, Rules known,
                            size_t vocab_size, int64_t min_frequency, std::optional<size_t> max_token_length,
                            const std::string& tie_break, unsigned num_threads, int64_t first_floor) {
            train::Pieces pieces = pieces_of(bytes, offsets, counts);
            if (alphabet.size() != alphabet_ids.size()) throw nb::value_error("every symbol has one id");
            if (tie_break != "tokenizers" && tie_break != "bytes") throw nb::value_error("tie_break is tokenizers or bytes");
            train::Alphabet ids(symbols_of(symbols));
            for (size_t i = 0; i < alphabet.size(); ++i) ids.set(alphabet.data()[i], alphabet_ids.data()[i]);
            train::Setup setup;
            for (nb::handle token : tokens) setup.tokens.emplace_back(view_of(token));
            for (size_t i = 0; i < known.shape(0); ++i) {
                const uint32_t* rule = known.data() + i * 3;
                setup.known.push_back({rule[0], rule[1], rule[2]});
            }
            setup.vocab_size = vocab_size;
            setup.min_frequency = min_frequency;
            setup.max_token_length = max_token_length.value_or(SIZE_MAX);
            setup.tie_break = tie_break == "bytes" ? train::TieBreak::bytes : train::TieBreak::ids;
            setup.num_threads = num_threads;
            setup.first_floor = first_floor;
            nb::gil_scoped_release release;
            new (self) Learner(pieces, ids, setup);
        }, nb::arg("bytes").noconvert(), nb::arg("offsets").noconvert(), nb::arg("counts").noconvert(), "symbols"_a,
             nb::arg("alphabet").noconvert(), nb::arg("alphabet_ids").noconvert(), "tokens"_a, nb::arg("known").noconvert(),
             "vocab_size"_a, "min_frequency"_a, "max_token_length"_a.none(), "tie_break"_a, "num_threads"_a, "first_floor"_a)
        .def("advance", &Learner::advance, "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("model", &learned_model, "whole_piece_first"_a, "num_threads"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("forget_pieces", &Learner::forget_pieces, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("num_tokens", [](const Learner& learner) { return learner.vocabulary().size(); })
        .def_prop_ro("num_rules", [](const Learner& learner) { return learner.rules().size(); })
        .def_prop_ro("num_rescans", &Learner::num_rescans)
        .def_prop_ro("text_bytes", &Learner::text_bytes)
        .def("tokens", [](const Learner& learner, uint32_t begin) {
            const auto& vocabulary = learner.vocabulary();
            std::string text;
            std::vector<int64_t> offsets{0};
            for (uint32_t id = begin; id < vocabulary.size(); ++id) {
                text += vocabulary.spelling(id);
                offsets.push_back(static_cast<int64_t>(text.size()));
            }
            return nb::make_tuple(nb::bytes(text.data(), text.size()), array_of(std::move(offsets)));
        }, "begin"_a)
        .def("rules", [](const Learner& learner, size_t begin) {
            const auto& rules = learner.rules();
            begin = std::min(begin, rules.size());
            NewArray<uint32_t> out((rules.size() - begin) * 3);
            for (size_t i = begin; i < rules.size(); ++i) {
                uint32_t* row = out.data() + (i - begin) * 3;
                row[0] = rules[i].left, row[1] = rules[i].right, row[2] = rules[i].token;
            }
            return out.hand_over({rules.size() - begin, 3});
        }, "begin"_a = 0)
        .def("counts", [](const Learner& learner, size_t begin) {
            begin = std::min(begin, learner.counts().size());
            return new_array_of({learner.counts().begin() + static_cast<ptrdiff_t>(begin), learner.counts().end()});
        }, "begin"_a = 0);
}

// A compiled tokenizer being put together; Engine takes it over.
struct Build {
    Program program;
    std::vector<AddedToken> raw, normalized;
    ClassTable word_class;
};

// By reference: a copy would need the GIL.
Sink sink_of(const nb::callable& write) {
    return [&write](const uint8_t* bytes, size_t size) {
        nb::gil_scoped_acquire acquire;
        write(nb::bytes(bytes, size));
    };
}

nb::tuple tuple_of(const InventorySummary& summary) {
    return nb::make_tuple(summary.num_pieces, summary.total_count, summary.total_bytes, summary.longest_piece,
                          summary.dropped_count, summary.max_undercount);
}

// A counter, and what is being done with it: the GIL is let go meanwhile, and a second thread may call.
struct GuardedCounter {
    enum class Use { idle, adding, is_full, spilling };
    PieceCounter counter;
    std::atomic<Use> use = Use::idle;

    GuardedCounter(std::shared_ptr<const Program> program, size_t max_bytes, WhenFull when_full, size_t num_expected)
        : counter(std::move(program), max_bytes, when_full, num_expected) {}
    explicit GuardedCounter(PieceCounter&& other) : counter(std::move(other)) {}

    class Turn {
    public:
        Turn(GuardedCounter& guarded, Use wanted) : guarded_(guarded), before_(Use::idle) {
            bool is_free = guarded.use.compare_exchange_strong(before_, wanted);
            if (!is_free && before_ == Use::is_full && wanted == Use::spilling) {
                is_free = guarded.use.compare_exchange_strong(before_, wanted);
            }
            if (!is_free) throw std::runtime_error("a counter does one thing at a time");
        }
        ~Turn() { guarded_.use = before_; }

    private:
        GuardedCounter& guarded_;
        Use before_;
    };
};

// What a counter calls when it is full, with the GIL let go.
std::function<void()> spill_of(GuardedCounter& guarded, const nb::callable& on_full) {
    return [&guarded, &on_full] {
        nb::gil_scoped_acquire acquire;
        guarded.use = GuardedCounter::Use::is_full;
        on_full();
        guarded.use = GuardedCounter::Use::adding;
    };
}

void add_documents(GuardedCounter& guarded, Bytes buffer, Offsets offsets, uint64_t weight, nb::callable on_full) {
    size_t num_documents = check_offsets(offsets, buffer.size());
    GuardedCounter::Turn turn(guarded, GuardedCounter::Use::adding);
    auto ask_for_spill = spill_of(guarded, on_full);
    nb::gil_scoped_release release;
    for (size_t i = 0; i < num_documents; ++i) {
        auto begin = static_cast<size_t>(offsets.data()[i]), size = static_cast<size_t>(offsets.data()[i + 1]) - begin;
        const uint8_t* text = buffer.data() + begin;
        auto refuse = [i](const char* why) { throw std::invalid_argument("document " + std::to_string(i) + why); };
        if (utf8_find_invalid(text, size) != size) refuse(" is not UTF-8");
        try {
            guarded.counter.add({reinterpret_cast<const char*>(text), size}, weight, ask_for_spill);
        } catch (const TextTooLarge&) {
            refuse(" has 4 GB or more");
        }
    }
    guarded.counter.shrink();
}

// A counter and its twins, all of them taken.
struct TakenCounters {
    TakenCounters(GuardedCounter& first, const std::vector<GuardedCounter*>& others) {
        turns.emplace_back(first, GuardedCounter::Use::spilling);
        for (GuardedCounter* twin : others) {
            turns.emplace_back(*twin, GuardedCounter::Use::spilling);
            twins.push_back(&twin->counter);
        }
    }
    std::deque<GuardedCounter::Turn> turns;
    std::vector<PieceCounter*> twins;
};

nb::tuple spill_counters(GuardedCounter& guarded, nb::bytes about, nb::callable write, std::vector<GuardedCounter*> twins) {
    TakenCounters taken(guarded, twins);
    Sink sink = sink_of(write);
    InventorySummary summary;
    {
        nb::gil_scoped_release release;
        summary = guarded.counter.spill({about.c_str(), about.size()}, sink, taken.twins);
    }
    return tuple_of(summary);
}

// (bytes, offsets, counts, dropped count, max undercount)
nb::tuple gather_counters(GuardedCounter& guarded, std::vector<GuardedCounter*> twins) {
    TakenCounters taken(guarded, twins);
    CountedPieces counted;
    {
        nb::gil_scoped_release release;
        counted = guarded.counter.gather(taken.twins);
    }
    return nb::make_tuple(array_of(std::move(counted.bytes)), array_of(std::move(counted.offsets)),
                          array_of(std::move(counted.counts)), counted.dropped_count, counted.max_undercount);
}

nb::tuple write_pieces(nb::bytes about, Bytes bytes, Offsets offsets, Array<uint64_t> counts, uint64_t dropped_count,
                       uint64_t max_undercount, nb::callable write) {
    train::Pieces pieces = pieces_of(bytes, offsets, counts);
    Sink sink = sink_of(write);
    InventorySummary summary;
    {
        nb::gil_scoped_release release;
        InventoryWriter writer({about.c_str(), about.size()}, sink);
        for (size_t i = 0; i < pieces.size; ++i) {
            writer.put({reinterpret_cast<const char*>(pieces.begin(i)), pieces.length(i)}, pieces.counts[i]);
        }
        summary = writer.finish(dropped_count, max_undercount);
    }
    return tuple_of(summary);
}

// The next pieces of an inventory, flat: bytes, offsets, counts. It stops after the piece that brings max_bytes.
nb::tuple read_pieces(InventoryReader& reader, size_t max_bytes) {
    std::vector<uint8_t> bytes;
    std::vector<int64_t> offsets;
    std::vector<uint64_t> counts;
    {
        nb::gil_scoped_release release;
        const InventorySummary& summary = reader.summary();
        if (max_bytes >= summary.total_bytes) {
            bytes.reserve(summary.total_bytes);
            offsets.reserve(summary.num_pieces + 1);
            counts.reserve(summary.num_pieces);
        }
        offsets.push_back(0);
        while (bytes.size() < max_bytes && reader.next()) {
            bytes.insert(bytes.end(), reader.piece().begin(), reader.piece().end());
            offsets.push_back(static_cast<int64_t>(bytes.size()));
            counts.push_back(reader.count());
        }
    }
    return nb::make_tuple(array_of(std::move(bytes)), array_of(std::move(offsets)), array_of(std::move(counts)));
}

nb::tuple merge_files(const std::vector<std::string>& paths, uint64_t min_count, nb::callable write) {
    Sink sink = sink_of(write);
    MergeReport report;
    {
        nb::gil_scoped_release release;
        std::vector<std::unique_ptr<InventoryReader>> readers;
        for (const std::string& path : paths) readers.push_back(std::make_unique<InventoryReader>(open_file(path)));
        report = merge_inventories(readers, min_count, sink);
    }
    return nb::make_tuple(tuple_of(report.summary), report.num_dropped, report.dropped_count, report.dropped_bytes);
}

void bind_count(nb::module_& m) {
    nb::exception<InventoryError>(m, "InventoryError", PyExc_ValueError);
    nb::class_<GuardedCounter>(m, "PieceCounter")
        .def("__init__", [](GuardedCounter* self, Build& build, size_t max_bytes, bool forgets, size_t num_expected) {
            auto program = std::make_shared<const Program>(std::move(build.program));
            new (self) GuardedCounter(program, max_bytes, forgets ? WhenFull::forget : WhenFull::spill, num_expected);
        }, "build"_a, "max_bytes"_a, "forgets"_a, "num_expected"_a = 0)
        .def("twin", [](const GuardedCounter& guarded) { return new GuardedCounter(guarded.counter.twin()); },
             nb::rv_policy::take_ownership)
        .def("add", &add_documents, nb::arg("buffer").noconvert(), nb::arg("offsets").noconvert(), "weight"_a, "on_full"_a)
        .def("spill", &spill_counters, "about"_a, "write"_a, "twins"_a = std::vector<GuardedCounter*>())
        .def("gather", &gather_counters, "twins"_a = std::vector<GuardedCounter*>())
        .def_prop_ro("num_pieces", [](const GuardedCounter& guarded) { return guarded.counter.num_pieces(); })
        .def_prop_ro("total_count", [](const GuardedCounter& guarded) { return guarded.counter.total_count(); })
        .def_prop_ro("max_undercount", [](const GuardedCounter& guarded) { return guarded.counter.max_undercount(); })
        .def_prop_ro("memory_bytes", [](const GuardedCounter& guarded) { return guarded.counter.memory_bytes(); });
    nb::class_<InventoryReader>(m, "InventoryReader")
        .def("__init__", [](InventoryReader* self, const std::string& path) { new (self) InventoryReader(open_file(path)); },
             "path"_a)
        .def_prop_ro("about", [](const InventoryReader& reader) { return nb::bytes(reader.about().data(), reader.about().size()); })
        .def_prop_ro("summary", [](const InventoryReader& reader) { return tuple_of(reader.summary()); })
        .def("read", &read_pieces, "max_bytes"_a);
    m.def("write_inventory", &write_pieces, "about"_a, nb::arg("bytes").noconvert(), nb::arg("offsets").noconvert(),
          nb::arg("counts").noconvert(), "dropped_count"_a, "max_undercount"_a, "write"_a);
    m.def("merge_inventories", &merge_files, "paths"_a, "min_count"_a, "write"_a);
}

}  // namespace
}  // namespace gristmill

NB_MODULE(_native, m) {
    using namespace gristmill;
    nb::set_leak_warnings(false);
    nb::exception<ModelError>(m, "ModelError", PyExc_ValueError);
    m.def("limit_idle_blocks", &limit_idle_blocks, "max_bytes"_a);
    m.def("drop_idle_blocks", &drop_idle_blocks);

    nb::class_<Model>(m, "Model")
        .def("token", [](const Model& model, uint32_t id) {
            auto token = model.token(id);
            return nb::bytes(token.data(), token.size());
        })
        .def("is_reachable", &Model::is_reachable)
        .def_prop_ro("num_ids", &Model::num_ids)
        .def("pack", [](const Model& model) {
            std::string bytes = pack_model(model);
            return nb::bytes(bytes.data(), bytes.size());
        })
        .def_static("unpack", [](nb::bytes bytes, size_t num_threads) {
            std::string_view packed(bytes.c_str(), bytes.size());
            nb::gil_scoped_release release;
            ModelInput input = unpack_model(packed);
            input.num_threads = num_threads;
            return std::make_shared<Model>(std::move(input));
        }, "bytes"_a, "num_threads"_a = 2)
        .def_prop_ro("whole_piece_first", &Model::whole_piece_first)
        .def("token_bytes", [](const Model& model) {
            std::vector<int64_t> offsets{0};
            std::vector<uint8_t> bytes;
            for (uint32_t id = 0; id < model.num_ids(); ++id) {
                auto token = model.token(id);
                bytes.insert(bytes.end(), token.begin(), token.end());
                offsets.push_back(static_cast<int64_t>(bytes.size()));
            }
            return nb::make_tuple(array_of(std::move(bytes)), array_of(std::move(offsets)));
        })
        .def("reachable", [](const Model& model) {
            std::vector<uint8_t> flags(model.num_ids());
            for (uint32_t id = 0; id < model.num_ids(); ++id) flags[id] = model.is_reachable(id);
            return array_of(std::move(flags));
        })
        .def("merges", [](const Model& model) {
            std::vector<uint32_t> rows;
            for (const Merge& merge : model.pairs().in_order()) {
                rows.insert(rows.end(), {merge.left, merge.right, merge.rank, merge.result});
            }
            return array_of(std::move(rows));
        })
        .def("merge_slowly", [](const Model& model, nb::bytes text) {
            std::vector<uint32_t> out;
            merge_slowly(model, {text.c_str(), text.size()}, out);
            return out;
        })
        .def("merge_fast", [](const Model& model, nb::bytes text) {
            std::string_view view{text.c_str(), text.size()};
            std::vector<uint32_t> out(view.size());
            if (view.size() <= kShortSymbols) {
                out.resize(view.empty() ? 0 : merge_short(model, view, out.data()));
            } else {
                out.clear();
                MergeScratch scratch;
                merge_long(model, view, scratch, out);
            }
            return out;
        });
    m.def("compile_merges", &compile_merges, "vocab"_a, "merges"_a, "token_text"_a, "byte_fallback"_a, "whole_piece_first"_a);
    m.def("compile_ranks", &compile_ranks, "ranks"_a, "id_offset"_a);
    m.def("compile_scores", &compile_scores, "pieces"_a, "ids"_a, "ranks"_a, "byte_ids"_a);
    m.def("find_invalid", &find_invalid, "buffer"_a, "offsets"_a);
    m.def("pack", &pack, "texts"_a, "replace_invalid"_a);
    bind_pack(m);
    bind_gpu(m);
    bind_row_table(m);
    bind_count(m);
    bind_train(m);
    m.def("parse_json_lines", &parse_lines, "buffer"_a, "text_paths"_a, "join"_a, "id_path"_a.none(),
          "max_bad"_a = nb::none());
    m.def("normalize", [](const std::string& form, nb::bytes text) {
        std::string out;
        normalize(form == "nfkc" ? Form::nfkc : Form::nfc, reinterpret_cast<const uint8_t*>(text.c_str()), text.size(), out);
        return nb::bytes(out.data(), out.size());
    }, "form"_a, "text"_a);

    nb::class_<Build>(m, "Build")
        .def(nb::init<>())
        .def("set_model", [](Build& build, std::shared_ptr<Model> model) { build.program.model = std::move(model); })
        .def("set_form", [](Build& build, const std::string& form) {
            build.program.form = form == "nfkc" ? Form::nfkc : Form::nfc;
        })
        .def("set_spaces_as_marks", [](Build& build) { build.program.spaces_as_marks = true; })
        .def("set_prefix", [](Build& build, const std::string& where, bool unless_present, bool before_normalized_tokens) {
            build.program.prefix = {where == "first" ? Prefix::Where::first : Prefix::Where::always, unless_present,
                                    before_normalized_tokens};
        })
        .def("set_word_class", [](Build& build, Table<uint16_t> stage1, Table<uint8_t> stage2) {
            build.word_class = class_table(stage1, stage2, 4);
        })
        .def("set_transducer", [](Build& build, Table<uint16_t> stage1, Table<uint8_t> stage2, Table<uint16_t> table,
                                  unsigned num_classes) {
            if (table.size() == 0 || table.size() % 256 || num_classes > 126) throw nb::value_error("bad transducer table");
            for (size_t i = 0; i < table.size(); ++i) {
                if ((table.data()[i] >> 8) * size_t{256} >= table.size()) throw nb::value_error("transducer points past its end");
            }
            build.program.transducer =
                std::make_unique<Transducer>(class_table(stage1, stage2, num_classes), to_vector(table), num_classes);
        })
        .def("set_word_transducer", [](Build& build) {
            // A dropped byte joins what stands beside it: then the whole stretch stays one piece.
            if (build.program.model->drops_bytes()) return;
            build.program.transducer = word_transducer(*build.program.model);
            build.program.is_cut_freely = true;
        })
        .def("add_splitter", [](Build& build, Table<uint16_t> stage1, Table<uint8_t> stage2, Table<uint16_t> next_state,
                                Table<uint8_t> match, unsigned num_classes, bool keep_matches, bool keep_gaps) {
            size_t width = num_classes + 1;
            if (next_state.size() == 0 || next_state.size() != match.size() || next_state.size() % width) {
                throw nb::value_error("bad splitter table");
            }
            for (size_t i = 0; i < next_state.size(); ++i) {
                uint16_t next = next_state.data()[i];
                if (next != 0xFFFF && next * width >= next_state.size()) throw nb::value_error("splitter points past its end");
            }
            build.program.chain.push_back({class_table(stage1, stage2, num_classes), num_classes, to_vector(next_state), to_vector(match),
                                           keep_matches, keep_gaps});
        })
        .def("add_token", [](Build& build, uint32_t id, const std::string& content, bool special, bool normalized,
                             bool single_word, bool lstrip, bool rstrip) {
            (normalized ? build.normalized : build.raw).push_back({id, content, special, single_word, lstrip, rstrip});
        });

    nb::class_<Engine>(m, "Engine")
        .def("__init__", [](Engine* self, Build& build, size_t cache_bytes) {
            if (!build.program.model) throw nb::value_error("the build has no model or is used up");
            bool has_classes = !build.word_class.stage1.empty();
            if (!has_classes && build.raw.size() + build.normalized.size()) throw nb::value_error("added tokens need classes of characters");
            build.program.raw_tokens = std::make_unique<AddedTokens>(std::move(build.raw), build.word_class);
            if (build.program.spaces_as_marks && has_classes) {  // in normalised text a space is a mark, and a mark is no white space
                build.word_class.stage2[build.word_class.stage1[0] * 256u + ' '] = 0;
            }
            build.program.normalized_tokens = std::make_unique<AddedTokens>(std::move(build.normalized), build.word_class);
            new (self) Engine(std::move(build.program), cache_bytes);
        }, "build"_a, "cache_bytes"_a)
        .def_prop_ro("state_bytes", &Engine::state_bytes)
        .def("decode", [](const Engine& engine, nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig> ids) {
            std::string out;
            for (size_t i = 0; i < ids.size(); ++i) out += engine.decoded(ids.data()[i]);
            return nb::bytes(out.data(), out.size());
        }, "ids"_a)
        .def("encode_list", [](Engine& engine, nb::list texts, const std::string& special, bool replace_invalid,
                               bool count_only, unsigned num_threads) {
            DocumentViews views(texts, replace_invalid);
            return encode(engine, views, special, replace_invalid, count_only, num_threads);
        }, "texts"_a, "special_tokens"_a, "replace_invalid"_a, "count_only"_a, "num_threads"_a)
        .def("encode_flat", [](Engine& engine, Bytes buffer, Offsets offsets, const std::string& special,
                               bool replace_invalid, bool count_only, unsigned num_threads) {
            DocumentViews views(buffer, offsets, false);
            return encode(engine, views, special, replace_invalid, count_only, num_threads);
        }, "buffer"_a, "offsets"_a, "special_tokens"_a, "replace_invalid"_a, "count_only"_a, "num_threads"_a);
}
