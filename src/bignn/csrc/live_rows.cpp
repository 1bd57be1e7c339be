// Rows of a live graph's layers, computed from the sources they read by the kernels of a full run.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "arithmetic.h"
#include "live_layers.h"
#include "threads.h"

namespace bignn {

std::size_t live_grain(std::size_t num_rows) {
    const std::size_t pieces = static_cast<std::size_t>(num_threads()) * 8;
    return std::clamp<std::size_t>(num_rows / pieces / tile_rows * tile_rows, 32, 1024);
}

// Scores the bits of some sources for attention.
void LiveLayers::score(std::size_t number, const Nodes& nodes) {
    State& state = states_[number];
    const AttentionWeights& attention = state.weights->attention;
    if (!attention.heads) return;
    const Scores scores = {
        .words = state.words.data(),
        .num_rows = capacity_,
        .num_bits = state.weights->num_inputs,
        .count = 2 * attention.heads,
        .values = attention.values.data(),
        .sigma = attention.sigma.data(),
        .factor = state.factor.data(),
        .out = state.scores.data(),
    };
    auto some = [&](std::size_t begin, std::size_t end) {
        for (std::size_t n = begin; n < end; ++n) {
            const auto node = static_cast<std::size_t>(nodes[n]);
            kernels_.score_rows(scores, node, node + 1);
        }
    };
    run_in_pieces(nodes.size(), live_grain(nodes.size()), some);
}

// Adds a node's entries, with self-loops as the kind takes them.
void LiveLayers::append_row(const EdgeKind& kind, std::int32_t node, Entries& entries) const {
    const auto row = static_cast<std::size_t>(node);
    const auto ids = rows_.ids(row);
    const bool has_weights = kind.is_weighted && rows_.is_weighted();
    const float* weights = has_weights ? rows_.weights(row) : nullptr;
    const std::size_t before = entries.ids.size();
    if (kind.loops == EdgeKind::Loops::given ||
        (kind.loops == EdgeKind::Loops::added && has_loops_)) {
        entries.ids.insert(entries.ids.end(), ids.begin(), ids.end());
        if (weights) entries.weights.insert(entries.weights.end(), weights, weights + ids.size());
    } else {
        float own = kind.own_weight;
        for (std::size_t e = 0; e < ids.size(); ++e) {
            if (ids[e] == node) {
                if (weights) own = weights[e];
                continue;
            }
            entries.ids.push_back(ids[e]);
            if (weights) entries.weights.push_back(weights[e]);
        }
        if (kind.loops == EdgeKind::Loops::added) {
            entries.ids.push_back(node);
            if (weights) entries.weights.push_back(own);
        }
    }
    const std::size_t count = entries.ids.size() - before;
    entries.offsets.push_back(static_cast<std::int64_t>(entries.ids.size()));
    entries.roundings.emplace_back();
    entries.target_factor.push_back(kind.factor == EdgeKind::Factor::mean
                                        ? 1.0f / static_cast<float>(std::max<std::size_t>(1, count))
                                        : 1.0f);
}

// Notes how the last row appended rounds its weights.
void LiveLayers::round_row(const State& state, std::size_t begin, Entries& entries) {
    if (state.weights->attention.heads) return;
    float most = 0;
    for (std::size_t e = begin; e < entries.ids.size(); ++e) {
        const float factor = state.factor[static_cast<std::size_t>(entries.ids[e])];
        most =
            std::max(most, entries.weights.empty() ? factor : bounded(entries.weights[e] * factor));
    }
    Rounding& rounding = entries.roundings.back();
    const std::size_t count = entries.ids.size() - begin;
    const RowWeights made = row_weights(most, count, 1.0f, state.weights->edge_bits);
    if (made.two_to_e > 0) rounding.bits = static_cast<std::uint8_t>(std::bit_width(made.limit));
    rounding.top = static_cast<std::int16_t>(floor_log2(most));
}

// Computes rows of a layer into where `layer` sends them, one after the other. With scales and
// shifts in `layer` already, values are the sums over the rows' neighbours, times these.
void LiveLayers::compute(std::size_t number, const std::int32_t* nodes, std::size_t count,
                         Layer& layer, Entries& entries) const {
    const State& state = states_[number];
    const LayerWeights& weights = *state.weights;
    const Kind& kind = kinds_[state.kind];
    entries.offsets.assign(1, 0);
    entries.ids.clear();
    entries.weights.clear();
    entries.target_factor.clear();
    entries.roundings.clear();
    for (std::size_t n = 0; n < count; ++n) {
        const std::size_t begin = entries.ids.size();
        append_row(kind.kind, nodes[n], entries);
        round_row(state, begin, entries);
        if (!kind.scale.empty()) {
            entries.target_factor.back() = kind.scale[static_cast<std::size_t>(nodes[n])];
        }
    }
    const bool is_sum = layer.scale != nullptr;  // the caller's own scales
    const float *scale = layer.scale, *shift = layer.shift;
    weights.set(layer);
    if (is_sum) {
        layer.scale = scale;
        layer.shift = shift;
        layer.own = {};
        for (std::size_t n = 0; n < count; ++n) {
            entries.target_factor[n] = entries.roundings[n].two_to_e();
        }
    }
    layer.way = Way::bits;
    layer.edges = {
        .offsets = entries.offsets.data(),
        .ids = entries.ids.data(),
        .long_ids = nullptr,
        .weights = entries.weights.empty() ? nullptr : entries.weights.data(),
        .source_factor = state.factor.data(),
        .target_factor = entries.target_factor.data(),
        .num_rows = count,
    };
    layer.words = state.words.data();
    const LayerWeights::ProductForm& product = weights.product_form(kernels_);
    layer.product = product.bytes.data();
    if (weights.reads_bits()) layer.own_ids = nodes;
    if (weights.attention.heads) {
        layer.attention = {
            .heads = weights.attention.heads,
            .channels = weights.channels(),
            .averages = weights.attention.averages,
            .slope = weights.attention.slope,
            .source = state.scores.data(),
            .target = state.scores.data() + weights.attention.heads * capacity_,
            .num_sources = capacity_,
            .product_stride = product.stride,
        };
    }
    kernels_.layer_rows(layer, 0, count, thread_scratch(kernels_.scratch_bytes(layer)));
}

// Keeps the bits and scales of rows of a hidden layer, and adds those that are not what they were.
void LiveLayers::keep_rows(std::size_t number, const std::int32_t* nodes, std::size_t count,
                           const word* words, const float* beta, Changed& changed) {
    State& next = states_[number + 1];
    const std::size_t num_words = words_per_row(next.weights->num_inputs);
    for (std::size_t n = 0; n < count; ++n) {
        const auto node = static_cast<std::size_t>(nodes[n]);
        word* kept = next.words.data() + node * num_words;
        const word* made = words + n * num_words;
        const float old_factor = next.factor[node];
        next.beta[node] = beta[n];
        const bool has_new_factor = set_factor(number + 1, nodes[n]);
        const bool has_new_bits = std::memcmp(kept, made, num_words * sizeof(word)) != 0;
        if (!has_new_factor && !has_new_bits) continue;
        changed.add(nodes[n], old_factor, has_new_bits);
        if (next.sums.stride) {
            changed.old_words.insert(changed.old_words.end(), kept, kept + num_words);
        }
        std::copy_n(made, num_words, kept);
    }
}

// Keeps classes, and adds the nodes that had another.
void LiveLayers::keep_classes(const std::int32_t* nodes, std::size_t count,
                              const std::int64_t* classes, Changed& changed) {
    for (std::size_t n = 0; n < count; ++n) {
        std::int64_t& known = classes_[static_cast<std::size_t>(nodes[n])];
        if (known != classes[n]) changed.nodes.push_back(nodes[n]);
        known = classes[n];
    }
}

// Computes rows and keeps them.
void LiveLayers::compute_rows(std::size_t number, const std::int32_t* nodes, std::size_t count,
                              Changed& changed) {
    State& state = states_[number];
    Nodes others;
    if (state.sums.stride) {
        const auto has_sum = [&](std::int32_t node) {
            const std::size_t entries = rows_.ids(static_cast<std::size_t>(node)).size();
            return entries + 1 <= state.sums.most_entries;
        };
        Nodes summed;
        for (std::size_t n = 0; n < count; ++n) {
            (has_sum(nodes[n]) ? summed : others).push_back(nodes[n]);
        }
        compute_sums(number, summed.data(), summed.size());
        finish_rows(number, summed.data(), summed.size(), changed);
        nodes = others.data();
        count = others.size();
        if (count == 0) return;
    }
    thread_local Entries entries;
    thread_local std::vector<word> words;
    thread_local std::vector<float> beta, factor;
    thread_local std::vector<std::int64_t> classes;
    Layer layer{};
    if (is_last(number)) {
        classes.resize(count);
        layer.classes = classes.data();
    } else {
        words.resize(count * words_per_row(state.weights->num_outputs()));
        beta.resize(count);
        factor.resize(count);
        layer.out_words = words.data();
        layer.out_beta = beta.data();
        layer.out_factor = factor.data();
    }
    compute(number, nodes, count, layer, entries);
    for (std::size_t n = 0; n < count && !state.roundings.empty(); ++n) {
        state.roundings[static_cast<std::size_t>(nodes[n])] = entries.roundings[n];
    }
    if (is_last(number)) {
        keep_classes(nodes, count, classes.data(), changed);
    } else {
        keep_rows(number, nodes, count, words.data(), beta.data(), changed);
    }
}

LiveLayers::Changed LiveLayers::run_rows(std::size_t number, const Nodes& nodes) {
    const std::size_t grain = live_grain(nodes.size());
    std::vector<Changed> parts((nodes.size() + grain - 1) / grain);
    auto some = [&](std::size_t begin, std::size_t end) {
        compute_rows(number, nodes.data() + begin, end - begin, parts[begin / grain]);
    };
    run_in_pieces(nodes.size(), grain, some);
    Changed changed;
    for (const Changed& part : parts) changed.add(part);
    work_[number] = {nodes.size(), changed.nodes.size(), 0, 0};
    return changed;
}

void LiveLayers::values_of(const std::vector<std::int32_t>& nodes, float* values) const {
    const std::size_t last = num_layers() - 1, width = states_[last].weights->num_outputs();
    auto some = [&](std::size_t begin, std::size_t end) {
        thread_local Entries entries;
        Layer layer{};
        layer.values = values + begin * width;
        compute(last, nodes.data() + begin, end - begin, layer, entries);
        for (std::size_t n = begin; n < end; ++n) {
            if (is_removed(nodes[n])) std::fill_n(values + n * width, width, std::nanf(""));
        }
    };
    run_in_pieces(nodes.size(), live_grain(nodes.size()), some);
}

}  // namespace bignn
