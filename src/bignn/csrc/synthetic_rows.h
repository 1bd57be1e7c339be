// Rows of a synthetic graph, each a hash of its number, so that any range can be made by itself.
// runtime/store/synthetic.py describes the graph.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bignn {

struct SyntheticGraph {
    std::uint64_t seed;
    std::uint64_t num_nodes;  // below 2^31
    std::uint64_t num_classes;
    // Node i has the slot (multiplier * i + shift) mod num_nodes; `inverse` undoes the multiplier.
    std::uint64_t multiplier, inverse, shift;
    double mean_degree;
    std::int64_t most_neighbours;
    std::uint64_t own_class_share;  // of 2^32: neighbours of the node's own class
    float strength;                 // of a class's centre, in standard deviations of the noise

    std::uint64_t slot(std::uint64_t node) const { return (multiplier * node + shift) % num_nodes; }
    std::uint64_t node(std::uint64_t slot) const {
        return inverse * ((slot + num_nodes - shift) % num_nodes) % num_nodes;
    }
    std::uint64_t class_of(std::uint64_t node) const { return slot(node) % num_classes; }
};

// Classes of the nodes [begin, end).
void synthetic_classes(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                       std::int16_t* classes);

// Offsets [end - begin + 1] of as many neighbours as are drawn for the nodes [begin, end).
void synthetic_degrees(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                       std::int64_t* offsets);

// Draws them, in rows that begin where the offsets say, rising; repeated ones and the nodes
// themselves are left out, rows are moved together and offsets set anew. Returns the last one.
std::int64_t synthetic_neighbours(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                                  std::int64_t* offsets, std::int32_t* ids);

// Features of the nodes [begin, end), [end - begin, num_features].
void synthetic_features(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                        std::size_t num_features, float* x);

}  // namespace bignn
