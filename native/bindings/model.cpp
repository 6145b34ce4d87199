// A vocabulary compiled, and what can be asked of it.
#include "bindings/subjects.hpp"
#include "merge.hpp"
#include "model_file.hpp"
#include "vocabulary.hpp"

namespace gristmill {
namespace {

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

}  // namespace

void bind_model(nb::module_& m) {
    nb::exception<ModelError>(m, "ModelError", PyExc_ValueError);
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
        .def_static("unpack", [](Bytes bytes, size_t num_threads) {
            std::string_view packed(reinterpret_cast<const char*>(bytes.data()), bytes.size());
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
}

}  // namespace gristmill
