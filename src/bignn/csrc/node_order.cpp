#include "node_order.h"

#include <algorithm>
#include <numeric>

namespace bignn {
namespace {

using Node = std::int32_t;
constexpr Node none = -1;

struct Edge {
    Node to;
    std::int64_t count;
};

// Groups of nodes as trees: a group is named after its root, the node that was merged last.
class Groups {
   public:
    explicit Groups(std::size_t num_nodes)
        : above_(num_nodes), child_(num_nodes, none), sibling_(num_nodes, none) {
        std::iota(above_.begin(), above_.end(), 0);
    }

    // The root of a node's group. Paths are halved on the way, which the result does not depend on.
    Node root(Node node) {
        while (above_[node] != node) {
            above_[node] = above_[above_[node]];
            node = above_[node];
        }
        return node;
    }

    void merge(Node group, Node into) {
        above_[group] = into;
        sibling_[group] = child_[into];
        child_[into] = group;
    }

    // The groups merged into a node, the last one first.
    template <class Function>
    void for_children(Node node, Function&& function) const {
        for (Node child = child_[node]; child != none; child = sibling_[child]) function(child);
    }

   private:
    std::vector<Node> above_, child_, sibling_;
};

std::vector<Node> by_degree(const Adjacency<Node>& graph) {
    std::vector<Node> nodes(graph.num_nodes);
    std::iota(nodes.begin(), nodes.end(), 0);
    auto degree = [&](Node node) { return graph.offsets[node + 1] - graph.offsets[node]; };
    std::stable_sort(nodes.begin(), nodes.end(),
                     [&](Node a, Node b) { return degree(a) < degree(b); });
    return nodes;
}

}  // namespace

Numbers locality_order(const Adjacency<std::int32_t>& graph) {
    const std::size_t num_nodes = graph.num_nodes;
    const auto total = static_cast<double>(graph.offsets[num_nodes]);
    Groups groups(num_nodes);
    // Ends of edges in each group: whole numbers, exact in doubles.
    std::vector<double> ends(num_nodes);
    for (std::size_t v = 0; v < num_nodes; ++v) {
        ends[v] = static_cast<double>(graph.offsets[v + 1] - graph.offsets[v]);
    }
    std::vector<std::vector<Edge>> kept(num_nodes);  // edges of groups whose turn has been
    std::vector<std::int64_t> counts(num_nodes);     // all 0 between turns
    std::vector<Node> found, roots;
    for (const Node node : by_degree(graph)) {
        found.clear();
        auto add = [&](Node to, std::int64_t count) {
            const Node group = groups.root(to);
            if (group == node) return;
            if (counts[group] == 0) found.push_back(group);
            counts[group] += count;
        };
        for (std::int64_t e = graph.offsets[node]; e < graph.offsets[node + 1]; ++e) {
            add(graph.ids[e], 1);
        }
        groups.for_children(node, [&](Node child) {
            for (const Edge& edge : kept[child]) add(edge.to, edge.count);
            std::vector<Edge>().swap(kept[child]);
        });
        Node best = none;
        double most = 0;
        kept[node].reserve(found.size());
        for (const Node group : found) {
            const double gain =
                static_cast<double>(counts[group]) - ends[node] * ends[group] / total;
            if (gain > most) {
                most = gain;
                best = group;
            }
            kept[node].push_back({group, counts[group]});
            counts[group] = 0;
        }
        if (best == none) {
            roots.push_back(node);
        } else {
            groups.merge(node, best);
            ends[best] += ends[node];
        }
    }
    Numbers order;
    order.reserve(num_nodes);
    std::vector<Node> open;
    for (const Node root : roots) {
        open.push_back(root);
        while (!open.empty()) {
            const Node node = open.back();
            open.pop_back();
            order.push_back(node);
            groups.for_children(node, [&](Node child) { open.push_back(child); });
        }
    }
    return order;
}

}  // namespace bignn
