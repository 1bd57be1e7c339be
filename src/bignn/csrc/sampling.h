// Random pieces of a graph. kernels/sampling_reference.py has the same in NumPy, equal to the last
// element.
//
// Every random number is a hash of (seed, node or walk, draw), so that no result depends on how
// work is divided among threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace bignn {

// An allocator with which resize leaves new items unwritten: results are as large as a cache, or
// larger, and are written once.
template <class T>
struct Unwritten : std::allocator<T> {
    template <class U>
    struct rebind {
        using other = Unwritten<U>;
    };
    template <class U>
    void construct(U* at) {
        ::new (static_cast<void*>(at)) U;
    }
    template <class U, class Value>
    void construct(U* at, Value&& value) {
        ::new (static_cast<void*>(at)) U(static_cast<Value&&>(value));
    }
};
using Numbers = std::vector<std::int64_t, Unwritten<std::int64_t>>;

// Row v has the neighbours ids[offsets[v] .. offsets[v + 1]). `numbers` are the edges' numbers as
// the caller counts them; null when that is their place. Fewer than 2^31 nodes.
template <class Id>
struct Adjacency {
    const std::int64_t* offsets;
    const Id* ids;
    const std::int64_t* numbers;
    std::size_t num_nodes;
};

// SampledEdges between nodes that have been numbered anew, from 0.
struct SampledEdges {
    Numbers sources;  // the neighbours
    Numbers targets;  // the rows
    Numbers numbers;
};

struct Neighbourhood {
    Numbers nodes;  // in the order they were found in
    SampledEdges edges;
    std::vector<std::int64_t> nodes_per_hop;  // the seeds first
    std::vector<std::int64_t> edges_per_hop;
};

// Each hop draws fanouts[hop] neighbours (all if negative) of every node that the hop before found.
// Draw k of node v is random_word(random_word(seed, v), k): a node is expanded once.
template <class Id>
Neighbourhood sample_neighbours(const Adjacency<Id>& graph, std::span<const std::int64_t> seeds,
                                std::span<const std::int64_t> fanouts, bool replace,
                                std::uint64_t seed);

// walks[w] = roots[w] and `length` neighbours, each of the one before; stays where there is none.
// Step s of walk w takes random_word(random_word(seed, w), s).
template <class Id>
void random_walks(const Adjacency<Id>& graph, std::span<const std::int64_t> roots,
                  std::size_t length, std::uint64_t seed, std::int64_t* walks);

// The edges whose row is among `rows` and whose neighbour is among `columns` (unique), row by row.
template <class Id>
SampledEdges edges_between(const Adjacency<Id>& graph, std::span<const std::int64_t> rows,
                           std::span<const std::int64_t> columns);

// Sorts edges by row, stably: where each row begins [num_nodes + 1], its neighbours, their numbers.
void sort_edges(std::span<const std::int64_t> rows, std::span<const std::int64_t> columns,
                std::span<std::int64_t> offsets, std::int32_t* ids, std::int64_t* numbers);

}  // namespace bignn
