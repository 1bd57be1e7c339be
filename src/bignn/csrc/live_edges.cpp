// The nodes and edges of a live graph, and the scales that follow from them.
#include <algorithm>
#include <cmath>

#include "arithmetic.h"
#include "live_layers.h"

namespace bignn {
namespace {

bool is_by_degree(const EdgeKind& kind) {
    return kind.factor == EdgeKind::Factor::degree ||
           kind.factor == EdgeKind::Factor::source_degree;
}

}  // namespace

// Gives every array a place per node; what new places hold is computed later.
void LiveLayers::add_nodes(std::size_t count) {
    if (count) {
        const std::size_t first = num_nodes();
        rows_.add_rows(count);
        readers_->add_rows(count);
        if (has_loops_) {
            for (std::size_t node = first; node < first + count; ++node) {
                const auto id = static_cast<std::int32_t>(node);
                rows_.insert(node, id, 1.0f);
                readers_->insert(node, id, 1.0f);
            }
        }
    }
    const std::size_t nodes = num_nodes();
    const std::size_t before = capacity_;
    if (nodes > capacity_) capacity_ = std::max(nodes, before + before / 4);
    for (std::size_t number = 0; number < num_layers(); ++number) {
        State& state = states_[number];
        state.words.resize(nodes * words_per_row(state.weights->num_inputs));
        // No scale is NaN, so a new node is taken for one that changed.
        state.beta.resize(nodes, std::nanf(""));
        state.factor.resize(nodes, std::nanf(""));
        if (!state.weights->attention.heads) state.roundings.resize(nodes);
        state.sums.rows.resize(nodes * state.sums.stride);
        if (state.sums.stride) state.counts.resize(nodes);
        const std::size_t count_of_scores = 2 * state.weights->attention.heads;
        if (count_of_scores == 0 || capacity_ == before) continue;
        std::vector<float> scores(count_of_scores * capacity_);
        for (std::size_t n = 0; n < count_of_scores && before; ++n) {
            std::copy_n(state.scores.data() + n * before, before, scores.data() + n * capacity_);
        }
        state.scores = std::move(scores);
    }
    for (Kind& kind : kinds_) {
        if (is_by_degree(kind.kind)) kind.scale.resize(nodes, std::nanf(""));
    }
    classes_.resize(nodes, no_class);
    is_removed_.resize(nodes, 0);
    marks_.resize(nodes, 0);
}

// A node's own loop stays where every node has one: taken away, its weight is 1 again.
void LiveLayers::remove_edge(std::int32_t source, std::int32_t target) {
    rows_.remove(static_cast<std::size_t>(target), source);
    readers_->remove(static_cast<std::size_t>(source), target);
    if (has_loops_ && source == target) add_edge(source, target, 1.0f);
}

void LiveLayers::add_edge(std::int32_t source, std::int32_t target, float weight) {
    if (has_loops_ && source == target) {
        rows_.remove(static_cast<std::size_t>(target), source);
        readers_->remove(static_cast<std::size_t>(source), target);
    }
    rows_.insert(static_cast<std::size_t>(target), source, weight);
    readers_->insert(static_cast<std::size_t>(source), target, weight);
}

// Changes edges; collects the nodes whose incoming and outgoing ones are others now.
void LiveLayers::change_edges(const LiveChanges& changes, Nodes& targets, Nodes& sources) {
    const auto note = [&](std::int32_t source, std::int32_t target) {
        targets.push_back(target);
        sources.push_back(source);
    };
    for (std::size_t e = 0; e < changes.removed_sources.size(); ++e) {
        const auto source = static_cast<std::int32_t>(changes.removed_sources[e]);
        const auto target = static_cast<std::int32_t>(changes.removed_targets[e]);
        remove_edge(source, target);
        note(source, target);
    }
    for (std::size_t e = 0; e < changes.added_sources.size(); ++e) {
        const auto source = static_cast<std::int32_t>(changes.added_sources[e]);
        const auto target = static_cast<std::int32_t>(changes.added_targets[e]);
        add_edge(source, target, changes.added_weights.empty() ? 1.0f : changes.added_weights[e]);
        note(source, target);
    }
    for (const std::int64_t number : changes.removed_nodes) {
        const auto node = static_cast<std::int32_t>(number);
        const auto row = static_cast<std::size_t>(number);
        const Nodes from(rows_.ids(row).begin(), rows_.ids(row).end());
        const Nodes to(readers_->ids(row).begin(), readers_->ids(row).end());
        for (const std::int32_t source : from) {
            remove_edge(source, node);
            note(source, node);
        }
        for (const std::int32_t target : to) {
            remove_edge(node, target);
            note(node, target);
        }
    }
}

// 1 / sqrt(degree), the sum in double, a node's own loop last; 0 for degree 0.
float LiveLayers::scale_of(const EdgeKind& kind, std::int32_t node) const {
    const bool by_sources = kind.factor == EdgeKind::Factor::source_degree;
    const GrowingRows& rows = by_sources ? *readers_ : rows_;
    const auto ids = rows.ids(static_cast<std::size_t>(node));
    const float* weights =
        kind.is_weighted ? rows.weights(static_cast<std::size_t>(node)) : nullptr;
    const bool has_weights = kind.is_weighted && rows_.is_weighted();
    double degree = 0, own = has_weights ? kind.own_weight : 1.0;
    for (std::size_t e = 0; e < ids.size(); ++e) {
        const double weight = weights ? weights[e] : 1.0;
        if (ids[e] == node && kind.loops != EdgeKind::Loops::given) {
            own = weight;
        } else {
            degree += weight;
        }
    }
    if (kind.loops == EdgeKind::Loops::added) degree += own;
    return degree > 0 ? static_cast<float>(1.0 / std::sqrt(degree)) : 0.0f;
}

void LiveLayers::rescale(const Nodes& targets, const Nodes& sources) {
    for (Kind& kind : kinds_) {
        kind.rescaled.clear();
        if (!is_by_degree(kind.kind)) continue;
        const bool by_sources = kind.kind.factor == EdgeKind::Factor::source_degree;
        for (const std::int32_t node : by_sources ? sources : targets) {
            const float scale = scale_of(kind.kind, node);
            float& known = kind.scale[static_cast<std::size_t>(node)];
            if (scale == known) continue;
            known = scale;
            kind.rescaled.push_back(node);
        }
    }
}

// Sets a source's factor from its scale; false if it is what it was.
bool LiveLayers::set_factor(std::size_t number, std::int32_t node) {
    State& state = states_[number];
    const auto at = static_cast<std::size_t>(node);
    const std::vector<float>& scale = kinds_[state.kind].scale;
    const float factor = bounded(scale.empty() ? state.beta[at] : scale[at] * state.beta[at]);
    if (factor == state.factor[at]) return false;
    state.factor[at] = factor;
    return true;
}

}  // namespace bignn
