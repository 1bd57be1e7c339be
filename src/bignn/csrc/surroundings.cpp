#include "surroundings.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace bignn {
namespace {

using Node = std::int64_t;

std::size_t count_entries(const std::int64_t* offsets, std::span<const Node> rows) {
    std::size_t count = 0;
    for (const Node row : rows) count += static_cast<std::size_t>(offsets[row + 1] - offsets[row]);
    return count;
}

// The place of a node among rising ones: by a table of all nodes where many are looked up, else by
// bisection, so that few nodes of a huge graph do not pay for its size.
class Places {
   public:
    Places(std::span<const Node> rising, std::size_t num_nodes, std::size_t lookups)
        : rising_(rising) {
        const auto steps = static_cast<std::size_t>(std::bit_width(rising.size()));
        if (num_nodes >= 4 * lookups * steps) return;
        table_.resize(num_nodes);
        for (std::size_t place = 0; place < rising.size(); ++place) {
            table_[static_cast<std::size_t>(rising[place])] = static_cast<std::int32_t>(place);
        }
    }

    std::int32_t operator()(Node node) const {
        std::size_t place;
        if (table_.empty()) {
            const auto found = std::lower_bound(rising_.begin(), rising_.end(), node);
            place = static_cast<std::size_t>(found - rising_.begin());
        } else {
            place = static_cast<std::size_t>(table_[static_cast<std::size_t>(node)]);
        }
        if (place >= rising_.size() || rising_[place] != node) {
            throw std::invalid_argument("a neighbour is not among the nodes taken");
        }
        return static_cast<std::int32_t>(place);
    }

   private:
    std::span<const Node> rising_;
    std::vector<std::int32_t> table_;
};

}  // namespace

template <class Id>
Numbers rows_and_sources(const Adjacency<Id>& graph, std::span<const Node> rows) {
    const std::size_t count = count_entries(graph.offsets, rows) + rows.size();
    const auto for_each = [&](auto add) {
        for (const Node row : rows) {
            add(row);
            for (std::int64_t e = graph.offsets[row]; e < graph.offsets[row + 1]; ++e) {
                add(static_cast<Node>(graph.ids[e]));
            }
        }
    };
    Numbers found;
    if (graph.num_nodes >= 512 * count) {
        found.reserve(count);
        for_each([&](Node node) { found.push_back(node); });
        std::sort(found.begin(), found.end());
        found.erase(std::unique(found.begin(), found.end()), found.end());
        return found;
    }
    std::vector<std::uint64_t> is_there((graph.num_nodes + 63) / 64);
    for_each([&](Node node) {
        is_there[static_cast<std::size_t>(node) / 64] |= std::uint64_t{1} << (node % 64);
    });
    std::size_t size = 0;
    for (const std::uint64_t some : is_there) size += static_cast<std::size_t>(std::popcount(some));
    found.resize(size);
    Node* to = found.data();
    for (std::size_t w = 0; w < is_there.size(); ++w) {
        for (std::uint64_t some = is_there[w]; some; some &= some - 1) {
            *to++ = static_cast<Node>(64 * w) + std::countr_zero(some);
        }
    }
    return found;
}

template <class Id>
TakenRows take_rows(const Adjacency<Id>& graph, const float* weights, std::span<const Node> rows,
                    std::span<const Node> taken) {
    const std::size_t count = count_entries(graph.offsets, rows);
    const Places place(taken, graph.num_nodes, count + rows.size());
    TakenRows made;
    made.offsets.resize(rows.size() + 1);
    made.ids.resize(count);
    if (weights) made.weights.resize(count);
    made.own_ids.resize(rows.size());
    std::size_t at = 0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
        made.offsets[r] = static_cast<std::int64_t>(at);
        made.own_ids[r] = place(rows[r]);
        for (std::int64_t e = graph.offsets[rows[r]]; e < graph.offsets[rows[r] + 1]; ++e, ++at) {
            made.ids[at] = place(static_cast<Node>(graph.ids[e]));
            if (weights) made.weights[at] = weights[e];
        }
    }
    made.offsets[rows.size()] = static_cast<std::int64_t>(at);
    return made;
}

template Numbers rows_and_sources(const Adjacency<std::int32_t>&, std::span<const Node>);
template Numbers rows_and_sources(const Adjacency<std::int64_t>&, std::span<const Node>);
template TakenRows take_rows(const Adjacency<std::int32_t>&, const float*, std::span<const Node>,
                             std::span<const Node>);
template TakenRows take_rows(const Adjacency<std::int64_t>&, const float*, std::span<const Node>,
                             std::span<const Node>);

}  // namespace bignn
