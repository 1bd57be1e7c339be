// The native live graph: a graph that changes, with the bits and scales that every layer reads kept
// and brought up to date row by row.
//
// A row of a layer is a function of the bits, scales and edges it reads, computed in integers by
// the kernels of a full run. So after a change it is enough to compute the rows again that read
// something that changed, layer by layer; a row whose bits and scale come out as they were changes
// nothing further on. The state after any number of updates is that of a full run to the last bit.
#pragma once

#include <memory>
#include <shared_mutex>
#include <vector>

#include "growing_rows.h"
#include "layer_weights.h"

namespace bignn {

// What a layer's sum is taken over (kernels/edge_kinds.py has the definitions).
struct EdgeKind {
    enum class Loops { added, given, removed } loops;
    enum class Factor { none, mean, degree, source_degree } factor;
    bool is_weighted;
    float own_weight;  // of an added self-loop where edges have weights
    bool operator==(const EdgeKind&) const = default;
};

// One batch of changes, in the order in which they are made. Numbers are checked by the caller.
struct LiveChanges {
    std::size_t num_added = 0;  // new nodes, whose features follow those of `nodes`
    std::vector<std::int64_t> nodes;
    std::vector<word> words;  // [nodes and new nodes, words of the inputs]
    std::vector<float> beta;
    std::vector<std::int64_t> removed_sources, removed_targets;  // edges, every copy of each
    std::vector<std::int64_t> added_sources, added_targets;
    std::vector<float> added_weights;         // empty: all 1
    std::vector<std::int64_t> removed_nodes;  // lose all their edges, and have no answer
};

class LiveLayers {
   public:
    static constexpr std::int64_t no_class = -1;

    // `has_loops`: every node is once its own neighbour, whatever edges are given or removed.
    LiveLayers(const Kernels& kernels, GrowingRows rows, bool has_loops, std::vector<word> words,
               std::vector<float> beta)
        : kernels_(kernels), rows_(std::move(rows)), has_loops_(has_loops) {
        states_.emplace_back();
        states_[0].words = std::move(words);
        states_[0].beta = std::move(beta);
    }

    void add(const LayerWeights* weights, const EdgeKind& kind);
    // Computes all rows of all layers; comes after the last add.
    void refresh();
    // Makes changes; returns the nodes whose class is another, rising.
    std::vector<std::int64_t> update(const LiveChanges& changes);

    std::size_t num_nodes() const { return rows_.num_rows(); }
    std::size_t num_layers() const { return states_.size() - 1; }
    std::size_t nbytes() const;
    const GrowingRows& rows() const { return rows_; }

    // What the last update or refresh did in each layer: rows computed, and rows that came out new.
    struct Work {
        std::size_t rows, changed;
    };
    const std::vector<Work>& work() const { return work_; }

    // Bits and scales that layer `number` reads.
    const std::vector<word>& words(std::size_t number) const { return states_[number].words; }
    const std::vector<float>& beta(std::size_t number) const { return states_[number].beta; }
    // A node's class, or no_class of a removed one.
    std::int64_t class_of(std::int64_t node) const {
        return is_removed(node) ? no_class : classes_[static_cast<std::size_t>(node)];
    }
    bool is_removed(std::int64_t node) const {
        return is_removed_[static_cast<std::size_t>(node)] != 0;
    }
    // False before the first run, and after an update that failed half way.
    bool is_whole() const { return is_whole_; }
    // Computes the last layer's values of some nodes; those of removed ones are NaN.
    void values_of(const std::vector<std::int32_t>& nodes, float* values) const;

    // Readers hold it shared, an update alone.
    std::shared_mutex& mutex() const { return mutex_; }

   private:
    using Nodes = std::vector<std::int32_t>;
    // What a layer reads of every node. The last state is that of no layer, and empty.
    struct State {
        const LayerWeights* weights = nullptr;
        std::size_t kind = 0;
        std::vector<word> words;
        std::vector<float> beta, factor;  // factor: beta times the kind's scale
        std::vector<float> scores;        // of attention: [2 heads, capacity]
    };
    // A kind of sum that layers share, and the nodes' degree scales under it (empty: all 1).
    struct Kind {
        EdgeKind kind;
        std::vector<float> scale;
        Nodes rescaled;  // nodes whose scale the update changed
    };
    // The entries of some rows side by side, as a kernel reads them.
    struct Entries {
        std::vector<std::int64_t> offsets;
        std::vector<std::int32_t> ids;
        std::vector<float> weights, target_factor;
    };

    void add_nodes(std::size_t count);
    void change_edges(const LiveChanges& changes, Nodes& targets, Nodes& sources);
    void remove_edge(std::int32_t source, std::int32_t target);
    void add_edge(std::int32_t source, std::int32_t target, float weight);
    float scale_of(const EdgeKind& kind, std::int32_t node) const;
    void rescale(const Nodes& targets, const Nodes& sources);
    bool set_factor(std::size_t number, std::int32_t node);
    void score(std::size_t number, const Nodes& nodes);
    std::vector<std::int64_t> run_wave(Nodes changed, const Nodes& touched, bool all);
    Nodes readers_of(std::size_t number, const Nodes& changed, const Nodes& touched);
    void append_row(const EdgeKind& kind, std::int32_t node, Entries& entries) const;
    void compute(std::size_t number, const std::int32_t* nodes, std::size_t count, Layer& layer,
                 Entries& entries) const;
    Nodes run_layer(std::size_t number, const Nodes& nodes);
    bool mark(std::int32_t node);
    void start_marks();

    const Kernels& kernels_;
    GrowingRows rows_;                      // sources of each target
    std::unique_ptr<GrowingRows> readers_;  // targets of each source
    bool has_loops_;
    std::vector<State> states_;
    std::vector<Kind> kinds_;
    std::vector<std::int64_t> classes_;
    std::vector<std::uint8_t> is_removed_;
    bool is_whole_ = false;
    std::vector<std::uint32_t> marks_;
    std::uint32_t mark_ = 0;
    std::size_t capacity_ = 0;  // nodes that scores have room for
    std::vector<Work> work_;
    mutable std::shared_mutex mutex_;
};

}  // namespace bignn
