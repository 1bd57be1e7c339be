// The two halves of an external sort of edges by target: edges go to buckets of targets, and a
// bucket that fits memory becomes compressed rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace bignn {

// An edge in a bucket's file; targets count from the bucket's first row.
struct BucketEdge {
    std::int32_t source;
    std::uint32_t target;
};

// Counts the edges of each bucket of 2^shift targets: counts[target >> shift]. Returns the number
// of the first edge with an end outside of [0, num_nodes), or -1.
template <class Id>
std::int64_t count_buckets(std::span<const Id> sources, std::span<const Id> targets,
                           std::int64_t num_nodes, int shift, std::span<std::int64_t> counts);

// Puts edges into their buckets, side by side in `out` in the order given; `places` has where each
// bucket begins, and in the end where it ends.
template <class Id>
void fill_buckets(std::span<const Id> sources, std::span<const Id> targets, int shift,
                  std::span<std::int64_t> places, BucketEdge* out);

// Sorts a bucket's edges into rows: ids of row i, rising, from offsets[i] on. With `merges`
// repeated edges become one. Returns the number of ids.
std::int64_t sort_bucket(std::span<const BucketEdge> edges, std::span<std::int64_t> offsets,
                         std::int32_t* ids, bool merges);

}  // namespace bignn
