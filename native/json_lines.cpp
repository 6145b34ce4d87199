#include "json_lines.hpp"

#include <cstring>
#include <stdexcept>

#include "json_string.hpp"
#include "utf8_check.hpp"

namespace gristmill {

namespace {

constexpr size_t kShownBytes = 40;  // of a field's name in a message

constexpr const char* kKindNames[] = {"missing", "null", "true or false", "a number", "a string", "an array", "an object"};

struct Fault {
    LineFault kind = LineFault::none;
    std::string detail;
};

// At most kShownBytes of valid UTF-8, cut between characters.
std::string shortened(std::string_view name) {
    if (name.size() <= kShownBytes) return std::string(name);
    size_t size = kShownBytes;
    while (size > 0 && (static_cast<uint8_t>(name[size]) & 0xC0) == 0x80) --size;
    return std::string(name.substr(0, size)) + "...";
}

// The first `depth` names of a path, such as doc.body.
std::string name_of(const JsonPath& path, size_t depth) {
    std::string name;
    for (size_t i = 0; i < depth; ++i) {
        if (i) name += '.';
        name += shortened(path[i]);
    }
    return name;
}

std::string keys_of(const JsonRecord& record) {
    if (record.num_keys() == 0) return "the record is empty";
    std::string text = "the record has ";
    for (std::string_view key : record.keys()) text += shortened(key) + ", ";
    if (record.num_keys() > record.keys().size()) return text + "...";
    return text.substr(0, text.size() - 2);
}

bool is_blank(const uint8_t* begin, const uint8_t* end) {
    while (begin < end && (*begin == ' ' || *begin == '\t' || *begin == '\r')) ++begin;
    return begin == end;
}

class Reader {
public:
    Reader(const uint8_t* data, size_t size, const JsonFields& fields)
        : fields_(fields), record_(all_paths(fields)), data_(data), data_end_(data + size) {
        // Text is never longer than its JSON, so that with one field this is all there will be.
        documents_.text.reserve(size + kUnescapeSlack);
    }

    JsonDocuments read(size_t max_bad) {
        while (position_ < data_end_ - data_ && documents_.bad.size() < max_bad) {
            begin_ = data_ + position_;
            const auto* feed = static_cast<const uint8_t*>(std::memchr(begin_, '\n', static_cast<size_t>(data_end_ - begin_)));
            end_ = feed ? feed : data_end_;
            if (!is_blank(begin_, end_)) read_line();
            position_ += end_ - begin_ + 1;
            ++documents_.num_lines;
        }
        return std::move(documents_);
    }

private:
    static std::vector<JsonPath> all_paths(const JsonFields& fields) {
        std::vector<JsonPath> paths = fields.texts;
        if (fields.id) paths.push_back(*fields.id);
        return paths;
    }

    void read_line() {
        size_t text_size = documents_.text.size(), names_size = documents_.names.size();
        Fault fault = add_document();
        if (fault.kind != LineFault::none) {
            documents_.text.cut(text_size);
            documents_.names.cut(names_size);
            documents_.bad.push_back({documents_.num_lines, position_, fault.kind, std::move(fault.detail)});
            return;
        }
        documents_.offsets.push_back(static_cast<int64_t>(documents_.text.size()));
        documents_.name_offsets.push_back(static_cast<int64_t>(documents_.names.size()));
        documents_.lines.push_back(documents_.num_lines);
        documents_.positions.push_back(position_);
    }

    Fault add_document() {
        auto size = static_cast<size_t>(end_ - begin_);
        size_t invalid = utf8_find_invalid(begin_, size);
        if (invalid < size) return {LineFault::bad_utf8, at(begin_ + invalid) + "not UTF-8"};
        bool is_direct = fields_.texts.size() == 1;
        uint8_t* out = is_direct ? documents_.text.reserve(size + kUnescapeSlack) : nullptr;
        if (!record_.read(begin_, end_, data_end_, out)) {
            return {LineFault::bad_json, at(record_.error_at) + "expected " + record_.expected};
        }
        if (!record_.is_object()) return {LineFault::wrong_type, at(begin_) + "expected an object"};
        Fault fault = check_texts();
        if (fault.kind != LineFault::none) return fault;
        size_t text_size = documents_.text.size();
        if (is_direct) documents_.text.commit(record_.out_end);
        else join_texts();
        if (documents_.text.size() == text_size) {
            return {LineFault::empty, at(first_string().begin) + name_of(fields_.texts[0], fields_.texts[0].size()) + " is empty"};
        }
        return fields_.id ? add_name() : Fault{};
    }

    // Whether the texts can be used; the worst fault of any of them.
    Fault check_texts() const {
        bool has_text = false;
        for (size_t i = 0; i < fields_.texts.size(); ++i) {
            const JsonFound& found = record_.found(i);
            bool is_left_out = found.kind == JsonKind::missing || (found.kind == JsonKind::null && !found.is_on_the_way);
            if (!is_left_out && (found.kind != JsonKind::string || found.is_on_the_way)) return wrong_type(i, "a string");
            has_text |= !is_left_out;
        }
        for (size_t i = 0; i < fields_.texts.size(); ++i) {
            if (record_.found(i).lone) return lone_surrogate(i);
        }
        if (has_text) return {};
        const JsonPath& path = record_.paths()[0];
        const JsonFound& first = record_.found(0);
        if (first.kind == JsonKind::null) return {LineFault::null, at(first.begin) + name_of(path, path.size()) + " is null"};
        return {LineFault::missing_field, "no field " + name_of(path, path.size()) + "; " + keys_of(record_)};
    }

    const JsonFound& first_string() const {
        size_t i = 0;
        while (record_.found(i).kind != JsonKind::string) ++i;
        return record_.found(i);
    }

    void join_texts() {
        bool is_first = true;
        for (size_t i = 0; i < fields_.texts.size(); ++i) {
            const JsonFound& found = record_.found(i);
            if (found.kind != JsonKind::string) continue;
            if (!is_first) documents_.text.append(reinterpret_cast<const uint8_t*>(fields_.join.data()), fields_.join.size());
            is_first = false;
            add_string(found, documents_.text);
        }
    }

    Fault add_name() {
        size_t path = fields_.texts.size();
        const JsonFound& found = record_.found(path);
        if (found.is_on_the_way || found.kind == JsonKind::array || found.kind == JsonKind::object) {
            return wrong_type(path, "a string or a number");
        }
        if (found.lone) return lone_surrogate(path);
        if (found.kind == JsonKind::string) add_string(found, documents_.names);
        else if (found.kind == JsonKind::number || found.kind == JsonKind::boolean) {
            documents_.names.append(found.begin, static_cast<size_t>(found.end - found.begin));
        }
        return {};
    }

    void add_string(const JsonFound& found, ByteBuffer& buffer) const {
        auto size = static_cast<size_t>(found.end - found.begin);
        if (!found.has_escapes) return buffer.append(found.begin, size);
        uint8_t* out = buffer.reserve(size + kUnescapeSlack);
        JsonString text{found.begin, end_, data_end_};
        text.read<true>(out);
        buffer.commit(out);
    }

    Fault wrong_type(size_t index, const char* expected) const {
        const JsonFound& found = record_.found(index);
        std::string what = name_of(record_.paths()[index], found.depth) + " is " + kKindNames[static_cast<size_t>(found.kind)];
        return {LineFault::wrong_type, at(found.begin) + what + ", expected " + (found.is_on_the_way ? "an object" : expected)};
    }

    Fault lone_surrogate(size_t index) const {
        const JsonPath& path = record_.paths()[index];
        return {LineFault::lone_surrogate,
                at(record_.found(index).lone) + "half a surrogate pair in " + name_of(path, path.size())};
    }

    std::string at(const uint8_t* place) const { return "byte " + std::to_string(place - begin_) + ": "; }

    const JsonFields& fields_;
    JsonRecord record_;
    const uint8_t* data_;
    const uint8_t* data_end_;
    const uint8_t* begin_ = nullptr;  // of the line
    const uint8_t* end_ = nullptr;
    int64_t position_ = 0;
    JsonDocuments documents_;
};

}  // namespace

JsonDocuments parse_json_lines(const uint8_t* data, size_t size, const JsonFields& fields, size_t max_bad) {
    if (fields.texts.empty()) throw std::invalid_argument("no path of a text is given");
    return Reader(data, size, fields).read(max_bad);
}

}  // namespace gristmill
