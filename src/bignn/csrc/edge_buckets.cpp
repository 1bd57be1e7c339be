#include "edge_buckets.h"

#include <algorithm>
#include <vector>

#include "threads.h"

namespace bignn {

template <class Id>
std::int64_t count_buckets(std::span<const Id> sources, std::span<const Id> targets,
                           std::int64_t num_nodes, int shift, std::span<std::int64_t> counts) {
    const auto bound = static_cast<std::uint64_t>(num_nodes);
    for (std::size_t e = 0; e < sources.size(); ++e) {
        // Numbers below 0 are large ones without a sign.
        const auto source = static_cast<std::uint64_t>(static_cast<std::int64_t>(sources[e]));
        const auto target = static_cast<std::uint64_t>(static_cast<std::int64_t>(targets[e]));
        if (source >= bound || target >= bound) return static_cast<std::int64_t>(e);
        ++counts[static_cast<std::size_t>(target >> shift)];
    }
    return -1;
}

template <class Id>
void fill_buckets(std::span<const Id> sources, std::span<const Id> targets, int shift,
                  std::span<std::int64_t> places, BucketEdge* out) {
    const std::uint64_t mask = (std::uint64_t{1} << shift) - 1;
    for (std::size_t e = 0; e < sources.size(); ++e) {
        const auto target = static_cast<std::uint64_t>(targets[e]);
        out[places[static_cast<std::size_t>(target >> shift)]++] = {
            static_cast<std::int32_t>(sources[e]), static_cast<std::uint32_t>(target & mask)};
    }
}

std::int64_t sort_bucket(std::span<const BucketEdge> edges, std::span<std::int64_t> offsets,
                         std::int32_t* ids, bool merges) {
    const std::size_t num_rows = offsets.size() - 1;
    std::fill(offsets.begin(), offsets.end(), 0);
    for (const auto& edge : edges) ++offsets[edge.target + 1];
    for (std::size_t i = 1; i <= num_rows; ++i) offsets[i] += offsets[i - 1];
    std::vector<std::int64_t> next(offsets.begin(), offsets.end() - 1);
    for (const auto& edge : edges) ids[next[edge.target]++] = edge.source;
    auto sort_rows = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) std::sort(ids + offsets[i], ids + offsets[i + 1]);
    };
    run_in_pieces(num_rows, 1024, sort_rows);
    if (!merges) return offsets[num_rows];
    std::int64_t kept = 0, begin = 0;
    for (std::size_t i = 0; i < num_rows; ++i) {
        const std::int64_t end = offsets[i + 1];
        std::int32_t* last = std::unique(ids + begin, ids + end);
        offsets[i] = kept;
        kept = std::copy(ids + begin, last, ids + kept) - ids;
        begin = end;
    }
    offsets[num_rows] = kept;
    return kept;
}

#define BIGNN_BUCKETS_OF(Id)                                                             \
    template std::int64_t count_buckets<Id>(std::span<const Id>, std::span<const Id>,    \
                                            std::int64_t, int, std::span<std::int64_t>); \
    template void fill_buckets<Id>(std::span<const Id>, std::span<const Id>, int,        \
                                   std::span<std::int64_t>, BucketEdge*);
BIGNN_BUCKETS_OF(std::int32_t)
BIGNN_BUCKETS_OF(std::int64_t)

}  // namespace bignn
