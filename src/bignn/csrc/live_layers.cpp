#include "live_layers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

#include "reweighed.h"
#include "threads.h"

namespace bignn {
namespace {

// Few rows are not worth waking a thread for.
std::size_t grain_for(std::size_t num_rows) {
    const std::size_t pieces = static_cast<std::size_t>(num_threads()) * 8;
    return std::clamp<std::size_t>(num_rows / pieces / tile_rows * tile_rows, 32, 1024);
}

bool is_by_degree(const EdgeKind& kind) {
    return kind.factor == EdgeKind::Factor::degree ||
           kind.factor == EdgeKind::Factor::source_degree;
}

// The rows that each node is read by.
std::unique_ptr<GrowingRows> transposed(const GrowingRows& rows) {
    std::vector<std::int64_t> offsets(rows.num_rows() + 1);
    for (std::size_t row = 0; row < rows.num_rows(); ++row) {
        for (const std::int32_t id : rows.ids(row)) ++offsets[static_cast<std::size_t>(id) + 1];
    }
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    std::vector<std::int64_t> next(offsets.begin(), offsets.end() - 1);
    std::vector<std::int32_t> ids(rows.num_entries());
    std::vector<float> weights(rows.is_weighted() ? rows.num_entries() : 0);
    for (std::size_t row = 0; row < rows.num_rows(); ++row) {
        const float* of_row = rows.weights(row);
        for (const std::int32_t id : rows.ids(row)) {
            const auto at = static_cast<std::size_t>(next[static_cast<std::size_t>(id)]++);
            ids[at] = static_cast<std::int32_t>(row);
            if (!weights.empty()) weights[at] = *of_row++;
        }
    }
    return std::make_unique<GrowingRows>(rows.num_rows(), offsets.data(), ids.data(),
                                         weights.empty() ? nullptr : weights.data());
}

}  // namespace

void LiveLayers::add(const LayerWeights* weights, const EdgeKind& kind) {
    states_.back().weights = weights;
    const auto same = [&](const Kind& known) { return known.kind == kind; };
    const auto found = std::find_if(kinds_.begin(), kinds_.end(), same);
    states_.back().kind = static_cast<std::size_t>(found - kinds_.begin());
    if (found == kinds_.end()) kinds_.push_back({kind, {}, {}});
    states_.emplace_back();
}

std::size_t LiveLayers::nbytes() const {
    std::size_t total = rows_.nbytes() + (readers_ ? readers_->nbytes() : 0) +
                        8 * classes_.capacity() + 4 * sums_.capacity() + 4 * marks_.capacity() +
                        is_removed_.capacity();
    for (const State& state : states_) {
        total += 8 * state.words.capacity() +
                 4 * (state.beta.capacity() + state.factor.capacity() + state.scores.capacity()) +
                 sizeof(Rounding) * state.roundings.capacity();
    }
    for (const Kind& kind : kinds_) total += 4 * kind.scale.capacity();
    return total;
}

// --- Nodes and edges ----------------------------------------------------------------------------

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
    if (last_panels_.size()) {
        sums_.resize(nodes * sums_stride_);
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

// --- Layers -------------------------------------------------------------------------------------

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
    run_in_pieces(nodes.size(), grain_for(nodes.size()), some);
}

void LiveLayers::start_marks() {
    if (++mark_ == 0) {  // after 2^32 of them
        std::fill(marks_.begin(), marks_.end(), 0);
        mark_ = 1;
    }
}

// Marks a node; false if it was.
bool LiveLayers::mark(std::int32_t node) {
    std::uint32_t& known = marks_[static_cast<std::size_t>(node)];
    if (known == mark_) return false;
    known = mark_;
    return true;
}

void LiveLayers::Changed::add(std::int32_t node, float factor, bool bits) {
    nodes.push_back(node);
    old_factor.push_back(factor);
    // A source that was not there is new however it is rounded.
    has_new_bits.push_back(bits || std::isnan(factor));
}

// Puts marked nodes in order: neighbouring rows share what they read.
LiveLayers::Nodes LiveLayers::in_order(Nodes found) const {
    if (found.size() < num_nodes() / 32) {
        std::sort(found.begin(), found.end());
        return found;
    }
    found.clear();
    for (std::size_t node = 0; node < num_nodes(); ++node) {
        if (marks_[node] == mark_) found.push_back(static_cast<std::int32_t>(node));
    }
    return found;
}

// The rows of a layer that read a source that changed, or whose own edges did, rising.
LiveLayers::Nodes LiveLayers::readers_of(std::size_t number, const Changed& changed,
                                         const Nodes& touched) {
    const State& state = states_[number];
    const Kind& kind = kinds_[state.kind];
    const bool has_loop_of_its_own = kind.kind.loops == EdgeKind::Loops::added && !has_loops_;
    const bool reads_itself = has_loop_of_its_own || state.weights->reads_bits();
    const bool has_weights = kind.kind.is_weighted && rows_.is_weighted();
    Nodes found;
    start_marks();
    const auto add = [&](std::int32_t node) {
        if (mark(node)) found.push_back(node);
    };
    for (const std::int32_t node : touched) add(node);
    for (const std::int32_t node : kind.rescaled) add(node);
    for (std::size_t c = 0; c < changed.nodes.size(); ++c) {
        const auto node = static_cast<std::size_t>(changed.nodes[c]);
        if (reads_itself) add(changed.nodes[c]);
        const auto readers = readers_->ids(node);
        if (changed.has_new_bits[c] || state.weights->attention.heads) {
            for (const std::int32_t reader : readers) add(reader);
            continue;
        }
        const float* weights = has_weights ? readers_->weights(node) : nullptr;
        for (std::size_t e = 0; e < readers.size(); ++e) {
            const Rounding& rounding = state.roundings[static_cast<std::size_t>(readers[e])];
            const float weight = weights ? weights[e] : 1.0f;
            const Reweighed q =
                reweighed(rounding.two_to_e, rounding.top, rounding.count, state.weights->edge_bits,
                          weight * changed.old_factor[c], weight * state.factor[node]);
            if (q.is_scale_new || q.before != q.after) add(readers[e]);
        }
    }
    return in_order(std::move(found));
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
    entries.roundings.push_back({.count = static_cast<std::uint32_t>(count)});
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
    rounding.two_to_e = row_weights(most, rounding.count, 1.0f, state.weights->edge_bits).two_to_e;
    rounding.top = floor_log2(most);
}

// Computes rows of a layer into where `layer` sends them, one after the other. With scales and
// shifts in `layer` already, values are the rows' sums times these.
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
        for (std::size_t n = 0; n < count; ++n) {
            entries.target_factor[n] = entries.roundings[n].two_to_e;
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

// Computes rows of a hidden layer and keeps them; returns those that are not what they were.
LiveLayers::Changed LiveLayers::run_layer(std::size_t number, const Nodes& nodes) {
    State &state = states_[number], &next = states_[number + 1];
    const std::size_t num_words = words_per_row(state.weights->num_outputs());
    const bool keeps_old = keeps_old_words(number);
    enum : std::uint8_t { same, new_factor, new_bits };
    std::vector<std::uint8_t> found(nodes.size(), same);
    std::vector<float> old_factor(nodes.size());
    std::vector<word> old_words(keeps_old ? nodes.size() * num_words : 0);
    auto some = [&](std::size_t begin, std::size_t end) {
        thread_local Entries entries;
        thread_local std::vector<word> words;
        thread_local std::vector<float> beta, factor;
        const std::size_t count = end - begin;
        const std::int32_t* rows = nodes.data() + begin;
        words.resize(count * num_words);
        beta.resize(count);
        factor.resize(count);
        Layer layer{};
        layer.out_words = words.data();
        layer.out_beta = beta.data();
        layer.out_factor = factor.data();
        compute(number, rows, count, layer, entries);
        for (std::size_t n = 0; n < count; ++n) {
            const auto node = static_cast<std::size_t>(rows[n]);
            if (!state.roundings.empty()) state.roundings[node] = entries.roundings[n];
            word* kept = next.words.data() + node * num_words;
            const word* made = words.data() + n * num_words;
            if (keeps_old) {
                std::copy(kept, kept + num_words, old_words.data() + (begin + n) * num_words);
            }
            old_factor[begin + n] = next.factor[node];
            next.beta[node] = beta[n];
            if (set_factor(number + 1, rows[n])) found[begin + n] = new_factor;
            if (std::memcmp(kept, made, num_words * sizeof(word)) != 0) {
                std::copy(made, made + num_words, kept);
                found[begin + n] = new_bits;
            }
        }
    };
    run_in_pieces(nodes.size(), grain_for(nodes.size()), some);
    Changed changed;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
        if (found[n] == same) continue;
        changed.add(nodes[n], old_factor[n], found[n] == new_bits);
        if (keeps_old) {
            const auto from = old_words.begin() + static_cast<std::ptrdiff_t>(n * num_words);
            changed.old_words.insert(changed.old_words.end(), from,
                                     from + static_cast<std::ptrdiff_t>(num_words));
        }
    }
    work_[number] = {nodes.size(), changed.nodes.size()};
    return changed;
}

// Brings every layer up to date. `changed` are sources of the first layer whose bits or factors
// are new, `touched` the rows whose edges are; with `all`, every row is computed.
std::vector<std::int64_t> LiveLayers::run_wave(Changed changed, const Nodes& touched, bool all) {
    work_.assign(num_layers(), {0, 0});
    Nodes every;
    if (all) {
        every.resize(num_nodes());
        std::iota(every.begin(), every.end(), 0);
    }
    const std::size_t last = num_layers() - 1;
    for (std::size_t number = 0; number < last; ++number) {
        score(number, changed.nodes);
        changed = run_layer(number, all ? every : readers_of(number, changed, touched));
        // Sources of which no row was computed, but whose degree is another.
        const State& next = states_[number + 1];
        for (const std::int32_t node : kinds_[next.kind].rescaled) {
            const auto at = static_cast<std::size_t>(node);
            const float before = next.factor[at];
            if (!set_factor(number + 1, node)) continue;
            changed.add(node, before, false);
            if (!keeps_old_words(number)) continue;
            const std::size_t width = words_per_row(next.weights->num_inputs);
            const auto from = next.words.begin() + static_cast<std::ptrdiff_t>(at * width);
            changed.old_words.insert(changed.old_words.end(), from,
                                     from + static_cast<std::ptrdiff_t>(width));
        }
    }
    score(last, changed.nodes);
    Nodes found;
    if (all) {
        found = run_last(every);
    } else if (!is_moving_cheaper(changed)) {
        found = run_last(readers_of(last, changed, touched));
    } else {
        Nodes computed = touched;
        const Nodes& rescaled = kinds_[states_[last].kind].rescaled;
        computed.insert(computed.end(), rescaled.begin(), rescaled.end());
        const Nodes moved = move_sums(changed, computed);
        found = run_last(computed);
        const Nodes others = finish_sums(moved);
        found.insert(found.end(), others.begin(), others.end());
        work_[last] = {computed.size() + moved.size(), found.size()};
    }
    return {found.begin(), found.end()};
}

void LiveLayers::refresh() {
    if (!readers_) readers_ = transposed(rows_);
    bind_sums();
    add_nodes(0);
    Nodes every(num_nodes());
    std::iota(every.begin(), every.end(), 0);
    rescale(every, every);
    for (const std::int32_t node : every) set_factor(0, node);
    Changed changed;
    for (const std::int32_t node : every) changed.add(node, 0, true);
    run_wave(std::move(changed), {}, true);
    is_whole_ = true;
}

std::vector<std::int64_t> LiveLayers::update(const LiveChanges& changes) {
    const std::unique_lock<std::shared_mutex> lock(mutex_);
    is_whole_ = false;  // and stays so where memory runs out on the way
    const std::size_t first = num_nodes();
    const bool was_weighted = rows_.is_weighted();
    Changed changed;
    Nodes touched, sources;
    add_nodes(changes.num_added);
    for (std::size_t n = 0; n < changes.num_added; ++n) {
        touched.push_back(static_cast<std::int32_t>(first + n));
        sources.push_back(static_cast<std::int32_t>(first + n));
    }
    change_edges(changes, touched, sources);
    // The weight of loops that nobody gave counts where there are weights.
    const auto depends = [](const Kind& kind) {
        return kind.kind.is_weighted && kind.kind.own_weight != 1.0f;
    };
    const bool all =
        was_weighted != rows_.is_weighted() && std::any_of(kinds_.begin(), kinds_.end(), depends);
    if (all) {
        touched.resize(num_nodes());
        std::iota(touched.begin(), touched.end(), 0);
        sources = touched;
    }
    rescale(touched, sources);
    State& input = states_[0];
    const std::size_t num_words = words_per_row(input.weights->num_inputs);
    for (std::size_t n = 0; n < changes.beta.size(); ++n) {
        const std::size_t node = n < changes.nodes.size()
                                     ? static_cast<std::size_t>(changes.nodes[n])
                                     : first + n - changes.nodes.size();
        word* kept = input.words.data() + node * num_words;
        const word* given = changes.words.data() + n * num_words;
        const bool differs = std::memcmp(kept, given, num_words * sizeof(word)) != 0;
        std::copy(given, given + num_words, kept);
        input.beta[node] = changes.beta[n];
        const auto id = static_cast<std::int32_t>(node);
        const float before = input.factor[node];
        if (set_factor(0, id) || differs) changed.add(id, before, differs);
    }
    for (const std::int32_t node : kinds_[input.kind].rescaled) {
        const float before = input.factor[static_cast<std::size_t>(node)];
        if (set_factor(0, node)) changed.add(node, before, false);
    }
    std::vector<std::int64_t> found = run_wave(std::move(changed), touched, all);
    // Removed nodes have no class, and lost theirs when they were removed.
    const auto is_gone = [&](std::int64_t node) { return is_removed(node); };
    found.erase(std::remove_if(found.begin(), found.end(), is_gone), found.end());
    for (const std::int64_t node : changes.removed_nodes) {
        std::uint8_t& known = is_removed_[static_cast<std::size_t>(node)];
        if (!known) found.push_back(node);
        known = 1;
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
    is_whole_ = true;
    return found;
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
    run_in_pieces(nodes.size(), grain_for(nodes.size()), some);
}

}  // namespace bignn
