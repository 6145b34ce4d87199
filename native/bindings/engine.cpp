// A compiled tokenizer put together, and documents encoded with it.
#include <algorithm>

#include "bindings/build.hpp"
#include "bindings/documents.hpp"
#include "bindings/first_blocks.hpp"
#include "bindings/subjects.hpp"

namespace gristmill {
namespace {

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

// [(block, (ids, offsets))]
nb::list take_encoded(EncodedStart& head) {
    std::vector<EncodedStart::Block> taken;
    {
        nb::gil_scoped_release release;
        taken = head.take();
    }
    nb::list blocks;
    for (EncodedStart::Block& block : taken) {
        nb::tuple tokens = nb::make_tuple(array_of(std::move(block.tokens.ids)), array_of(std::move(block.tokens.offsets)));
        blocks.append(nb::make_tuple(tuple_of(std::move(block)), tokens));
    }
    return blocks;
}

}  // namespace

void bind_build(nb::module_& m) {
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
}

void bind_engine(nb::module_& m) {
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
    nb::class_<EncodedStart>(m, "EncodedStart")
        .def("__init__", [](EncodedStart* self, nb::bytes path, nb::bytes text_field, const std::string& special, size_t block_bytes,
                            uint64_t most_bytes) {
            new (self) EncodedStart({path.c_str(), path.size()}, top_field(text_field), policy_of(special), {block_bytes, most_bytes});
        }, "path"_a, "text_field"_a, "special_tokens"_a, "block_bytes"_a, "most_bytes"_a)
        .def("run", &EncodedStart::run, "engine"_a, nb::call_guard<nb::gil_scoped_release>())
        .def("end", [](EncodedStart& head) { head.take(); }, nb::call_guard<nb::gil_scoped_release>())
        .def("take", &take_encoded);
}

}  // namespace gristmill
