#include "json_record.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "json_string.hpp"

namespace gristmill {

namespace {

// A decimal number without leading zeros, or -1.
int64_t number_of(const std::string& name) {
    if (name.empty() || name.size() > 18 || (name[0] == '0' && name.size() > 1)) return -1;
    int64_t value = 0;
    for (char c : name) {
        if (c < '0' || c > '9') return -1;
        value = value * 10 + (c - '0');
    }
    return value;
}

bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

}  // namespace

JsonRecord::JsonRecord(std::vector<JsonPath> paths) : paths_(std::move(paths)) {
    if (paths_.empty() || paths_.size() > kMaxJsonPaths) throw std::invalid_argument("between 1 and 64 paths are needed");
    size_t longest = 0;
    for (const JsonPath& path : paths_) longest = std::max(longest, path.size());
    complete_.resize(longest + 1);
    for (size_t i = 0; i < paths_.size(); ++i) {
        if (paths_[i].empty()) throw std::invalid_argument("a path has no names");
        complete_[paths_[i].size()] |= Paths{1} << i;
        numbers_.emplace_back();
        for (const std::string& name : paths_[i]) numbers_.back().push_back(number_of(name));
    }
    keys_.reserve(kKeysKept);
}

bool JsonRecord::read(const uint8_t* begin, const uint8_t* end, const uint8_t* buffer_end, uint8_t* out) {
    at_ = begin;
    end_ = end;
    buffer_end_ = buffer_end;
    out_ = out_end = out;
    found_.assign(paths_.size(), {});
    keys_.clear();
    num_keys_ = 0;
    skip_space();
    is_object_ = at_ < end_ && *at_ == '{';
    if (!read_value(~Paths{0} >> (kMaxJsonPaths - paths_.size()), 0)) return false;
    skip_space();
    return at_ == end_ || fail("the end of the line");
}

bool JsonRecord::fail(const char* what) {
    error_at = at_;
    expected = what;
    return false;
}

void JsonRecord::skip_space() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\r')) ++at_;
}

bool JsonRecord::read_value(Paths here, unsigned depth) {
    if (at_ == end_) return fail("a value");
    switch (*at_) {
        case '"': return read_string(here, depth);
        case '{': return read_object(here, depth);
        case '[': return read_array(here, depth);
        case 't': return read_word("true", JsonKind::boolean, here, depth);
        case 'f': return read_word("false", JsonKind::boolean, here, depth);
        case 'n': return read_word("null", JsonKind::null, here, depth);
        case 'N': return read_word("NaN", JsonKind::number, here, depth);  // Python writes these three where JSON has nothing
        case 'I': return read_word("Infinity", JsonKind::number, here, depth);
        default: return *at_ == '-' || is_digit(*at_) ? read_number(here, depth) : fail("a value");
    }
}

bool JsonRecord::read_object(Paths here, unsigned depth) {
    if (depth == kMaxJsonDepth) return fail("at most 256 levels");
    settle(here, depth, JsonKind::object, at_, at_);
    ++at_;
    skip_space();
    if (at_ < end_ && *at_ == '}') {
        ++at_;
        return true;
    }
    for (;;) {
        Paths inside = 0;
        if (!read_key(here, depth, inside)) return false;
        skip_space();
        if (at_ == end_ || *at_ != ':') return fail("':' after a name");
        ++at_;
        skip_space();
        if (!read_value(inside, depth + 1)) return false;
        skip_space();
        if (at_ == end_ || (*at_ != ',' && *at_ != '}')) return fail("',' or '}'");
        if (*at_++ == '}') return true;
        skip_space();
    }
}

bool JsonRecord::read_array(Paths here, unsigned depth) {
    if (depth == kMaxJsonDepth) return fail("at most 256 levels");
    settle(here, depth, JsonKind::array, at_, at_);
    ++at_;
    skip_space();
    if (at_ < end_ && *at_ == ']') {
        ++at_;
        return true;
    }
    for (uint64_t index = 0;; ++index) {
        if (!read_value(here ? numbered(here, depth, index) : 0, depth + 1)) return false;
        skip_space();
        if (at_ == end_ || (*at_ != ',' && *at_ != ']')) return fail("',' or ']'");
        if (*at_++ == ']') return true;
        skip_space();
    }
}

// `inside`: the paths that go on with this name.
bool JsonRecord::read_key(Paths here, unsigned depth, Paths& inside) {
    if (at_ == end_ || *at_ != '"') return fail("a name in quotes");
    const uint8_t* begin = at_ + 1;
    JsonString key{begin, end_, buffer_end_};
    uint8_t* nowhere = nullptr;
    bool is_right = key.read<false>(nowhere);
    at_ = key.at;
    if (!is_right) return fail(key.expected);
    std::string_view name(reinterpret_cast<const char*>(begin), static_cast<size_t>(at_ - begin) - 1);
    if (depth == 0 && ++num_keys_ <= kKeysKept) keys_.push_back(name);
    if (!here || key.lone) return true;  // half a surrogate pair is in no path
    if (key.has_escapes) {
        key_.resize(name.size() + kUnescapeSlack);
        auto* out = reinterpret_cast<uint8_t*>(key_.data());
        JsonString again{begin, end_, buffer_end_};
        again.read<true>(out);
        name = {key_.data(), static_cast<size_t>(reinterpret_cast<char*>(out) - key_.data())};
    }
    inside = named(here, depth, name);
    return true;
}

bool JsonRecord::read_string(Paths here, unsigned depth) {
    const uint8_t* begin = at_ + 1;
    JsonString text{begin, end_, buffer_end_};
    bool is_direct = out_ && (here & 1) && (complete_[depth] & 1);
    uint8_t* out = out_;
    bool is_right = is_direct ? text.read<true>(out) : text.read<false>(out);
    at_ = text.at;
    if (!is_right) return fail(text.expected);
    if (!here) return true;
    settle(here, depth, JsonKind::string, begin, at_ - 1);
    for (Paths rest = here; rest; rest &= rest - 1) {
        JsonFound& found = found_[static_cast<size_t>(std::countr_zero(rest))];
        found.has_escapes = text.has_escapes;
        found.lone = text.lone;
    }
    if (is_direct) out_end = out;
    return true;
}

bool JsonRecord::read_number(Paths here, unsigned depth) {
    const uint8_t* begin = at_;
    if (end_ - at_ > 1 && at_[0] == '-' && at_[1] == 'I') return read_word("-Infinity", JsonKind::number, here, depth);
    if (*at_ == '-') ++at_;
    if (at_ < end_ && *at_ == '0') ++at_;
    else if (!pass_digits()) return false;
    if (at_ < end_ && *at_ == '.') {
        ++at_;
        if (!pass_digits()) return false;
    }
    if (at_ < end_ && (*at_ == 'e' || *at_ == 'E')) {
        ++at_;
        if (at_ < end_ && (*at_ == '+' || *at_ == '-')) ++at_;
        if (!pass_digits()) return false;
    }
    settle(here, depth, JsonKind::number, begin, at_);
    return true;
}

bool JsonRecord::pass_digits() {
    if (at_ == end_ || !is_digit(*at_)) return fail("a digit");
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return true;
}

bool JsonRecord::read_word(std::string_view word, JsonKind kind, Paths here, unsigned depth) {
    std::string_view rest(reinterpret_cast<const char*>(at_), static_cast<size_t>(end_ - at_));
    if (!rest.starts_with(word)) return fail("a value");
    settle(here, depth, kind, at_, at_ + word.size());
    at_ += word.size();
    return true;
}

// What an earlier field of the same name left is forgotten: a path that goes on inside the value starts anew.
void JsonRecord::settle(Paths here, unsigned depth, JsonKind kind, const uint8_t* begin, const uint8_t* end) {
    for (; here; here &= here - 1) {
        auto path = static_cast<size_t>(std::countr_zero(here));
        bool is_complete = complete_[depth] >> path & 1;
        bool goes_on = kind == JsonKind::object || (kind == JsonKind::array && !is_complete && numbers_[path][depth] >= 0);
        if (is_complete || !goes_on) found_[path] = {kind, !is_complete, false, depth, begin, end, nullptr};
        else found_[path] = {};
    }
}

JsonRecord::Paths JsonRecord::named(Paths here, unsigned depth, std::string_view name) const {
    Paths inside = 0;
    for (Paths rest = here & ~complete_[depth]; rest; rest &= rest - 1) {
        auto path = static_cast<size_t>(std::countr_zero(rest));
        if (paths_[path][depth] == name) inside |= Paths{1} << path;
    }
    return inside;
}

JsonRecord::Paths JsonRecord::numbered(Paths here, unsigned depth, uint64_t index) const {
    Paths inside = 0;
    for (Paths rest = here & ~complete_[depth]; rest; rest &= rest - 1) {
        auto path = static_cast<size_t>(std::countr_zero(rest));
        if (numbers_[path][depth] == static_cast<int64_t>(index)) inside |= Paths{1} << path;
    }
    return inside;
}

}  // namespace gristmill
