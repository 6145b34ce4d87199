#include "encoder.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <type_traits>

#include "utf8.hpp"

namespace gristmill {

namespace {
constexpr size_t kLargest = 0xFFFFFF00u;
constexpr size_t kBlock = 8192;            // bytes split at a time: their ends stay in L1
const uint8_t* bytes_of(std::string_view text) { return reinterpret_cast<const uint8_t*>(text.data()); }
}  // namespace

std::unique_ptr<Transducer> word_transducer(const Model& model) {
    constexpr unsigned kOther = 128;  // column of every character that is not ASCII
    auto is_word = [](unsigned c) {
        return c == kOther || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    };
    std::vector<std::vector<bool>> is_cut(kOther + 1, std::vector<bool>(kOther + 1));
    for (unsigned a = 0; a <= kOther; ++a) {
        for (unsigned b = 0; b <= kOther; ++b) {
            if (is_word(a) && is_word(b)) continue;
            bool covered = false;
            for (unsigned x = a; x < (a == kOther ? 256 : a + 1) && !covered; ++x) {
                for (unsigned y = b; y < (b == kOther ? 256 : b + 1) && !covered; ++y) {
                    covered = model.cover().are_neighbours(static_cast<uint8_t>(x), static_cast<uint8_t>(y));
                }
            }
            is_cut[a][b] = !covered;
        }
    }
    std::map<std::vector<bool>, unsigned> config_of_row;
    std::vector<unsigned> config_of(kOther + 1);
    std::vector<std::vector<bool>> rows{std::vector<bool>(kOther + 1)};  // config 0: nothing read yet
    for (unsigned a = 0; a <= kOther; ++a) {
        auto [it, is_new] = config_of_row.try_emplace(is_cut[a], static_cast<unsigned>(rows.size()));
        if (is_new) rows.push_back(is_cut[a]);
        config_of[a] = it->second;
    }
    std::vector<uint16_t> table(rows.size() * 256);
    for (size_t q = 0; q < rows.size(); ++q) {
        for (unsigned b = 0; b <= kOther; ++b) {
            table[q * 256 + b] = static_cast<uint16_t>(config_of[b] << 8 | (rows[q][b] ? 1 : 0));
        }
        table[q * 256 + kOther + 1] = 1;
    }
    ClassTable classes{std::vector<uint16_t>(0x1100), std::vector<uint8_t>(256)};
    return std::make_unique<Transducer>(std::move(classes), std::move(table), 1);
}

Encoder::Encoder(const Program& program, size_t cache_bytes)
    : program_(program), table_(cache_bytes), parts_(*program.model, table_, nullptr), pieces_(*program.model, table_, &parts_),
      characters_(*program.model, parts_), dense_(*program.model, parts_),
      may_be_dense_(DenseEncoder::is_for(*program.model) && !program.is_cut_freely) {}

size_t Encoder::memory_bytes() const {
    size_t pieces = chain_pieces_[0].capacity() + chain_pieces_[1].capacity();
    return table_.memory_bytes() + parts_.memory_bytes() + pieces_.memory_bytes() + dense_.memory_bytes() + ends_.capacity() * sizeof(uint32_t) + pieces * sizeof(PlainSplitter::Piece) +
           normalized_.capacity() + prefixed_.capacity();
}

void Encoder::shrink() {
    constexpr size_t kKept = 1 << 20;  // entries
    auto release = [](auto& buffer) {
        if (buffer.capacity() > kKept) std::remove_reference_t<decltype(buffer)>().swap(buffer);
    };
    release(ends_);
    release(chain_pieces_[0]);
    release(chain_pieces_[1]);
    release(normalized_);
    release(prefixed_);
    parts_.shrink();
    pieces_.shrink();
}

void Encoder::start(IdBuffer& out) {
    out_ = &out;
    pieces_.start(out);
}

void Encoder::push(uint32_t id) {
    pieces_.flush();
    out_->push(id);
}

void Encoder::encode(std::string_view document, SpecialPolicy policy, int64_t* size) {
    size_t from = 0, taken = 0;
    AddedTokens::Match match;
    while (!program_.raw_tokens->is_idle(policy) && program_.raw_tokens->next(document, from, taken, policy, match)) {
        if (taken < match.begin) encode_raw_stretch(document.substr(taken, match.begin - taken), taken == 0, policy);
        push(match.token->id);
        taken = match.end;
    }
    if (taken < document.size()) encode_raw_stretch(document.substr(taken), taken == 0, policy);
    pieces_.end_document(size);
}

std::string_view Encoder::normalized(std::string_view text) {
    if (program_.form != Form::none && !is_normalized(program_.form, bytes_of(text), text.size())) {
        normalized_.clear();
        normalize(program_.form, bytes_of(text), text.size(), normalized_);
        text = normalized_;
    }
    if (program_.spaces_as_marks && text.find(kMark) != std::string_view::npos) {
        normalized_ = marks_to_spaces(text);
        text = normalized_;
    }
    return text;
}

std::string_view Encoder::prefixed(std::string_view text) {
    prefixed_.assign(1, ' ').append(text);
    return prefixed_;
}

void Encoder::encode_raw_stretch(std::string_view text, bool is_first, SpecialPolicy policy) {
    const Prefix& prefix = program_.prefix;
    const char* given = text.data();
    text = normalized(text);
    if (text.empty()) return;
    if (prefix.before_normalized_tokens && (prefix.where == Prefix::Where::always || is_first) &&
        prefix.where != Prefix::Where::nowhere && !(prefix.unless_present && text[0] == ' ')) {
        text = prefixed(text);
    }
    size_t from = 0, taken = 0;
    AddedTokens::Match match;
    const AddedTokens& tokens = *program_.normalized_tokens;
    while (!tokens.is_idle(policy) && tokens.next(text, from, taken, policy, match)) {
        if (taken < match.begin) encode_stretch(text.substr(taken, match.begin - taken), is_first && taken == 0);
        push(match.token->id);
        taken = match.end;
    }
    if (taken < text.size()) encode_stretch(text.substr(taken), is_first && taken == 0);
    if (text.data() != given) pieces_.flush();  // it lies in a buffer of ours, which the next stretch overwrites
}

void Encoder::encode_stretch(std::string_view text, bool is_first) {
    if (text.size() > kLargest) throw TextTooLarge();
    const Prefix& prefix = program_.prefix;
    bool is_prefixed = !prefix.before_normalized_tokens && prefix.where != Prefix::Where::nowhere &&
                       (prefix.where == Prefix::Where::always || is_first) && !(prefix.unless_present && text[0] == ' ');
    if (is_prefixed) text = prefixed(text);
    if (program_.is_cut_freely && program_.model->characters().is_built()) {
        encode_by_characters(text);
    } else if (program_.transducer) {
        encode_by_transducer(text);
    } else {
        encode_by_chain(text);
    }
    if (is_prefixed) pieces_.flush();
}

void Encoder::encode_by_transducer(std::string_view text) {
    const Transducer& transducer = *program_.transducer;
    const uint8_t* bytes = bytes_of(text);
    for (size_t begin = 0; begin < text.size();) {
        size_t end = text.size();
        if (end - begin > kBlock + kBlock / 2) end = transducer.safe_cut(bytes, begin + kBlock, end);
        size_t size = end - begin;
        if (ends_.size() < size) ends_.resize(size);
        auto pieces = transducer.split(bytes + begin, 0, size, end == text.size(), ends_.data());
        bool is_dense = may_be_dense_ && size <= DenseEncoder::kMostBytes && DenseEncoder::is_dense(bytes + begin, size);
        if (is_dense) dense_.start_marking(size);
        uint32_t start = 0;
        for (size_t i = 0; i < pieces.num_runs; ++i) {
            auto run = pieces.runs[i];
            if (is_dense) {
                dense_.mark_ends(run.ends, run.count);
            } else {
                pieces_.add(bytes + begin, text.size() - begin, start, run.ends, run.count);
            }
            start = run.ends[run.count - 1];
        }
        if (is_dense) {
            pieces_.flush();
            dense_.encode(bytes + begin, size, text.size() - begin, *out_);
        }
        begin = end;
    }
}

// What is made of words goes to the transducer, the rest character by character.
void Encoder::encode_by_characters(std::string_view text) {
    constexpr size_t kStep = CharacterEncoder::kStep;
    while (!text.empty()) {
        bool is_dense = CharacterEncoder::is_dense(text);
        size_t end = kStep;
        while (end < text.size() && CharacterEncoder::is_dense(text.substr(end)) == is_dense) end += kStep;
        end = characters_.cut_from(text, end);
        if (is_dense) {
            pieces_.flush();
            characters_.encode(text.substr(0, end), *out_);
        } else {
            encode_by_transducer(text.substr(0, end));
        }
        text.remove_prefix(end);
    }
}

void Encoder::encode_by_chain(std::string_view text) {
    split_by_chain(program_.chain, bytes_of(text), text.size(), chain_pieces_[0], chain_pieces_[1]);
    for (auto piece : chain_pieces_[0]) {
        uint32_t end = piece.end - piece.begin;
        pieces_.add(bytes_of(text) + piece.begin, text.size() - piece.begin, 0, &end, 1);
    }
}

}  // namespace gristmill
