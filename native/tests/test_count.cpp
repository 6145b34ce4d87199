// The table against a map, sorted as strings are; inventories there and back; the counter against one that never spills.
#include "count.hpp"

#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace gristmill;

namespace {

using Counts = std::map<std::string, uint64_t>;

int num_failures = 0;

void require(bool is_so, const char* claim) {
    if (is_so) return;
    std::fprintf(stderr, "not so: %s\n", claim);
    ++num_failures;
}

// Few letters and NULs, so that many begin alike and some are others with zeros behind.
std::string random_piece(std::mt19937& random) {
    const size_t sizes[] = {1, 2, 7, 8, 9, 14, 15, 16, 17, 24, 40, 300};
    std::string piece(1 + random() % sizes[random() % std::size(sizes)], 0);
    for (char& c : piece) c = "\0\0a\xff"[random() % 4];
    return piece;
}

void add(CountTable& table, const std::string& piece, uint64_t weight) {
    if (!table.has_room(1)) table.resize(table.num_slots() * 2);
    const auto* bytes = reinterpret_cast<const uint8_t*>(piece.data());
    if (piece.size() <= ShortKey::kMaxBytes) {
        ShortKey key = ShortKey::load_safely(bytes, piece.size());
        table.add_short(key, key.hash(), weight);
    } else {
        table.add_long(piece, hash_bytes(piece), weight);
    }
}

std::vector<std::pair<std::string, uint64_t>> taken(CountTable& table) {
    std::vector<std::pair<std::string, uint64_t>> pieces;
    CountTable* tables[] = {&table};
    for (auto& part : CountTable::cut(CountTable::sort(tables), 100)) {
        CountTable::take(std::move(part), [&](std::string_view piece, uint64_t count) { pieces.emplace_back(piece, count); });
    }
    table.reset(8);
    return pieces;
}

void test_the_table_counts_and_sorts_as_a_map_does() {
    std::mt19937 random(1);
    for (size_t num_pieces : {0, 1, 95, 97, 5000, 40000}) {
        CountTable table(8, 1 << 12);
        Counts counts;
        for (size_t i = 0; i < num_pieces; ++i) {
            std::string piece = random_piece(random);
            uint64_t weight = 1 + random() % 3;
            counts[piece] += weight;
            add(table, piece, weight);
        }
        require(table.size() == counts.size(), "each piece is there once");
        require(taken(table) == std::vector<std::pair<std::string, uint64_t>>(counts.begin(), counts.end()), "sorted as a map");
        require(table.size() == 0 && table.arena_bytes() == 0, "a reset table is empty");
    }
}

void test_forgetting_drops_the_rarest_and_keeps_the_rest() {
    std::mt19937 random(2);
    CountTable table(8, 1 << 12);
    Counts counts;
    for (size_t i = 0; i < 20000; ++i) {
        std::string piece = random_piece(random);
        uint64_t weight = random() % 10 == 0 ? random() : 1;
        counts[piece] += weight;
        add(table, piece, weight);
    }
    size_t arena = table.arena_bytes();
    CountTable::Forgotten forgotten = table.forget();
    require(table.size() <= counts.size() / 2, "half of the pieces are gone");
    require(table.arena_bytes() <= arena / 2 + (2 << 12), "half of the arena is gone");
    uint64_t dropped = 0;
    std::erase_if(counts, [&](const auto& item) {
        bool is_rare = item.second <= forgotten.largest_count;
        if (is_rare) dropped += item.second;
        return is_rare;
    });
    require(dropped == forgotten.total_count, "what was dropped is told");
    require(taken(table) == std::vector<std::pair<std::string, uint64_t>>(counts.begin(), counts.end()), "the rest is as it was");
}

std::vector<uint8_t> inventory_of(const Counts& counts) {
    std::vector<uint8_t> file;
    InventoryWriter writer("about", [&](const uint8_t* bytes, size_t size) { file.insert(file.end(), bytes, bytes + size); });
    for (const auto& [piece, count] : counts) writer.put(piece, count);
    writer.finish(0, 0);
    return file;
}

Counts counts_in(const std::vector<uint8_t>& file) {
    InventoryReader reader(open_memory(file));
    Counts counts;
    while (reader.next()) counts.emplace(reader.piece(), reader.count());
    require(!reader.next(), "the end stays the end");
    require(reader.about() == "about" && reader.summary().num_pieces == counts.size(), "the header and footer are read");
    return counts;
}

void test_inventories_come_back_and_merge() {
    std::mt19937 random(3);
    Counts all;
    std::vector<std::vector<uint8_t>> files;
    for (size_t num_pieces : {0, 1, 2000, 1, 20000}) {
        Counts counts;
        for (size_t i = 0; i < num_pieces; ++i) counts[random_piece(random)] += uint64_t{1} << random() % 40;
        if (num_pieces == 2000) counts[std::string(200000, 'x')] = 1;  // larger than a block
        for (const auto& [piece, count] : counts) all[piece] += count;
        files.push_back(inventory_of(counts));
        require(counts_in(files.back()) == counts, "an inventory comes back");
    }
    for (int order = 0; order < 2; ++order) {
        std::vector<std::unique_ptr<InventoryReader>> readers;
        for (const auto& file : files) readers.push_back(std::make_unique<InventoryReader>(open_memory(file)));
        std::vector<uint8_t> merged;
        merge_inventories(readers, 1, [&](const uint8_t* bytes, size_t size) { merged.insert(merged.end(), bytes, bytes + size); });
        require(merged == inventory_of(all), "a merge is the inventory of all");
        std::swap(files.front(), files.back());
    }
}

// A program without splits: every document is a piece.
void test_spills_lose_nothing() {
    std::mt19937 random(4);
    PieceCounter counter(std::make_shared<const Program>(), PieceCounter::kLeastBytes, WhenFull::spill);
    Counts expected, found;
    size_t num_spills = 0;
    auto spill = [&] {
        std::vector<uint8_t> file;
        counter.spill("about", [&](const uint8_t* bytes, size_t size) { file.insert(file.end(), bytes, bytes + size); });
        for (const auto& [piece, count] : counts_in(file)) found[piece] += count;
        ++num_spills;
    };
    for (size_t i = 0; i < 60000; ++i) {
        std::string piece(1 + random() % 20, 0);
        for (char& c : piece) c = "abcd"[random() % 4];
        if (i % 20000 == 0) piece.assign(2 * PieceCounter::kLeastBytes, 'x');
        expected[piece] += 1;
        counter.add(piece, 1, spill);
        if (i % 20000 != 0) {
            require(counter.memory_bytes() <= 3 * PieceCounter::kLeastBytes + 20000, "memory is bounded but for a huge piece");
        }
    }
    spill();
    require(num_spills > 5 && found == expected, "spills lose nothing");
}

void test_twins_spill_as_one() {
    std::mt19937 random(5);
    PieceCounter first(std::make_shared<const Program>(), PieceCounter::kLeastBytes, WhenFull::spill);
    std::vector<PieceCounter> others;
    for (int i = 0; i < 3; ++i) others.push_back(first.twin());
    Counts expected, found;
    auto spill_of = [&](PieceCounter& counter) {
        return [&] {
            std::vector<uint8_t> file;
            counter.spill("about", [&](const uint8_t* bytes, size_t size) { file.insert(file.end(), bytes, bytes + size); });
            for (const auto& [piece, count] : counts_in(file)) found[piece] += count;
        };
    };
    for (size_t i = 0; i < 40000; ++i) {
        std::string piece(1 + random() % 24, 0);
        for (char& c : piece) c = "abc"[random() % 3];
        expected[piece] += 2;
        PieceCounter& counter = i % 4 == 3 ? first : others[i % 4];
        counter.add(piece, 2, spill_of(counter));
    }
    std::vector<PieceCounter*> twins;
    for (PieceCounter& other : others) twins.push_back(&other);
    std::vector<uint8_t> file;
    auto summary = first.spill("about", [&](const uint8_t* bytes, size_t size) { file.insert(file.end(), bytes, bytes + size); }, twins);
    for (PieceCounter& other : others) {
        require(other.num_pieces() == 0 && other.total_count() == 0, "a twin that was spilled is empty");
    }
    Counts last = counts_in(file);
    require(last.size() == summary.num_pieces, "a piece of several twins is there once");
    for (const auto& [piece, count] : last) found[piece] += count;
    require(found == expected, "spilling together loses nothing");
}

void test_twins_are_gathered_as_one() {
    std::mt19937 random(6);
    for (size_t num_pieces : {0, 1, 3, 30000}) {
        PieceCounter first(std::make_shared<const Program>(), 1 << 26, WhenFull::spill);
        PieceCounter second = first.twin(), third = first.twin();
        PieceCounter* counters[] = {&first, &second, &third};
        Counts expected, found;
        for (size_t i = 0; i < num_pieces; ++i) {
            std::string piece = random_piece(random);
            expected[piece] += 2;
            counters[i % 3]->add(piece, 2, [] {});
        }
        PieceCounter* twins[] = {&second, &third};
        CountedPieces all = first.gather(twins);
        const auto* text = reinterpret_cast<const char*>(all.bytes.data());
        std::string last;
        for (size_t i = 0; i < all.counts.size(); ++i) {
            std::string piece(text + all.offsets[i], text + all.offsets[i + 1]);
            require(i == 0 || last < piece, "gathered pieces rise");
            found[last = piece] = all.counts[i];
        }
        require(all.offsets.size() == all.counts.size() + 1 && found == expected, "gathering loses nothing");
        for (PieceCounter* counter : counters) require(counter->num_pieces() == 0, "what was gathered is gone");
    }
}

}  // namespace

int main() {
    test_the_table_counts_and_sorts_as_a_map_does();
    test_forgetting_drops_the_rarest_and_keeps_the_rest();
    test_inventories_come_back_and_merge();
    test_spills_lose_nothing();
    test_twins_spill_as_one();
    test_twins_are_gathered_as_one();
    if (num_failures == 0) std::puts("ok");
    return num_failures != 0;
}
