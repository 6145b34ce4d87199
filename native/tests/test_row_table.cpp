// Rows found in mapped columns against a plain list of them, on contents of exact size.
#include "row_table.hpp"

#include <cstdio>
#include <cstring>
#include <random>

namespace {

using namespace gristmill;
using Bytes = std::vector<uint8_t>;

int num_failures = 0;

void check(bool is_right, const char* claim) {
    if (is_right) return;
    std::fprintf(stderr, "failed: %s\n", claim);
    ++num_failures;
}

std::mt19937 chance(11);

int64_t below(int64_t limit) { return static_cast<int64_t>(chance() % static_cast<uint64_t>(limit)); }

MappedColumn column_over(std::shared_ptr<Bytes> content, std::vector<int64_t> starts, std::vector<int64_t> begins) {
    return {content->data(), content->size(), std::move(starts), std::move(begins), content};
}

// A shard of groups that lie anywhere in its content, some of them empty; the last one ends where the content does.
MappedColumn make_column(int64_t num_rows, size_t row_bytes, std::vector<Bytes>& expected) {
    auto content = std::make_shared<Bytes>();
    std::vector<int64_t> starts{0}, begins;
    while (starts.back() < num_rows || below(3) == 0) {
        int64_t size = below(num_rows - starts.back() + 1);
        content->insert(content->end(), static_cast<size_t>(below(5)), uint8_t{0});
        begins.push_back(static_cast<int64_t>(content->size()));
        starts.push_back(starts.back() + size);
        for (; size > 0; --size) {
            Bytes row(row_bytes);
            for (uint8_t& byte : row) byte = static_cast<uint8_t>(below(256));
            content->insert(content->end(), row.begin(), row.end());
            expected.push_back(row);
        }
    }
    content->shrink_to_fit();
    return column_over(content, starts, begins);
}

void check_find(size_t row_bytes) {
    std::vector<int64_t> starts{0};
    std::vector<Bytes> expected;
    std::vector<MappedColumn> columns;
    for (int64_t shards = 1 + below(5); shards > 0; --shards) {
        int64_t num_rows = below(4) ? below(20) : 0;
        columns.push_back(make_column(num_rows, row_bytes, expected));
        starts.push_back(starts.back() + num_rows);
    }
    RowTable table(starts, row_bytes);
    for (int64_t row = 0; row < table.num_rows(); ++row) check(!table.find(row), "a shard that was not put is not found");
    for (size_t shard = 0; shard < columns.size(); ++shard) check(table.put(shard, columns[shard]), "a whole column is put");
    for (int64_t row = 0; row < table.num_rows(); ++row) {
        auto found = table.find(row);
        check(found && std::memcmp(found->row, expected[static_cast<size_t>(row)].data(), row_bytes) == 0, "a row is itself");
    }
}

void check_refusals() {
    auto content = std::make_shared<Bytes>(30);
    RowTable table({0, 3}, 10);
    check(table.put(0, column_over(content, {0, 3}, {0})), "rows to the end of the content");
    check(!table.put(0, column_over(content, {0, 3}, {1})), "a byte too many");
    check(!table.put(0, column_over(content, {0, 3}, {-1})), "before the content");
    check(!table.put(0, column_over(content, {0, 3}, {31})), "after the content");
    check(!table.put(0, column_over(content, {0, 3}, {INT64_MAX})), "far after the content");
    check(!table.put(0, column_over(content, {0, 2}, {0})), "a row too few");
    check(!table.put(0, column_over(content, {0, 4, 3}, {0, 0})), "groups that go back");
    check(!table.put(0, column_over(content, {1, 3}, {0})), "rows that do not begin with the first");
    check(!table.put(0, column_over(content, {0, 3}, {})), "a group that lies nowhere");
    check(!table.put(0, column_over(content, {}, {})), "no groups");
    check(table.find(2).has_value(), "what was refused has changed nothing");
}

void check_owner() {
    auto content = std::make_shared<Bytes>(10);
    RowTable table({0, 1}, 10);
    table.put(0, column_over(content, {0, 1}, {0}));
    auto found = table.find(0);
    table.drop(0);
    check(!table.find(0), "what was dropped is not found");
    check(content.use_count() == 2, "what was found is held");
    found.reset();
    check(content.use_count() == 1, "and then let go");
}

}  // namespace

int main() {
    for (int round = 0; round < 300; ++round) check_find(static_cast<size_t>(1 + below(9)));
    check_refusals();
    check_owner();
    return num_failures ? 1 : 0;
}
