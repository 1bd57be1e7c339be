// Compressed rows that grow and shrink: every row has room for some more entries than it has, and
// moves to the end of the list when it is full. When half of the list is unused, it is compacted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "aligned.h"

namespace bignn {

// Entries of a row are sorted by id; equal ones stay in the order they were put in.
class GrowingRows {
   public:
    // Copies rows [offsets, ids, weights], sorted; without weights (null) all are 1.
    GrowingRows(std::size_t num_rows, const std::int64_t* offsets, const std::int32_t* ids,
                const float* weights);

    std::size_t num_rows() const { return rows_.size(); }
    std::size_t num_entries() const { return num_entries_; }
    // Whether some weight is not 1.
    bool is_weighted() const { return num_weighted_ > 0; }
    std::size_t nbytes() const;

    std::span<const std::int32_t> ids(std::size_t row) const {
        return {ids_.data() + rows_[row].begin, rows_[row].size};
    }
    // Null while no weight was ever given.
    const float* weights(std::size_t row) const {
        return has_weights_ ? weights_.data() + rows_[row].begin : nullptr;
    }
    bool has(std::size_t row, std::int32_t id) const;
    // Fetch what ids() reads, and what the ids themselves are, before they are needed.
    void fetch_place(std::size_t row) const { __builtin_prefetch(&rows_[row]); }
    void fetch_ids(std::size_t row) const { __builtin_prefetch(ids_.data() + rows_[row].begin); }

    void add_rows(std::size_t count) { rows_.resize(rows_.size() + count); }
    void insert(std::size_t row, std::int32_t id, float weight);
    // Removes every entry of a row with this id; returns how many there were.
    std::size_t remove(std::size_t row, std::int32_t id);

   private:
    struct Row {
        std::size_t begin = 0;
        std::uint32_t size = 0, room = 0;
    };

    void move_to_end(Row& row);
    void compact();
    void count_weight(float weight, std::ptrdiff_t by);

    LineVector<Row> rows_;
    LineVector<std::int32_t> ids_;
    LineVector<float> weights_;  // empty unless has_weights_
    std::size_t num_entries_ = 0, num_weighted_ = 0;
    bool has_weights_ = false;
};

}  // namespace bignn
