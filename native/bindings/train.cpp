// Merges learned from pieces and their counts.
#include <algorithm>

#include "bindings/pieces.hpp"
#include "bindings/subjects.hpp"
#include "train.hpp"

namespace gristmill {
namespace {

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

}  // namespace

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

}  // namespace gristmill
