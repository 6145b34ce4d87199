// Laying out, planning and gathering against slow twins, on buffers of exact size.
#include "pack.hpp"

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

namespace {

using namespace gristmill;
using Numbers = std::vector<int64_t>;

int num_failures = 0;

void check(bool is_right, const char* claim) {
    if (is_right) return;
    std::fprintf(stderr, "failed: %s\n", claim);
    ++num_failures;
}

std::mt19937 chance(7);

int64_t below(int64_t limit) { return static_cast<int64_t>(chance() % static_cast<uint64_t>(limit)); }

// Laying out

template <typename Id>
void check_lay_out(int64_t bos, int64_t eos) {
    std::vector<uint32_t> ids;
    Numbers offsets{0};
    std::vector<Id> expected;
    Numbers expected_offsets{0};
    for (int64_t count = below(20); count > 0; --count) {
        if (bos != kNone) expected.push_back(static_cast<Id>(bos));
        for (int64_t size = below(70); size > 0; --size) {
            ids.push_back(static_cast<uint32_t>(below(0x10000)));
            expected.push_back(static_cast<Id>(ids.back()));
        }
        if (eos != kNone) expected.push_back(static_cast<Id>(eos));
        offsets.push_back(static_cast<int64_t>(ids.size()));
        expected_offsets.push_back(static_cast<int64_t>(expected.size()));
    }
    std::vector<Id> out(expected.size());
    Numbers out_offsets(offsets.size());
    auto run = [&] {
        return lay_out(ids.data(), offsets.data(), offsets.size() - 1, bos, eos, out.data(), out_offsets.data());
    };
    check(run() && out == expected && out_offsets == expected_offsets, "documents are laid out with bos and eos");
    if (ids.empty()) return;
    ids[static_cast<size_t>(below(static_cast<int64_t>(ids.size())))] = 0x10000;
    check(run() == (sizeof(Id) == 4), "an id that is too large is told");
}

// Planning

struct SlowPool {
    const Numbers& lengths;
    Numbers pieces;  // in the order they came

    int64_t num_tokens() const {
        int64_t sum = 0;
        for (int64_t piece : pieces) sum += lengths[static_cast<size_t>(piece)];
        return sum;
    }
    Numbers fill_row(int64_t room) {
        Numbers row;
        while (true) {
            auto best = pieces.end();
            for (auto at = pieces.begin(); at != pieces.end(); ++at) {
                int64_t length = lengths[static_cast<size_t>(*at)];
                if (length <= room && (best == pieces.end() || length > lengths[static_cast<size_t>(*best)])) best = at;
            }
            if (best == pieces.end()) return row;
            room -= lengths[static_cast<size_t>(*best)];
            row.push_back(*best);
            pieces.erase(best);
        }
    }
};

std::vector<Numbers> rows_of(const RowPlan& plan) {
    std::vector<Numbers> rows;
    for (size_t r = 0; r + 1 < plan.row_offsets.size(); ++r) {
        rows.emplace_back(plan.picks.begin() + plan.row_offsets[r], plan.picks.begin() + plan.row_offsets[r + 1]);
    }
    return rows;
}

void check_plan_rows(const Numbers& lengths, int64_t row_length, PoolLimits limits) {
    SlowPool pool{lengths, {}};
    std::vector<Numbers> expected;
    for (size_t piece = 0; piece < lengths.size(); ++piece) {
        if (lengths[piece] == row_length) {
            expected.push_back({static_cast<int64_t>(piece)});
            continue;
        }
        pool.pieces.push_back(static_cast<int64_t>(piece));
        while (static_cast<int64_t>(pool.pieces.size()) > limits.num_pieces || pool.num_tokens() > limits.num_tokens) {
            expected.push_back(pool.fill_row(row_length));
        }
    }
    RowPlan plan = plan_rows(lengths, 0, row_length, limits);
    check(rows_of(plan) == expected && plan.left == pool.pieces, "rows are planned as the slow pool does");
}

void check_plan_rest(const Numbers& lengths, int64_t row_length, int64_t least_tokens) {
    SlowPool pool{lengths, {}};
    for (size_t piece = 0; piece < lengths.size(); ++piece) pool.pieces.push_back(static_cast<int64_t>(piece));
    std::vector<Numbers> expected;
    Numbers left;
    while (!pool.pieces.empty()) {
        int64_t before = pool.num_tokens();
        Numbers row = pool.fill_row(row_length);
        if (before - pool.num_tokens() >= least_tokens) {
            expected.push_back(row);
        } else {
            left.insert(left.end(), row.begin(), row.end());
        }
    }
    std::sort(left.begin(), left.end());
    RowPlan plan = plan_rest(lengths, row_length, least_tokens);
    check(rows_of(plan) == expected && plan.left == left, "the rest is planned as the slow pool does");
}

void check_plans(int64_t row_length, int64_t longest) {
    Numbers lengths;
    for (int64_t count = below(60); count > 0; --count) {
        lengths.push_back(below(4) == 0 ? row_length - below(std::min<int64_t>(row_length, 3)) : 1 + below(longest));
    }
    check_plan_rows(lengths, row_length, {1 + below(12), below(2) ? 2 * row_length : row_length * 100});
    check_plan_rest(lengths, row_length, below(2) ? 0 : row_length - row_length / 8);
}

// Gathering

template <typename Id>
void check_gather(int64_t row_length) {
    std::vector<Id> first(static_cast<size_t>(below(50))), second(static_cast<size_t>(below(50)) + 1);
    for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<Id>(i + 1);
    for (size_t i = 0; i < second.size(); ++i) second[i] = static_cast<Id>(i + 1000);
    auto first_size = static_cast<int64_t>(first.size()), second_size = static_cast<int64_t>(second.size());
    Numbers begins, lengths, row_offsets{0};
    std::vector<Id> expected;
    for (int64_t rows = below(8); rows > 0; --rows) {
        int64_t room = row_length;
        while (room > 0 && below(5) > 0) {
            int64_t begin = below(first_size + second_size);
            int64_t end = begin < first_size ? first_size : first_size + second_size;
            begins.push_back(begin);
            lengths.push_back(1 + below(std::min(room, end - begin)));
            room -= lengths.back();
            for (int64_t at = begin; at < begin + lengths.back(); ++at) {
                expected.push_back(at < first_size ? first[static_cast<size_t>(at)]
                                                   : second[static_cast<size_t>(at - first_size)]);
            }
        }
        expected.insert(expected.end(), static_cast<size_t>(room), Id{9});
        row_offsets.push_back(static_cast<int64_t>(begins.size()));
    }
    std::vector<Id> out(expected.size());
    gather_rows<Id>({first.data(), first_size, second.data()},
                    {begins.data(), lengths.data(), row_offsets.data(), row_offsets.size() - 1, row_length}, Id{9}, out.data());
    check(out == expected, "rows hold their pieces, then padding");
}

}  // namespace

int main() {
    for (int round = 0; round < 300; ++round) {
        int64_t bos = below(3) - 1, eos = below(3) - 1;
        check_lay_out<uint16_t>(bos, eos);
        check_lay_out<uint32_t>(bos, eos);
        // One, two, three and four levels of the set of lengths, and the borders between them.
        for (int64_t row_length : {1, 2, 63, 64, 65, 200, 4095, 4096, 4097, 300000}) check_plans(row_length, row_length);
        check_plans(4097, 70);
        check_gather<uint16_t>(1 + below(40));
        check_gather<uint32_t>(1 + below(40));
    }
    check_plans(1 << 24, 1 << 24);
    return num_failures ? 1 : 0;
}
