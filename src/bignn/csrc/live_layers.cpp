#include "live_layers.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

#include "reweighed.h"
#include "threads.h"

namespace bignn {
namespace {

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
                        8 * classes_.capacity() + 4 * marks_.capacity() + is_removed_.capacity();
    for (const State& state : states_) {
        total += 8 * state.words.capacity() +
                 4 * (state.beta.capacity() + state.factor.capacity() + state.scores.capacity() +
                      state.sums.rows.capacity()) +
                 sizeof(Rounding) * state.roundings.capacity() + 4 * state.counts.capacity();
    }
    for (const Kind& kind : kinds_) total += 4 * kind.scale.capacity();
    for (const auto& list : moving_.visits) total += sizeof(Visit) * list.capacity();
    total += 2 * moving_.pairs.capacity() + moving_.can_move.capacity();
    return total;
}

void LiveLayers::Changed::add(std::int32_t node, float factor, bool bits) {
    nodes.push_back(node);
    old_factor.push_back(factor);
    // A source that was not there is new however it is rounded.
    has_new_bits.push_back(bits || std::isnan(factor));
}

void LiveLayers::Changed::add(const Changed& others) {
    const auto append = [](auto& to, const auto& from) {
        to.insert(to.end(), from.begin(), from.end());
    };
    append(nodes, others.nodes);
    append(old_factor, others.old_factor);
    append(has_new_bits, others.has_new_bits);
    append(old_words, others.old_words);
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
    const bool reads_itself = has_loop_of_its_own(kind.kind) || state.weights->reads_bits();
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
        if (state.weights->attention.heads) {
            for (const std::int32_t reader : readers) add(reader);
            continue;
        }
        const float* weights = has_weights ? readers_->weights(node) : nullptr;
        for (std::size_t e = 0; e < readers.size(); ++e) {
            const Rounding& rounding = state.roundings[static_cast<std::size_t>(readers[e])];
            const float weight = weights ? weights[e] : 1.0f;
            const Reweighed q =
                reweighed(rounding.top, rounding.bits, weight * changed.old_factor[c],
                          weight * state.factor[node]);
            if (is_new_to_row(q, changed.has_new_bits[c])) add(readers[e]);
        }
    }
    return in_order(std::move(found));
}

// Adds the sources of a layer of which no row was computed, but whose degree is another.
void LiveLayers::add_rescaled(std::size_t number, Changed& changed) {
    const State& state = states_[number];
    const std::size_t width = words_per_row(state.weights->num_inputs);
    for (const std::int32_t node : kinds_[state.kind].rescaled) {
        const auto at = static_cast<std::size_t>(node);
        const float before = state.factor[at];
        if (!set_factor(number, node)) continue;
        changed.add(node, before, false);
        if (!state.sums.stride) continue;
        const word* words = state.words.data() + at * width;
        changed.old_words.insert(changed.old_words.end(), words, words + width);
    }
}

// Brings every layer up to date. `changed` are sources of the first layer whose bits or factors
// are new, `touched` the rows whose edges are; with `all`, every row is computed.
std::vector<std::int64_t> LiveLayers::run_wave(Changed changed, const Nodes& touched, bool all) {
    work_.assign(num_layers(), {});
    Nodes every;
    if (all) {
        every.resize(num_nodes());
        std::iota(every.begin(), every.end(), 0);
    }
    for (std::size_t number = 0; number < num_layers(); ++number) {
        const auto start = std::chrono::steady_clock::now();
        if (number) add_rescaled(number, changed);
        score(number, changed.nodes);
        const std::size_t num_visits = all ? 0 : count_visits(number, changed);
        if (all) {
            changed = run_rows(number, every);
        } else if (is_moving_cheaper(number, num_visits)) {
            changed = move_rows(number, changed, touched, num_visits);
        } else {
            changed = run_rows(number, readers_of(number, changed, touched));
        }
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        work_[number].seconds = taken.count();
    }
    return {changed.nodes.begin(), changed.nodes.end()};
}

void LiveLayers::refresh() {
    if (!readers_) readers_ = transposed(rows_);
    for (std::size_t number = 0; number < num_layers(); ++number) bind_sums(number);
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

}  // namespace bignn
