#include "split_windows.hpp"

#include <algorithm>
#include <bit>
#include <bitset>
#include <map>
#include <optional>
#include <unordered_map>

#if defined(__x86_64__) && defined(__GNUC__)
#define GRISTMILL_HAS_AVX512_PATH 1
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 says so of its own intrinsics
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace gristmill {

namespace {

using Table = std::vector<uint16_t>;  // as given to Transducer
using Cells = std::vector<uint8_t>;
constexpr size_t kWindow = SplitWindows::kWindow;
constexpr size_t kMostRows = 256, kMostCells = 1 << 16;  // o200k's pattern has 21 and 54,000, others far fewer

enum Answer : uint8_t { kNoEnd = 0, kEnd = 1, kOpen = 2 };

unsigned pops(unsigned entry) { return entry >> 1 & 0x7F; }
unsigned pushes(unsigned entry) { return entry & 1; }

// By config: how many of the ends there are may be taken back by what follows.
std::vector<unsigned> depths_of(const Table& table, unsigned end_column) {
    constexpr unsigned kTooDeep = 64;  // more is as good as any number
    std::vector<unsigned> depths(table.size() / 256);
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (size_t q = 0; q < depths.size(); ++q) {
            for (unsigned c = 0; c <= end_column; ++c) {
                unsigned entry = table[q * 256 + c], after = c < end_column ? depths[entry >> 8] : 0;
                unsigned depth = std::min(kTooDeep, pops(entry) + (after > pushes(entry) ? after - pushes(entry) : 0));
                if (depth <= depths[q]) continue;
                depths[q] = depth;
                has_changed = true;
            }
        }
    }
    return depths;
}

// Whether a piece ends before the first of two characters, read in config q.
Answer answer_in(const Table& table, const std::vector<unsigned>& depths, size_t q, uint8_t first, uint8_t second) {
    unsigned entry = table[q * 256 + first];
    if (!pushes(entry)) return kNoEnd;
    unsigned next = table[(entry & 0xFF00) + second];
    if (pops(next)) return kNoEnd;
    return depths[next >> 8] <= pushes(next) ? kEnd : kOpen;
}

// About how often a character is met. It decides which kinds are worth telling apart, where there are too many.
double weight_of(unsigned c) {
    if (c == ' ') return 18;
    if (c >= 'a' && c <= 'z') return 3;
    if (c == '\n') return 2;
    if (c >= '0' && c <= '9') return 0.4;
    return c > ' ' && c < 127 ? 0.3 : 0.1;
}

// Different things, numbered as they come.
struct Numbered {
    std::vector<Cells> things;
    size_t of(const Cells& thing) {
        auto number = static_cast<size_t>(std::ranges::find(things, thing) - things.begin());
        if (number == things.size()) things.push_back(thing);
        return number;
    }
};

// Cells by several indices, the last one running fastest.
struct Grid {
    std::vector<size_t> sizes;
    Cells cells;

    size_t volume(size_t from, size_t to) const {
        size_t volume = 1;
        for (; from < to; ++from) volume *= sizes[from];
        return volume;
    }
    // Calls with each cell whose index `dimension` is `index`, by the number of what is before it and of what is behind.
    template <typename Call>
    void visit(size_t dimension, size_t index, const Call& call) const {
        size_t inner = volume(dimension + 1, sizes.size());
        for (size_t o = 0; o < volume(0, dimension); ++o) {
            for (size_t i = 0; i < inner; ++i) call(cells[(o * sizes[dimension] + index) * inner + i], o, i);
        }
    }
    Cells slice(size_t dimension, size_t index) const {
        Cells slice;
        visit(dimension, index, [&](uint8_t cell, size_t, size_t) { slice.push_back(cell); });
        return slice;
    }
    // Which indices have the same slice.
    std::vector<size_t> classes(size_t dimension) const {
        Numbered slices;
        std::vector<size_t> classes;
        for (size_t i = 0; i < sizes[dimension]; ++i) classes.push_back(slices.of(slice(dimension, i)));
        return classes;
    }
    // The same cells by fewer indices.
    Grid joined(size_t from, size_t to) const {
        Grid grid{sizes, cells};
        grid.sizes.erase(grid.sizes.begin() + static_cast<ptrdiff_t>(from), grid.sizes.begin() + static_cast<ptrdiff_t>(to));
        grid.sizes.insert(grid.sizes.begin() + static_cast<ptrdiff_t>(from), volume(from, to));
        return grid;
    }
};

// What windows of five characters say, by the class of each.
struct Windows {
    std::array<std::vector<size_t>, kWindow> class_of;  // by kind
    std::array<std::vector<double>, kWindow> weights;   // by class
    Grid answers;

    // Makes one class of two; where they say different things, it says nothing.
    void merge(size_t place, size_t a, size_t b);
    double cost_of_merging(size_t place, size_t a, size_t b) const;
    void merge_cheapest(size_t from_place, size_t to_place);
};

double Windows::cost_of_merging(size_t place, size_t a, size_t b) const {
    auto products = [&](size_t from, size_t to) {
        std::vector<double> products{1};
        for (; from < to; ++from) {
            std::vector<double> longer;
            for (double product : products) {
                for (double weight : weights[from]) longer.push_back(product * weight);
            }
            products.swap(longer);
        }
        return products;
    };
    auto before = products(0, place), behind = products(place + 1, kWindow);
    Cells other = answers.slice(place, b);
    double cost = 0;
    size_t at = 0;
    answers.visit(place, a, [&](uint8_t cell, size_t o, size_t i) { cost += cell == other[at++] ? 0 : before[o] * behind[i]; });
    return cost * (weights[place][a] + weights[place][b]);
}

void Windows::merge(size_t place, size_t a, size_t b) {
    Grid merged{answers.sizes, {}};
    --merged.sizes[place];
    size_t inner = answers.volume(place + 1, kWindow), count = answers.sizes[place];
    for (size_t at = 0; at < answers.cells.size(); ++at) {
        size_t here = at / inner % count;
        if (here == b) continue;
        uint8_t cell = answers.cells[at];
        merged.cells.push_back(here == a && answers.cells[at + (b - a) * inner] != cell ? uint8_t{kOpen} : cell);
    }
    answers = std::move(merged);
    weights[place][a] += weights[place][b];
    weights[place].erase(weights[place].begin() + static_cast<ptrdiff_t>(b));
    for (size_t& number : class_of[place]) number = number == b ? a : number - (number > b);
}

void Windows::merge_cheapest(size_t from_place, size_t to_place) {
    double least = 0;
    size_t place = kWindow, a = 0, b = 0;
    for (size_t p = from_place; p < to_place; ++p) {
        for (size_t i = 0; i < answers.sizes[p]; ++i) {
            for (size_t j = i + 1; j < answers.sizes[p]; ++j) {
                double cost = cost_of_merging(p, i, j);
                if (place == kWindow || cost < least) least = cost, place = p, a = i, b = j;
            }
        }
    }
    merge(place, a, b);
}

// Kinds are told apart only as far as it matters at each place. Nothing: they are so many that it would take long.
std::optional<Windows> windows_of(const Table& table, const std::vector<unsigned>& depths, const std::vector<Cells>& kinds) {
    using Configs = std::bitset<256>;
    size_t count = kinds.size(), num_configs = depths.size();
    auto after = [&](const Configs& from, size_t kind) {
        Configs to;
        for (size_t q = 0; q < num_configs; ++q) {
            if (from[q]) to.set(table[q * 256 + kinds[kind][0]] >> 8);
        }
        return to;
    };
    auto answers_in = [&](const Configs& configs) {
        Cells answers;
        for (size_t i = 0; i < count * count; ++i) {
            unsigned seen = 0;
            for (size_t q = 0; q < num_configs; ++q) {
                if (configs[q]) seen |= 1u << answer_in(table, depths, q, kinds[i / count][0], kinds[i % count][0]);
            }
            answers.push_back(seen == 1u << kNoEnd ? kNoEnd : seen == 1u << kEnd ? kEnd : kOpen);
        }
        return answers;
    };
    Configs any;
    for (size_t q = 0; q < num_configs; ++q) any.set(q);
    std::unordered_map<Configs, size_t> row_after;
    Numbered rows;
    Grid left{{count, count, count}, {}};
    for (size_t x = 0; x < count; ++x) {
        for (size_t y = 0; y < count; ++y) {
            Configs two = after(after(any, x), y);
            for (size_t z = 0; z < count; ++z) {
                auto [it, is_new] = row_after.try_emplace(after(two, z));
                if (row_after.size() > kMostRows) return {};
                if (is_new) it->second = rows.of(answers_in(it->first));
                left.cells.push_back(static_cast<uint8_t>(it->second));
            }
        }
    }
    Grid right{{rows.things.size(), count, count}, {}};
    for (const Cells& row : rows.things) right.cells.insert(right.cells.end(), row.begin(), row.end());

    Windows windows;
    std::array<std::vector<size_t>, kWindow> examples;  // a kind of each class
    for (size_t p = 0; p < kWindow; ++p) {
        auto& classes = windows.class_of[p] = p < SplitWindows::kBefore ? left.classes(p) : right.classes(p - SplitWindows::kBefore + 1);
        for (size_t kind = 0; kind < count; ++kind) {
            if (classes[kind] == examples[p].size()) examples[p].push_back(kind), windows.weights[p].push_back(0);
            for (uint8_t c : kinds[kind]) windows.weights[p][classes[kind]] += weight_of(c);
        }
        windows.answers.sizes.push_back(examples[p].size());
    }
    if (windows.answers.volume(0, kWindow) > kMostCells) return {};
    for (size_t x : examples[0]) {
        for (size_t y : examples[1]) {
            for (size_t z : examples[2]) {
                size_t row = left.cells[(x * count + y) * count + z];
                for (size_t v : examples[3]) {
                    for (size_t w : examples[4]) windows.answers.cells.push_back(right.cells[(row * count + v) * count + w]);
                }
            }
        }
    }
    return windows;
}

}  // namespace

std::vector<std::vector<uint8_t>> ascii_kinds(const Table& table) {
    std::map<Table, Cells> by_column;
    for (unsigned c = 0; c < 128; ++c) {
        Table does;
        for (size_t q = 0; q < table.size() / 256; ++q) does.push_back(table[q * 256 + c]);
        by_column[does].push_back(static_cast<uint8_t>(c));
    }
    std::vector<Cells> kinds;
    for (auto& [does, characters] : by_column) kinds.push_back(std::move(characters));
    return kinds;
}

SplitWindows::SplitWindows(const Table& table, unsigned end_column) { is_built_ = has_instructions() && build(table, end_column); }

bool SplitWindows::build(const Table& table, unsigned end_column) {
    constexpr size_t kMostKinds = 24, kMostConfigs = 64;  // patterns of words have fewer
    auto kinds = ascii_kinds(table);
    if (kinds.size() > kMostKinds || table.size() / 256 > kMostConfigs) return false;
    auto windows = windows_of(table, depths_of(table, end_column), kinds);
    if (!windows) return false;
    const Grid& answers = windows->answers;
    const auto& sizes = answers.sizes;
    std::vector<size_t> effects, rows, columns;  // by the indices they are made of, taken as one
    size_t num_columns = 0;
    for (;;) {
        effects = answers.joined(0, 2).classes(0), rows = answers.joined(0, 3).classes(0), columns = answers.joined(3, 5).classes(3);
        auto count = [](const std::vector<size_t>& classes) { return *std::ranges::max_element(classes) + 1; };
        num_columns = count(columns);
        if (sizes[0] * sizes[1] > effect_of_.size()) {
            windows->merge_cheapest(0, 2);
        } else if (count(effects) * sizes[2] > row_of_.size()) {
            windows->merge_cheapest(0, 3);
        } else if (sizes[3] * sizes[4] > column_of_.size()) {
            windows->merge_cheapest(3, 5);
        } else if (count(rows) * num_columns > answer_of_.size()) {
            windows->merge_cheapest(0, 5);
        } else {
            break;
        }
    }
    const std::array<size_t, kWindow> steps = {sizes[1], 1, 1, sizes[4], 1};
    for (size_t place = 0; place < kWindow; ++place) {
        for (size_t kind = 0; kind < kinds.size(); ++kind) {
            for (uint8_t c : kinds[kind]) kind_of_[place][c] = static_cast<uint8_t>(windows->class_of[place][kind] * steps[place]);
        }
    }
    for (size_t i = 0; i < effects.size(); ++i) effect_of_[i] = static_cast<uint8_t>(effects[i] * sizes[2]);
    for (size_t i = 0; i < rows.size(); ++i) row_of_[effect_of_[i / sizes[2]] + i % sizes[2]] = static_cast<uint8_t>(rows[i] * num_columns);
    for (size_t i = 0; i < columns.size(); ++i) column_of_[i] = static_cast<uint8_t>(columns[i]);
    for (size_t i = 0; i < answers.cells.size(); ++i) {
        answer_of_[rows[i / columns.size()] * num_columns + columns[i % columns.size()]] = answers.cells[i];
    }
    return true;
}

#if defined(GRISTMILL_HAS_AVX512_PATH)
#define GRISTMILL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))

bool SplitWindows::has_instructions() {
    static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                            __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
    return has;
}

namespace {

// The numbers of the bits set in `places`, `at` being the first; 64 may be written.
GRISTMILL_AVX512 inline uint32_t* put_all(uint32_t* out, uint64_t places, size_t at) {
    alignas(64) static constexpr auto kCounting = [] {
        std::array<uint8_t, 64> numbers{};
        for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(i);
        return numbers;
    }();
    const __m512i first = _mm512_set1_epi32(static_cast<int>(at));
    __m512i numbers = _mm512_maskz_compress_epi8(places, _mm512_load_si512(kCounting.data()));
    auto store = [&](size_t i, __m128i sixteen) GRISTMILL_AVX512 { _mm512_storeu_si512(out + i, _mm512_add_epi32(first, _mm512_cvtepu8_epi32(sixteen))); };
    auto count = static_cast<size_t>(std::popcount(places));
    store(0, _mm512_castsi512_si128(numbers));
    store(16, _mm512_extracti32x4_epi32(numbers, 1));
    if (count > 32) {
        store(32, _mm512_extracti32x4_epi32(numbers, 2));
        store(48, _mm512_extracti32x4_epi32(numbers, 3));
    }
    return out + count;
}

}  // namespace

GRISTMILL_AVX512 size_t SplitWindows::run(const uint8_t* text, size_t at, size_t end, uint32_t*& out) const {
    __m512i kinds[kWindow][2];
    for (size_t i = 0; i < kWindow; ++i) {
        for (size_t half = 0; half < 2; ++half) kinds[i][half] = _mm512_load_si512(kind_of_[i].data() + 64 * half);
    }
    const __m512i effects = _mm512_load_si512(effect_of_.data()), columns = _mm512_load_si512(column_of_.data());
    const __m512i rows[2] = {_mm512_load_si512(row_of_.data()), _mm512_load_si512(row_of_.data() + 64)};
    const __m512i lower[2] = {_mm512_load_si512(answer_of_.data()), _mm512_load_si512(answer_of_.data() + 64)};
    const __m512i upper[2] = {_mm512_load_si512(answer_of_.data() + 128), _mm512_load_si512(answer_of_.data() + 192)};
    size_t last = end - 1;
    while (at < last) {
        size_t count = std::min<size_t>(64, last - at);
        __mmask64 is_here = ~uint64_t{0} >> (64 - count);
        __m512i bytes[kWindow], kind[kWindow];
        for (size_t i = 0; i < kWindow; ++i) {
            bytes[i] = _mm512_maskz_loadu_epi8(is_here, text + at + i - kBefore);
            kind[i] = _mm512_permutex2var_epi8(kinds[i][0], bytes[i], kinds[i][1]);
        }
        constexpr int kOr = 0xFE;
        __m512i beyond = _mm512_ternarylogic_epi32(bytes[0], bytes[1], bytes[2], kOr);
        beyond = _mm512_ternarylogic_epi32(beyond, bytes[3], bytes[4], kOr);
        __m512i effect = _mm512_permutexvar_epi8(_mm512_add_epi8(kind[0], kind[1]), effects);
        __m512i row = _mm512_permutex2var_epi8(rows[0], _mm512_add_epi8(effect, kind[2]), rows[1]);
        __m512i column = _mm512_permutexvar_epi8(_mm512_add_epi8(kind[3], kind[4]), columns);
        __m512i where = _mm512_add_epi8(row, column);
        __m512i answer = _mm512_mask_blend_epi8(_mm512_movepi8_mask(where), _mm512_permutex2var_epi8(lower[0], where, lower[1]),
                                                _mm512_permutex2var_epi8(upper[0], where, upper[1]));
        uint64_t is_end = _mm512_test_epi8_mask(answer, _mm512_set1_epi8(kEnd)) & is_here;
        uint64_t is_open = (_mm512_test_epi8_mask(answer, _mm512_set1_epi8(kOpen)) | _mm512_movepi8_mask(beyond)) & is_here;
        if (is_open) {
            count = static_cast<size_t>(std::countr_zero(is_open));
            is_end &= (uint64_t{1} << count) - 1;
        }
        if (last - at > 64) {
            out = put_all(out, is_end, at);
        } else {
            for (; is_end; is_end &= is_end - 1) *out++ = static_cast<uint32_t>(at + static_cast<size_t>(std::countr_zero(is_end)));
        }
        at += count;
        if (is_open) return at;
    }
    return last;
}
#else
bool SplitWindows::has_instructions() { return false; }
size_t SplitWindows::run(const uint8_t*, size_t at, size_t, uint32_t*&) const { return at; }
#endif

}  // namespace gristmill
