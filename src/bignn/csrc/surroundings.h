// The part of a graph that some nodes depend on. kernels/compressed_rows.py has the same in NumPy.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "sampling.h"

namespace bignn {

// Rows and all of their neighbours, rising; the rows are rising and in range.
template <class Id>
Numbers rows_and_sources(const Adjacency<Id>& graph, std::span<const std::int64_t> rows);

// Some rows of a graph side by side, with neighbours as places among `taken`.
struct TakenRows {
    Numbers offsets;
    std::vector<std::int32_t, Unwritten<std::int32_t>> ids;
    std::vector<float, Unwritten<float>> weights;  // empty without weights
    std::vector<std::int32_t, Unwritten<std::int32_t>> own_ids;
};

// Takes `rows` (rising), all of whose neighbours are in `taken` (rising), as the rows themselves
// are; throws std::invalid_argument where one is not.
template <class Id>
TakenRows take_rows(const Adjacency<Id>& graph, const float* weights,
                    std::span<const std::int64_t> rows, std::span<const std::int64_t> taken);

}  // namespace bignn
