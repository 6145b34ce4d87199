// Any bytes as an inventory: what is read is sound, or there is an error; nothing is read past the end.
//
// Input: the first byte says whether the rest is a whole file, the payload of a block with true checksums around it, or
// pieces to be written, of which one byte is changed afterwards.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "crc32.hpp"
#include "inventory.hpp"

using namespace gristmill;

namespace {

using File = std::vector<uint8_t>;

void require(bool is_so, const char* claim) {
    if (is_so) return;
    std::fprintf(stderr, "not so: %s\n", claim);
    std::abort();
}

void append(File& file, const void* bytes, size_t size) {
    const auto* first = static_cast<const uint8_t*>(bytes);
    file.insert(file.end(), first, first + size);
}

void append_sum(File& file, size_t begin) {
    uint32_t sum = crc32(0, file.data() + begin, file.size() - begin);
    append(file, &sum, 4);
}

// The numbers of the footer are bytes of the input too, small ones, so that they are true at times.
File framed(const uint8_t* data, size_t size) {
    uint8_t fields[8] = {};
    std::memcpy(fields, data, std::min<size_t>(size, 8));
    data += std::min<size_t>(size, 8), size -= std::min<size_t>(size, 8);
    File file;
    const uint32_t start[] = {1, 0};
    append(file, "GMPIECES", 8);
    append(file, start, 8);
    append_sum(file, 0);
    size_t begin = file.size();
    const uint32_t head[] = {static_cast<uint32_t>(size), fields[6] % 4u};
    append(file, head, 8);
    append(file, data, size);
    append_sum(file, begin);
    begin = file.size();
    for (size_t i = 0; i < 6; ++i) {
        uint64_t number = fields[i] % 16;
        append(file, &number, 8);
    }
    append_sum(file, begin);
    append(file, "GMPIECES", 8);
    return file;
}

std::map<std::string, uint64_t> made_counts(const uint8_t* data, size_t size) {
    std::map<std::string, uint64_t> counts;
    for (size_t i = 0; i + 1 < size;) {
        size_t length = std::min<size_t>(1 + data[i] % 20, size - i - 1);
        counts[std::string(reinterpret_cast<const char*>(data) + i + 1, length)] += uint64_t{1} << data[i] % 50;
        i += 1 + length;
    }
    return counts;
}

File written(const std::map<std::string, uint64_t>& counts) {
    File file;
    InventoryWriter writer("", [&](const uint8_t* bytes, size_t count) { append(file, bytes, count); });
    for (const auto& [piece, count] : counts) writer.put(piece, count);
    writer.finish(0, 0);
    return file;
}

// False when it is refused.
bool read(const File& file, std::map<std::string, uint64_t>& counts) {
    const File copy(file);  // of exact size, for AddressSanitizer
    try {
        InventoryReader reader(open_memory(copy));
        std::string last;
        uint64_t total_count = 0, total_bytes = 0;
        while (reader.next()) {
            require(reader.piece() > last && reader.count() > 0, "pieces rise and have counts");
            last = reader.piece();
            counts.emplace(last, reader.count());
            total_count += reader.count(), total_bytes += last.size();
        }
        require(counts.size() == reader.summary().num_pieces && total_count == reader.summary().total_count &&
                    total_bytes == reader.summary().total_bytes,
                "the footer is true");
        return true;
    } catch (const InventoryError&) {
        return false;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    std::map<std::string, uint64_t> found;
    if (data[0] % 3 == 0) read(File(data + 1, data + size), found);
    if (data[0] % 3 == 1) read(framed(data + 1, size - 1), found);
    if (data[0] % 3 != 2 || size < 4) return 0;
    auto counts = made_counts(data + 4, size - 4);
    File file = written(counts);
    require(read(file, found) && found == counts, "what was written is read");
    file[(data[1] << 8 | data[2]) % file.size()] ^= data[3] | 1;
    found.clear();
    require(!read(file, found), "a changed byte is noticed");
    return 0;
}
