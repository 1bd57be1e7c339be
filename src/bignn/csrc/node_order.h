// An order of a graph's nodes in which neighbours are near each other.
#pragma once

#include "sampling.h"

namespace bignn {

// Gives the nodes in an order in which those with many common edges follow each other, so that
// what rows gather is more often in a cache. kernels/node_order.py explains it and has the same in
// Python, equal to the last node. Every edge must be in both of its rows.
Numbers locality_order(const Adjacency<std::int32_t>& graph);

}  // namespace bignn
