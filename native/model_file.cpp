#include "model_file.hpp"

#include <cstring>
#include <numeric>

namespace gristmill {

namespace {

constexpr char kMagic[8] = {'G', 'M', 'O', 'D', 'E', 'L', '4', '\0'};

struct Header {
    char magic[8];
    uint32_t symbols, whole_piece_first, num_ids, num_merges, num_byte_ids, num_unproducible, num_merge_buckets, num_token_buckets;
    uint64_t merge_factor, token_factor, cover_bytes;
};

template <typename T>
void append(std::string& out, const T* items, size_t count) {
    out.append(reinterpret_cast<const char*>(items), count * sizeof(T));
}

class Reader {
public:
    explicit Reader(std::string_view bytes) : rest_(bytes) {}
    std::string_view take(size_t size) {
        if (size > rest_.size()) throw ModelError("a compiled vocabulary is cut short");
        std::string_view taken = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return taken;
    }
    template <typename T>
    std::vector<T> take_all(size_t count) {
        std::string_view bytes = take(count * sizeof(T));  // before memory is asked for
        std::vector<T> items(count);
        if (count) std::memcpy(items.data(), bytes.data(), bytes.size());
        return items;
    }
    bool is_done() const { return rest_.empty(); }

private:
    std::string_view rest_;
};

}  // namespace

std::string pack_model(const Model& model) {
    std::vector<Merge> merges = model.pairs().in_order();
    auto num_ids = static_cast<uint32_t>(model.num_ids());
    std::vector<uint32_t> unproducible, byte_ids;
    for (uint32_t id = 0; id < num_ids; ++id) {
        if (model.decoded(id) != model.token(id)) unproducible.push_back(id);
    }
    if (model.symbols() == Symbols::characters) {
        for (unsigned b = 0; b < 256; ++b) byte_ids.push_back(model.byte_id(static_cast<uint8_t>(b)));
    }
    PerfectHash::Found merge_places = model.pairs().found(), token_places = model.short_tokens().found();
    std::string cover;
    model.cover().pack(cover);
    Header header = {{}, static_cast<uint32_t>(model.symbols()), model.whole_piece_first(), num_ids,
                     static_cast<uint32_t>(merges.size()), static_cast<uint32_t>(byte_ids.size()),
                     static_cast<uint32_t>(unproducible.size()), static_cast<uint32_t>(merge_places.buckets.size()),
                     static_cast<uint32_t>(token_places.buckets.size()), merge_places.factor, token_places.factor, cover.size()};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    std::string out;
    append(out, &header, 1);
    append(out, merges.data(), merges.size());
    append(out, merge_places.buckets.data(), merge_places.buckets.size());
    append(out, token_places.buckets.data(), token_places.buckets.size());
    out.append(cover);
    append(out, byte_ids.data(), byte_ids.size());
    append(out, unproducible.data(), unproducible.size());
    auto append_size = [&](std::string_view bytes) {
        auto size = static_cast<uint32_t>(bytes.size());
        append(out, &size, 1);
    };
    for (uint32_t id = 0; id < num_ids; ++id) append_size(model.token(id));
    for (uint32_t id : unproducible) append_size(model.decoded(id));
    for (uint32_t id = 0; id < num_ids; ++id) out.push_back(model.is_reachable(id));
    for (uint32_t id = 0; id < num_ids; ++id) out.append(model.token(id));
    for (uint32_t id : unproducible) out.append(model.decoded(id));
    return out;
}

ModelInput unpack_model(std::string_view bytes) {
    Reader reader(bytes);
    Header header;
    std::memcpy(&header, reader.take(sizeof header).data(), sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.symbols > 1) {
        throw ModelError("is no compiled vocabulary");
    }
    ModelInput input;
    input.symbols = static_cast<Symbols>(header.symbols);
    input.whole_piece_first = header.whole_piece_first;
    input.merges = reader.take_all<Merge>(header.num_merges);
    for (const Merge& merge : input.merges) {
        if (std::max({merge.left, merge.right, merge.result}) >= header.num_ids) {
            throw ModelError("a compiled vocabulary has a merge of tokens it has not");
        }
    }
    input.merge_places = {header.merge_factor, reader.take_all<uint16_t>(header.num_merge_buckets)};
    input.token_places = {header.token_factor, reader.take_all<uint16_t>(header.num_token_buckets)};
    input.cover = CoverFilter::unpack(reader.take(header.cover_bytes));
    input.byte_ids = reader.take_all<uint32_t>(header.num_byte_ids);
    for (uint32_t id : input.byte_ids) {
        if (id != kNoId && id >= header.num_ids) throw ModelError("a compiled vocabulary has a byte of no token");
    }
    auto unproducible = reader.take_all<uint32_t>(header.num_unproducible);
    input.packed_sizes = reader.take_all<uint32_t>(header.num_ids);
    auto other_sizes = reader.take_all<uint32_t>(header.num_unproducible);
    input.reachable = reader.take_all<uint8_t>(header.num_ids);
    input.packed = reader.take(std::accumulate(input.packed_sizes.begin(), input.packed_sizes.end(), size_t{0}));
    for (size_t i = 0; i < unproducible.size(); ++i) {
        if (unproducible[i] >= header.num_ids) throw ModelError("a compiled vocabulary has bytes of no token");
        input.unproducible.emplace(unproducible[i], reader.take(other_sizes[i]));
    }
    if (!reader.is_done()) throw ModelError("a compiled vocabulary is longer than it says");
    return input;
}

}  // namespace gristmill
