// Where the rows of a run lie in mapped shards, and many of them copied side by side at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace gristmill {

// A column of the rows of a shard, of one size each: rows starts[g]..starts[g + 1] of it lie one after the other from
// byte begins[g] of the content on. Nothing need be aligned.
struct MappedColumn {
    const uint8_t* content = nullptr;
    size_t content_bytes = 0;
    std::vector<int64_t> starts;
    std::vector<int64_t> begins;
    std::shared_ptr<const void> owner;  // of the content
};

class RowTable {
public:
    // Shard s has rows starts[s]..starts[s + 1] of the run. `starts` begins with 0 and does not fall.
    RowTable(std::vector<int64_t> starts, size_t row_bytes);

    size_t num_shards() const { return columns_.size(); }
    int64_t num_rows() const { return starts_.back(); }
    size_t row_bytes() const { return row_bytes_; }

    // False: the column has not the rows of this shard, or not all of them lie inside the content; nothing is changed.
    bool put(size_t shard, MappedColumn column);
    void drop(size_t shard) { columns_[shard] = nullptr; }

    struct Found {
        const uint8_t* row;
        std::shared_ptr<const MappedColumn> column;  // holds what the row lies in
    };
    // Nothing where the shard has not been put. `row` is one of the run.
    std::optional<Found> find(int64_t row) const;

private:
    std::vector<int64_t> starts_;
    size_t row_bytes_;
    std::vector<std::shared_ptr<const MappedColumn>> columns_;
};

}  // namespace gristmill
