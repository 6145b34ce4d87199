// Learned merges against a recount of all pairs before every merge, with threads, floors, long pieces and known merges.
#include "train.hpp"
#include "train_find.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace gristmill::train;

int num_failures = 0;

void check(bool is_right, const char* claim) {
    if (is_right) return;
    std::fprintf(stderr, "failed: %s\n", claim);
    ++num_failures;
}

std::mt19937 chance(11);

size_t below(size_t limit) { return chance() % limit; }

struct Inventory {
    std::vector<uint8_t> bytes;
    std::vector<int64_t> offsets{0};
    std::vector<uint64_t> counts;

    void add(const std::vector<uint8_t>& piece, uint64_t count) {
        bytes.insert(bytes.end(), piece.begin(), piece.end());
        offsets.push_back(static_cast<int64_t>(bytes.size()));
        counts.push_back(count);
    }
    Pieces pieces() const { return {bytes.data(), offsets.data(), counts.data(), counts.size()}; }
};

Inventory random_inventory(size_t num_letters) {
    Inventory inventory;
    size_t longest = std::vector<size_t>{5, 20, 40, 400}[below(4)];
    for (size_t i = longest > 100 ? 3 : below(30); i > 0; --i) {
        std::vector<uint8_t> piece(1 + below(longest));
        bool is_run = below(4) == 0;
        for (uint8_t& byte : piece) byte = static_cast<uint8_t>('a' + (is_run ? 0 : below(num_letters)));
        inventory.add(piece, below(8) == 0 ? (uint64_t{1} << 33) + below(3) : 1 + below(9));
    }
    return inventory;
}

std::vector<std::vector<uint32_t>> words_of(const Inventory& inventory) {
    std::vector<std::vector<uint32_t>> words;
    for (size_t i = 0; i < inventory.counts.size(); ++i) {
        words.emplace_back();
        for (auto at = inventory.offsets[i]; at < inventory.offsets[i + 1]; ++at) {
            words.back().push_back(inventory.bytes[static_cast<size_t>(at)] - 'a' + 0u);
        }
    }
    return words;
}

void merge_word(std::vector<uint32_t>& word, const Rule& rule) {
    std::vector<uint32_t> out;
    for (size_t i = 0; i < word.size(); ++i) {
        bool is_pair = i + 1 < word.size() && word[i] == rule.left && word[i + 1] == rule.right;
        out.push_back(is_pair ? rule.token : word[i]);
        i += is_pair;
    }
    word = out;
}

std::vector<Rule> learn_slowly(const Inventory& inventory, uint32_t num_letters, size_t vocab_size, size_t max_length) {
    auto words = words_of(inventory);
    std::vector<size_t> lengths(num_letters, 1);
    std::vector<Rule> rules;
    while (lengths.size() < vocab_size) {
        std::map<std::pair<uint32_t, uint32_t>, int64_t> sums;
        for (size_t i = 0; i < words.size(); ++i) {
            for (size_t at = 0; at + 1 < words[i].size(); ++at) {
                size_t length = lengths[words[i][at]] + lengths[words[i][at + 1]];
                if (length == 2 || length < max_length) {
                    sums[{words[i][at], words[i][at + 1]}] += static_cast<int64_t>(inventory.counts[i]);
                }
            }
        }
        auto best = std::max_element(sums.begin(), sums.end(), [](auto& a, auto& b) { return a.second < b.second; });
        if (best == sums.end()) break;
        rules.push_back({best->first.first, best->first.second, static_cast<uint32_t>(lengths.size())});
        lengths.push_back(lengths[rules.back().left] + lengths[rules.back().right]);
        for (auto& word : words) merge_word(word, rules.back());
    }
    return rules;
}

bool is_equal(const std::vector<Rule>& a, const std::vector<Rule>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Rule& x, const Rule& y) {
        return x.left == y.left && x.right == y.right && x.token == y.token;
    });
}

Setup setup_for(uint32_t num_letters, size_t vocab_size) {
    Setup setup;
    for (uint32_t i = 0; i < num_letters; ++i) setup.tokens.emplace_back(1, static_cast<char>('a' + i));
    setup.vocab_size = vocab_size;
    return setup;
}

std::vector<Rule> learn(const Inventory& inventory, const Alphabet& alphabet, const Setup& setup) {
    Learner learner(inventory.pieces(), alphabet, setup);
    while (!learner.advance(0)) {
    }
    return learner.rules();
}

void check_random() {
    auto num_letters = static_cast<uint32_t>(1 + below(4));
    Inventory inventory = random_inventory(num_letters);
    Alphabet alphabet(SymbolKind::bytes);
    for (uint32_t i = 0; i < num_letters; ++i) alphabet.set('a' + i, i);
    Setup setup = setup_for(num_letters, num_letters + below(40));
    setup.max_token_length = below(3) == 0 ? 3 + below(6) : SIZE_MAX;
    auto expected = learn_slowly(inventory, num_letters, setup.vocab_size, setup.max_token_length);
    for (unsigned num_threads : {1u, 2u, 5u}) {
        setup.num_threads = num_threads;
        setup.first_floor = static_cast<int64_t>(below(3) * 7);
        check(is_equal(learn(inventory, alphabet, setup), expected), "merges equal a recount");
    }
    size_t num_known = below(expected.size() + 1);
    for (size_t i = 0; i < num_known; ++i) {
        const Rule& rule = expected[i];
        setup.known.push_back(rule);
        setup.tokens.push_back(setup.tokens[rule.left] + setup.tokens[rule.right]);
    }
    expected.erase(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(num_known));
    check(is_equal(learn(inventory, alphabet, setup), expected), "merges go on from known ones");
}

// Wide ids, and lists that are compacted and pruned many times over.
void check_large() {
    Inventory inventory;
    Alphabet alphabet(SymbolKind::bytes);
    for (uint32_t i = 0; i < 26; ++i) alphabet.set('a' + i, i);
    for (int i = 0; i < 3000; ++i) {
        std::vector<uint8_t> piece(2 + below(14));
        for (uint8_t& byte : piece) byte = static_cast<uint8_t>('a' + std::min(below(26), below(26)));
        inventory.add(piece, 1 + below(1000) / (1 + below(1000)));
    }
    auto narrow = learn(inventory, alphabet, setup_for(26, 2000));
    Setup wide = setup_for(26, 70000);
    wide.num_threads = 3;
    auto all = learn(inventory, alphabet, wide);
    check(all.size() >= narrow.size(), "wide ids learn as much");
    all.resize(narrow.size());
    check(is_equal(all, narrow), "narrow and wide ids learn the same");
    wide.tie_break = TieBreak::bytes;
    auto by_bytes = learn(inventory, alphabet, wide);
    wide.num_threads = 1;
    check(is_equal(learn(inventory, alphabet, wide), by_bytes), "threads do not matter to ties by bytes");
}

template <typename Symbol>
void check_finding() {
    for (int round = 0; round < 20000; ++round) {
        unsigned size = static_cast<unsigned>(2 + below(40));
        std::vector<Symbol> tokens(size + kReadableBeyond);
        for (Symbol& token : tokens) token = static_cast<Symbol>(below(3) + (round % 2 ? 65533 : 0));
        Symbol left = tokens[below(size)], right = tokens[below(size)];
        PairPlaces fast = find_pairs(tokens.data(), size, left, right);
        PairPlaces slow = find_pairs_plainly(tokens.data(), size, left, right);
        check(fast.first == slow.first, "a pair is found where it first stands");
        if (fast.is_only) {
            PairPlaces next = find_pairs_plainly(tokens.data() + fast.first + 1, size - fast.first - 1, left, right);
            check(next.first == size - fast.first - 1, "a pair that is said to be the only one is");
        }
        std::vector<Symbol> moved = tokens, expected = tokens;
        unsigned at = static_cast<unsigned>(1 + below(size - 1));
        close_gap(moved.data(), at, size);
        close_gap_plainly(expected.data(), at, size);
        expected[size - 1] = moved[size - 1];  // no token stands there any more
        check(moved == expected, "a gap is closed and nothing else is changed");
    }
}

}  // namespace

int main() {
    check_finding<uint16_t>();
    check_finding<uint32_t>();
    for (int i = 0; i < 60; ++i) check_random();
    check_large();
    return num_failures != 0;
}
