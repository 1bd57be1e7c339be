// The native live graph: a graph that changes, with the bits and scales that every layer reads kept
// and brought up to date row by row.
//
// A row of a layer is a function of the bits, scales and edges it reads, computed in integers by
// the kernels of a full run. So after a change it is enough to compute the rows again that read
// something that changed, layer by layer; a row whose bits and scale come out as they were changes
// nothing further on. The state after any number of updates is that of a full run to the last bit.
//
// Two things make waves cheap. Layers round the weights of neighbours to integers, so a source
// whose scale alone changed is new to a row only if its rounded weight there is. And integer sums
// of layers after the first may be kept, where floats hold them exactly: a source that changed is
// taken off and put on again, and no other neighbour of the row is read.
//
// live_edges.cpp changes nodes and edges, live_rows.cpp computes rows, live_sums.cpp moves sums,
// and live_layers.cpp goes from layer to layer.
#pragma once

#include <cmath>
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
    // `keeps_sums`: of all layers but the first, 4 bytes per node and output.
    LiveLayers(const Kernels& kernels, GrowingRows rows, bool has_loops, bool keeps_sums,
               const std::vector<word>& words, const std::vector<float>& beta)
        : kernels_(kernels),
          rows_(std::move(rows)),
          has_loops_(has_loops),
          keeps_sums_(keeps_sums) {
        states_.emplace_back();
        states_[0].words.assign(words.begin(), words.end());
        states_[0].beta.assign(beta.begin(), beta.end());
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

    // What the last update or refresh did in each layer: rows brought up to date, those of them
    // that came out new, those whose sums were moved, and how long it took.
    struct Work {
        std::size_t rows, changed, moved;
        double seconds;
    };
    const std::vector<Work>& work() const { return work_; }

    // Bits and scales that layer `number` reads.
    const LineVector<word>& words(std::size_t number) const { return states_[number].words; }
    const LineVector<float>& beta(std::size_t number) const { return states_[number].beta; }
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

    // 1 / sqrt(degree) of a node under a kind of sum.
    float scale_of(const EdgeKind& kind, std::int32_t node) const;

    // Readers hold it shared, an update alone.
    std::shared_mutex& mutex() const { return mutex_; }

   private:
    using Nodes = std::vector<std::int32_t>;
    // How a row rounds the weights of its entries (arithmetic.h), as it was last computed. It is
    // read for every edge from a source that changed, hence small.
    struct Rounding {
        std::int16_t top = 0;   // exponent of the largest weight
        std::uint8_t bits = 0;  // of the integer weights; 0: all of them are 0
        bool has_sum = false;   // whether the row's sum is kept
        float two_to_e() const { return bits ? std::ldexp(1.0f, bits - 1 - top) : 0.0f; }
    };
    // Rows of a layer that are not what they were, as sources of the next layer; of the last layer,
    // the nodes that have another class.
    struct Changed {
        Nodes nodes;
        std::vector<float> old_factor;
        std::vector<std::uint8_t> has_new_bits;
        std::vector<word> old_words;  // [nodes, words], where the next layer keeps sums
        void add(std::int32_t node, float factor, bool bits);
        void add(const Changed& others);
    };
    // The sums of a layer's rows, and what moving them takes.
    struct Sums {
        LineVector<std::int32_t> rows;  // [nodes, stride]
        Aligned<half> panels;           // the layer's weights, in natural order
        std::size_t stride = 0;         // 0: none are kept
        std::size_t most_entries = 0;   // of a row whose sum, and every part of it, is exact
    };
    // What a layer reads of every node. The last state is that of no layer, and empty.
    struct State {
        const LayerWeights* weights = nullptr;
        std::size_t kind = 0;
        LineVector<word> words;
        LineVector<float> beta, factor;     // factor: beta times the kind's scale
        std::vector<float> scores;          // of attention: [2 heads, capacity]
        LineVector<Rounding> roundings;     // of the layer's rows; without attention
        std::vector<std::uint32_t> counts;  // entries of rows whose sums are kept
        Sums sums;
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
        std::vector<Rounding> roundings;
    };

    void start_marks();
    bool mark(std::int32_t node);
    Nodes in_order(Nodes found) const;
    bool has_loop_of_its_own(const EdgeKind& kind) const {
        return kind.loops == EdgeKind::Loops::added && !has_loops_;
    }
    bool is_last(std::size_t number) const { return number + 1 == num_layers(); }
    Nodes readers_of(std::size_t number, const Changed& changed, const Nodes& touched);
    void add_rescaled(std::size_t number, Changed& changed);
    std::vector<std::int64_t> run_wave(Changed changed, const Nodes& touched, bool all);

    // live_edges.cpp
    void add_nodes(std::size_t count);
    void change_edges(const LiveChanges& changes, Nodes& targets, Nodes& sources);
    void remove_edge(std::int32_t source, std::int32_t target);
    void add_edge(std::int32_t source, std::int32_t target, float weight);
    void rescale(const Nodes& targets, const Nodes& sources);
    bool set_factor(std::size_t number, std::int32_t node);

    // live_rows.cpp
    void score(std::size_t number, const Nodes& nodes);
    void append_row(const EdgeKind& kind, std::int32_t node, Entries& entries) const;
    static void round_row(const State& state, std::size_t begin, Entries& entries);
    void compute(std::size_t number, const std::int32_t* nodes, std::size_t count, Layer& layer,
                 Entries& entries) const;
    void compute_rows(std::size_t number, const std::int32_t* nodes, std::size_t count,
                      Changed& changed);
    Changed run_rows(std::size_t number, const Nodes& nodes);
    void keep_rows(std::size_t number, const std::int32_t* nodes, std::size_t count,
                   const word* words, const float* beta, Changed& changed);
    void keep_classes(const std::int32_t* nodes, std::size_t count, const std::int64_t* classes,
                      Changed& changed);

    // live_sums.cpp. A source that changed, and a row that reads it with a weight.
    struct Visit {
        std::int32_t row;
        std::uint32_t source;  // its place among those that changed
        std::uint16_t after, before;
    };
    // In place of a weight: the row must be computed.
    static constexpr std::uint16_t to_compute = 0xffff;
    // What moving the sums of one layer takes; its memory is kept from one to the next.
    struct Moving {
        // Products of sources with the layer's weights, as they are and as they were, in pairs
        // of bytes (SumMove in kernels.h), the first one low: [sources, stride].
        LineVector<std::uint16_t> pairs;
        std::vector<std::uint8_t> can_move;  // it was there before, and its products fit bytes
        // Visits by ranges of rows, each 2^shift long, as pieces of the sources made them.
        std::size_t num_ranges = 0, shift = 0, num_pieces = 0;
        std::vector<std::vector<Visit>> visits;  // [pieces, ranges]
    };
    void bind_sums(std::size_t number);
    std::size_t count_visits(std::size_t number, const Changed& changed) const;
    bool is_moving_cheaper(std::size_t number, std::size_t num_visits) const;
    void collect_visits(std::size_t number, const Changed& changed, std::size_t num_visits);
    void multiply(std::size_t number, const Changed& changed);
    void sort_visits(std::size_t range, std::vector<Visit>& sorted,
                     std::vector<Visit>& other) const;
    void move_range(std::size_t number, std::size_t range, Nodes& moved, Nodes& computed);
    Changed move_rows(std::size_t number, const Changed& changed, const Nodes& touched,
                      std::size_t num_visits);
    void compute_sums(std::size_t number, const std::int32_t* nodes, std::size_t count);
    void fetch_kept(std::size_t number, std::int32_t node) const;
    void finish_rows(std::size_t number, const std::int32_t* nodes, std::size_t count,
                     Changed& changed);

    const Kernels& kernels_;
    GrowingRows rows_;                      // sources of each target
    std::unique_ptr<GrowingRows> readers_;  // targets of each source
    bool has_loops_, keeps_sums_;
    std::vector<State> states_;
    std::vector<Kind> kinds_;
    std::vector<std::int64_t> classes_;
    std::vector<std::uint8_t> is_removed_;
    bool is_whole_ = false;
    std::vector<std::uint32_t> marks_;
    std::uint32_t mark_ = 0;
    std::size_t capacity_ = 0;  // nodes that scores have room for
    Moving moving_;
    std::vector<Work> work_;
    mutable std::shared_mutex mutex_;
};

// Few rows are not worth waking a thread for.
std::size_t live_grain(std::size_t num_rows);

}  // namespace bignn
