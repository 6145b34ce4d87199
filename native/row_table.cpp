#include "row_table.hpp"

#include <algorithm>
#include <utility>

namespace gristmill {
namespace {

// Which of the stretches starts[i]..starts[i + 1] a number under the last start lies in.
size_t stretch_of(const std::vector<int64_t>& starts, int64_t number) {
    return static_cast<size_t>(std::upper_bound(starts.begin(), starts.end(), number) - starts.begin()) - 1;
}

bool is_rising_from_0(const std::vector<int64_t>& starts) {
    return !starts.empty() && starts.front() == 0 && std::is_sorted(starts.begin(), starts.end());
}

bool lies_inside(const MappedColumn& column, size_t group, size_t row_bytes) {
    auto num_rows = static_cast<size_t>(column.starts[group + 1] - column.starts[group]);
    if (column.begins[group] < 0) return false;
    auto begin = static_cast<size_t>(column.begins[group]);
    return begin <= column.content_bytes && (row_bytes == 0 || num_rows <= (column.content_bytes - begin) / row_bytes);
}

}  // namespace

RowTable::RowTable(std::vector<int64_t> starts, size_t row_bytes)
    : starts_(std::move(starts)), row_bytes_(row_bytes), columns_(starts_.size() - 1) {}

bool RowTable::put(size_t shard, MappedColumn column) {
    bool is_whole = is_rising_from_0(column.starts) && column.begins.size() + 1 == column.starts.size() &&
                    column.starts.back() == starts_[shard + 1] - starts_[shard];
    for (size_t group = 0; is_whole && group < column.begins.size(); ++group) {
        is_whole = lies_inside(column, group, row_bytes_);
    }
    if (is_whole) columns_[shard] = std::make_shared<const MappedColumn>(std::move(column));
    return is_whole;
}

std::optional<RowTable::Found> RowTable::find(int64_t row) const {
    size_t shard = stretch_of(starts_, row);
    const auto& column = columns_[shard];
    if (!column) return std::nullopt;
    row -= starts_[shard];
    size_t group = stretch_of(column->starts, row);
    auto before = static_cast<size_t>(row - column->starts[group]) * row_bytes_;
    return Found{column->content + column->begins[group] + before, column};
}

}  // namespace gristmill
