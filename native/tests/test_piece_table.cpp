// The memory of pieces already encoded: right, and bounded.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tests/chance.hpp"
#include "tests/claims.hpp"
#include "tests/small_tokenizer.hpp"

namespace {

using namespace gristmill;
using Ids = std::vector<uint32_t>;

void test_the_piece_table_gives_back_what_it_was_given() {
    for (size_t max_bytes : {size_t{1}, size_t{1} << 20, size_t{8} << 20}) {
        PieceTable table(max_bytes);
        const size_t first_bytes = table.memory_bytes();
        Chance chance(5);
        size_t num_found = 0, num_asked = 0, most = 0;
        std::vector<std::string> recent(64);
        for (uint32_t n = 0; n < 200000; ++n) {
            std::string piece = std::to_string(n * 2654435761u) + std::string(chance.below(n % 3 ? 5 : 40), 'x');
            // Ids that tell the piece, so that a wrong entry is seen.
            auto ids_of = [](const std::string& text) {
                Ids ids(1 + text.size() % 7);
                for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<uint32_t>(std::hash<std::string>()(text) + i);
                return ids;
            };
            auto look_up = [&](const std::string& text, bool& is_there) {
                if (text.size() > ShortKey::kMaxBytes) {
                    auto found = table.find_long(text, hash_bytes(text));
                    is_there = found.ids != nullptr;
                    return is_there ? Ids(found.ids, found.ids + found.count) : Ids{};
                }
                ShortKey key = ShortKey::load_safely(bytes_of(text), text.size());
                const ShortSlot* slot = table.find(key, key.hash());
                is_there = slot != nullptr;
                if (!slot) return Ids{};
                const uint32_t* ids = slot->count <= 3 ? slot->ids : table.arena(slot->ids[0]);
                return Ids(ids, ids + slot->count);
            };
            bool is_there;
            look_up(piece, is_there);
            check(!is_there, "a piece never given is not there", piece);
            Ids ids = ids_of(piece);
            if (piece.size() > ShortKey::kMaxBytes) {
                table.insert_long(piece, hash_bytes(piece), ids.data(), ids.size());
            } else {
                ShortKey key = ShortKey::load_safely(bytes_of(piece), piece.size());
                table.insert(key, key.hash(), ids.data(), ids.size());
            }
            recent[n % recent.size()] = piece;
            const std::string& asked = recent[chance.below(recent.size())];
            if (asked.empty()) continue;
            Ids found = look_up(asked, is_there);
            ++num_asked;
            num_found += is_there;
            check(!is_there || found == ids_of(asked), "what is there is right", asked);
            most = std::max(most, table.memory_bytes());
        }
        check(most <= std::max(max_bytes, first_bytes + (size_t{1} << 19)), "memory stays under the bound");
        check(num_found * 10 > num_asked * 9, "what was just given is mostly there");
    }
}

void test_pieces_brought_home_lose_nobody_their_place() {
    PieceTable table(size_t{1} << 20);
    std::vector<ShortKey> kept;
    for (uint32_t n = 0; n < 7000; ++n) {
        std::string piece = std::to_string(n * 2654435761u);
        ShortKey key = ShortKey::load_safely(bytes_of(piece), piece.size());
        if (table.insert(key, key.hash(), &n, 1)) kept.push_back(key);
    }
    std::vector<uint32_t> ids;
    for (const ShortKey& key : kept) ids.push_back(table.find(key, key.hash())->ids[0]);
    auto is_at_home = [&](const ShortKey& key, const ShortSlot* slot) {
        const ShortSlot* home = table.homes().of(key.hash());
        return slot == home || slot == home + 1;
    };
    size_t num_away = 0, num_home = 0;
    Chance chance(7);
    for (int n = 0; n < 50000; ++n) {
        size_t i = chance.below(kept.size());
        const ShortKey& key = kept[i];
        const ShortSlot* slot = table.find(key, key.hash());
        check(slot && slot->ids[0] == ids[i], "every piece is found, with its ids", std::to_string(i));
        if (!slot || is_at_home(key, slot)) continue;
        ++num_away;
        table.bring_home(key, slot, key.hash());
        num_home += is_at_home(key, table.find(key, key.hash()));
        table.bring_home(key, slot, key.hash());  // what has changed places since stays
        check(table.find(key, key.hash()) != nullptr, "told twice", std::to_string(i));
    }
    check(num_away > 500 && num_home * 2 > num_away, "pieces were away, and most are at home then",
          std::to_string(num_home) + " of " + std::to_string(num_away));
}

}  // namespace

int main() {
    test_the_piece_table_gives_back_what_it_was_given();
    test_pieces_brought_home_lose_nobody_their_place();
    return num_failures ? 1 : 0;
}
