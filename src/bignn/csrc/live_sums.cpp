// Kept sums of a live graph's layers: a source that changed is taken off the sums of the rows that
// read it, and put on again.
//
// Work is done in three steps. The sources' products with the layer's weights, as they were and as
// they are, are taken once for all readers. Visits, a source and a row that reads it, are shared
// out by ranges of rows, whose sums fit a cache. Then ranges are taken one by one: their visits are
// sorted, so that memory is walked in order, sums are moved, and the rows that they belong to are
// ended while they are near.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "live_layers.h"
#include "reweighed.h"
#include "threads.h"

namespace bignn {
namespace {

// Whole numbers below this are exact as floats, in which kernels hand out sums.
constexpr std::size_t exact_floats = (std::size_t{1} << 24) - 1;
// Weights of more bits are not moved (SumMove in kernels.h).
constexpr int most_moved_bits = 15;
// Visits that are worth a range of their own, and ranges at most.
constexpr std::size_t visits_of_range = 4096, most_ranges = 256;
// Memory of more visits than these is given back.
constexpr std::size_t most_kept_visits = std::size_t{1} << 20;
// Sources that are multiplied at a time, and rows that are ended.
constexpr std::size_t sources_at_once = 16;
constexpr std::size_t rows_at_once = 256;

// Digits that visits are sorted by at a time.
constexpr std::size_t most_digits = 11;
// Cache lines that are fetched before they are needed.
constexpr std::size_t lines_ahead = 96;

}  // namespace

// Decides whether a layer keeps its sums, and lays out its weights for single products. Few of the
// first layer's rows change, and its sums would take as much memory as those of any other.
void LiveLayers::bind_sums(std::size_t number) {
    State& state = states_[number];
    const LayerWeights& weights = *state.weights;
    if (!keeps_sums_ || number == 0 || weights.attention.heads) return;
    const std::size_t most = exact_floats / (weights.num_inputs << weights.edge_bits);
    if (most < few || weights.edge_bits > most_moved_bits) return;
    std::vector<std::size_t> order(weights.num_columns());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t width = words_per_row(weights.num_inputs);
    const std::size_t padded = (order.size() + panel_width - 1) / panel_width * panel_width;
    state.sums.most_entries = most;
    state.sums.stride = padded;  // whole cache lines
    state.sums.panels = Aligned<half>(padded * 2 * width);
    fill_panels(weights.words.data(), order.size(), width, order.data(), order.size(),
                state.sums.panels.data());
}

// Visits of sources that changed, were their rows' sums moved.
std::size_t LiveLayers::count_visits(std::size_t number, const Changed& changed) const {
    if (!states_[number].sums.stride) return 0;
    std::size_t visits = 0;
    for (const std::int32_t node : changed.nodes) {
        visits += readers_->ids(static_cast<std::size_t>(node)).size();
    }
    return visits;
}

// Whether moving takes less than computing the rows: a visit costs some more than reading a
// neighbour, but only sources that changed are visited.
bool LiveLayers::is_moving_cheaper(std::size_t number, std::size_t num_visits) const {
    return states_[number].sums.stride && 4 * num_visits < 3 * rows_.num_entries();
}

void LiveLayers::collect_visits(std::size_t number, const Changed& changed,
                                std::size_t num_visits) {
    const State& state = states_[number];
    const Kind& kind = kinds_[state.kind];
    const bool has_weights = kind.kind.is_weighted && rows_.is_weighted();
    const bool has_loops = kind.kind.loops != EdgeKind::Loops::removed;
    const bool reads_bits = state.weights->reads_bits();
    const std::size_t sources = changed.nodes.size();
    const std::size_t wanted =
        std::clamp<std::size_t>(num_visits / visits_of_range, 1, most_ranges);
    const std::size_t length = std::bit_ceil((num_nodes() + wanted - 1) / wanted);
    moving_.shift = static_cast<std::size_t>(std::countr_zero(length));
    moving_.num_ranges = (num_nodes() + length - 1) / length;
    const std::size_t most_pieces =
        num_visits < visits_of_range ? 1 : static_cast<std::size_t>(num_threads()) * 4;
    const std::size_t grain = std::max<std::size_t>(1, (sources + most_pieces - 1) / most_pieces);
    moving_.num_pieces = (sources + grain - 1) / grain;
    const std::size_t lists = moving_.num_pieces * moving_.num_ranges;
    if (moving_.visits.size() < lists) moving_.visits.resize(lists);
    for (std::size_t list = 0; list < lists; ++list) moving_.visits[list].clear();
    auto some = [&](std::size_t begin, std::size_t end) {
        std::vector<Visit>* mine = moving_.visits.data() + begin / grain * moving_.num_ranges;
        const auto add = [&](const Visit& visit) {
            mine[static_cast<std::size_t>(visit.row) >> moving_.shift].push_back(visit);
        };
        for (std::size_t c = begin; c < end; ++c) {
            if (c + 16 < end)
                readers_->fetch_place(static_cast<std::size_t>(changed.nodes[c + 16]));
            if (c + 8 < end) readers_->fetch_ids(static_cast<std::size_t>(changed.nodes[c + 8]));
            const std::int32_t node = changed.nodes[c];
            const auto source = static_cast<std::uint32_t>(c);
            const auto readers = readers_->ids(static_cast<std::size_t>(node));
            const float* weights =
                has_weights ? readers_->weights(static_cast<std::size_t>(node)) : nullptr;
            const float before = changed.old_factor[c];
            const float after = state.factor[static_cast<std::size_t>(node)];
            const bool has_new_bits = changed.has_new_bits[c], can_move = moving_.can_move[c];
            for (std::size_t e = 0; e < readers.size(); ++e) {
                if (e + 8 < readers.size()) {
                    __builtin_prefetch(&state.roundings[static_cast<std::size_t>(readers[e + 8])]);
                }
                const std::int32_t row = readers[e];
                if (row == node && !has_loops) continue;
                const Rounding& rounding = state.roundings[static_cast<std::size_t>(row)];
                const float weight = weights ? weights[e] : 1.0f;
                const Reweighed q =
                    reweighed(rounding.top, rounding.bits, weight * before, weight * after);
                if (!is_new_to_row(q, has_new_bits)) continue;
                if (q.is_scale_new || !rounding.has_sum || !can_move) {
                    add({row, source, to_compute, to_compute});
                } else {
                    add({row, source, static_cast<std::uint16_t>(q.after),
                         static_cast<std::uint16_t>(q.before)});
                }
            }
            // A row that reads its own bits is ended anew, though nothing is added to its sum.
            if (reads_bits) add({node, source, 0, 0});
        }
    };
    run_in_pieces(sources, grain, some);
}

// Multiplies the sources that changed by the layer's weights, as they are and as they were.
void LiveLayers::multiply(std::size_t number, const Changed& changed) {
    const State& state = states_[number];
    const std::size_t columns = state.weights->num_columns(), stride = state.sums.stride;
    const std::size_t bits = state.weights->num_inputs, width = words_per_row(bits);
    const auto odd = static_cast<std::int32_t>(bits & 1);  // as all products are, if bits is
    const std::size_t count = changed.nodes.size(), size = count * stride;
    if (moving_.pairs.size() < size) moving_.pairs.resize(size + size / 4);
    moving_.can_move.resize(count);
    auto some = [&](std::size_t begin, std::size_t end) {
        std::vector<word> rows(2 * sources_at_once * width);
        std::vector<std::int32_t> dots(2 * sources_at_once * columns);
        for (std::size_t first = begin; first < end; first += sources_at_once) {
            const std::size_t sources = std::min(sources_at_once, end - first);
            for (std::size_t n = 0; n < sources; ++n) {
                const auto node = static_cast<std::size_t>(changed.nodes[first + n]);
                word* to = rows.data() + 2 * n * width;
                std::copy_n(state.words.data() + node * width, width, to);
                std::copy_n(changed.old_words.data() + (first + n) * width, width, to + width);
            }
            kernels_.xnor_rows(rows.data(), state.sums.panels.data(), 0, 2 * sources, columns, bits,
                               dots.data());
            for (std::size_t n = 0; n < sources; ++n) {
                const std::int32_t* now = dots.data() + 2 * n * columns;
                const std::int32_t* before = now + columns;
                std::uint16_t* pairs = moving_.pairs.data() + (first + n) * stride;
                std::uint32_t over = 0;  // what does not fit a byte
                for (std::size_t k = 0; k < columns; ++k) {
                    const std::int32_t a = (now[k] - odd) >> 1, b = (before[k] - odd) >> 1;
                    over |= static_cast<std::uint32_t>((a + 128) | (b + 128));
                    pairs[k] = static_cast<std::uint16_t>((a & 255) | b << 8);
                }
                moving_.can_move[first + n] =
                    over < 256 && !std::isnan(changed.old_factor[first + n]);
            }
        }
    };
    run_in_pieces(count, live_grain(count), some);
}

// Sorts the visits of a range by rows, some binary digits at a time.
void LiveLayers::sort_visits(std::size_t range, std::vector<Visit>& sorted,
                             std::vector<Visit>& other) const {
    const std::size_t passes =
        std::max<std::size_t>(1, (moving_.shift + most_digits - 1) / most_digits);
    const std::size_t digits = (moving_.shift + passes - 1) / passes;
    for (std::size_t pass = 0; pass < passes; ++pass) {
        std::uint32_t places[std::size_t{1} << most_digits] = {};
        const std::size_t mask = (std::size_t{1} << digits) - 1;
        const auto digit = [&](const Visit& visit) {
            return static_cast<std::size_t>(visit.row) >> pass * digits & mask;
        };
        // The first time, visits are taken from where they were collected.
        const auto for_each = [&](auto use) {
            const std::size_t lists = pass == 0 ? moving_.num_pieces : 1;
            for (std::size_t list = 0; list < lists; ++list) {
                const std::vector<Visit>& from =
                    pass == 0 ? moving_.visits[list * moving_.num_ranges + range] : sorted;
                for (const Visit& visit : from) use(visit);
            }
        };
        for_each([&](const Visit& visit) { ++places[digit(visit)]; });
        const std::size_t count = std::reduce(places, places + mask + 1, std::size_t{0});
        std::exclusive_scan(places, places + mask + 1, places, std::uint32_t{0});
        other.resize(count);
        for_each([&](const Visit& visit) { other[places[digit(visit)]++] = visit; });
        sorted.swap(other);
    }
}

// Moves the sums of a range's rows. Rows whose sums are right then are added to `moved`, those that
// must be computed to `computed`, each once and rising.
void LiveLayers::move_range(std::size_t number, std::size_t range, Nodes& moved, Nodes& computed) {
    State& state = states_[number];
    const std::size_t stride = state.sums.stride;
    const auto odd = static_cast<std::int32_t>(state.weights->num_inputs & 1);
    thread_local std::vector<Visit> sorted, other;
    sort_visits(range, sorted, other);
    const std::vector<Visit>& visits = sorted;
    std::vector<SumMove> moves;
    const std::size_t distance = std::max<std::size_t>(2, lines_ahead / (stride / 8));
    std::size_t fetched = 0;
    std::int32_t last_fetched = -1;
    const auto fetch = [&](const Visit& visit) {
        const std::int32_t* sums =
            state.sums.rows.data() + static_cast<std::size_t>(visit.row) * stride;
        const std::size_t of_sums = visit.row == last_fetched ? 0 : stride;
        for (std::size_t k = 0; k < of_sums; k += 16) __builtin_prefetch(sums + k, 1);
        last_fetched = visit.row;
        const std::uint16_t* pairs = moving_.pairs.data() + visit.source * stride;
        for (std::size_t k = 0; k < stride; k += 32) __builtin_prefetch(pairs + k);
    };
    for (std::size_t begin = 0, end = 0; begin < visits.size(); begin = end) {
        const std::int32_t row = visits[begin].row;
        bool is_computed = marks_[static_cast<std::size_t>(row)] == mark_;
        const bool is_known = is_computed;
        moves.clear();
        for (; end < visits.size() && visits[end].row == row; ++end) {
            const Visit& visit = visits[end];
            is_computed = is_computed || visit.after == to_compute;
            moves.push_back(
                {reinterpret_cast<const std::int8_t*>(moving_.pairs.data() + visit.source * stride),
                 visit.after, visit.before});
        }
        for (; fetched < std::min(end + distance, visits.size()); ++fetched) fetch(visits[fetched]);
        if (!is_computed) {
            moved.push_back(row);
            kernels_.move_sums(state.sums.rows.data() + static_cast<std::size_t>(row) * stride,
                               stride, moves.data(), moves.size(), odd);
        } else if (!is_known) {
            computed.push_back(row);
        }
    }
}

// Brings a layer up to date by moving the sums of rows that read sources that changed. Rows that
// round otherwise now, or whose edges are others (`touched`), are computed.
LiveLayers::Changed LiveLayers::move_rows(std::size_t number, const Changed& changed,
                                          const Nodes& touched, std::size_t num_visits) {
    const Kind& kind = kinds_[states_[number].kind];
    multiply(number, changed);
    collect_visits(number, changed, num_visits);
    start_marks();
    Nodes computed;
    const auto compute_first = [&](std::int32_t node) {
        if (mark(node)) computed.push_back(node);
    };
    for (const std::int32_t node : touched) compute_first(node);
    for (const std::int32_t node : kind.rescaled) compute_first(node);
    if (has_loop_of_its_own(kind.kind)) {
        for (const std::int32_t node : changed.nodes) compute_first(node);
    }
    std::vector<Changed> parts(moving_.num_ranges);
    std::vector<Nodes> computed_parts(moving_.num_ranges);
    std::vector<std::size_t> num_moved(moving_.num_ranges);
    auto some = [&](std::size_t begin, std::size_t end) {
        thread_local Nodes moved;
        for (std::size_t range = begin; range < end; ++range) {
            moved.clear();
            move_range(number, range, moved, computed_parts[range]);
            finish_rows(number, moved.data(), moved.size(), parts[range]);
            num_moved[range] = moved.size();
        }
    };
    run_in_pieces(moving_.num_ranges, 1, some);
    for (const Nodes& part : computed_parts) {
        computed.insert(computed.end(), part.begin(), part.end());
    }
    std::sort(computed.begin(), computed.end());
    if (num_visits > most_kept_visits) moving_ = {};
    Changed found = run_rows(number, computed);
    for (const Changed& part : parts) found.add(part);
    const std::size_t moved = std::reduce(num_moved.begin(), num_moved.end());
    work_[number] = {computed.size() + moved, found.nodes.size(), moved, 0};
    return found;
}

// Computes the sums of rows, which floats hold exactly, and how they round.
void LiveLayers::compute_sums(std::size_t number, const std::int32_t* nodes, std::size_t count) {
    State& state = states_[number];
    const std::size_t width = state.weights->num_outputs();
    thread_local Entries entries;
    thread_local std::vector<float> sums, ones, zeros;
    sums.resize(count * width);
    ones.assign(width, 1.0f);
    zeros.assign(width, 0.0f);
    Layer layer{};
    layer.values = sums.data();
    layer.scale = ones.data();
    layer.shift = zeros.data();
    compute(number, nodes, count, layer, entries);
    for (std::size_t n = 0; n < count; ++n) {
        const auto node = static_cast<std::size_t>(nodes[n]);
        state.roundings[node] = entries.roundings[n];
        state.roundings[node].has_sum = true;
        state.counts[node] =
            static_cast<std::uint32_t>(entries.offsets[n + 1] - entries.offsets[n]);
        std::int32_t* to = state.sums.rows.data() + node * state.sums.stride;
        const float* from = sums.data() + n * width;
        for (std::size_t c = 0; c < width; ++c) to[c] = static_cast<std::int32_t>(from[c]);
    }
}

// Fetches what a row's end is compared with, before it is needed.
void LiveLayers::fetch_kept(std::size_t number, std::int32_t node) const {
    const auto at = static_cast<std::size_t>(node);
    if (is_last(number)) {
        __builtin_prefetch(&classes_[at], 1);
        return;
    }
    const State& next = states_[number + 1];
    const std::size_t width = words_per_row(next.weights->num_inputs);
    for (std::size_t w = 0; w < width; w += 8) __builtin_prefetch(&next.words[at * width + w], 1);
    __builtin_prefetch(&next.factor[at], 1);
    __builtin_prefetch(&next.beta[at], 1);
}

// Makes bits and scales, or classes, of kept sums, and adds the rows that are not what they were.
void LiveLayers::finish_rows(std::size_t number, const std::int32_t* nodes, std::size_t count,
                             Changed& changed) {
    const State& state = states_[number];
    const Kind& kind = kinds_[state.kind];
    const LayerWeights& weights = *state.weights;
    thread_local std::vector<word> words;
    words.resize(rows_at_once * words_per_row(weights.num_outputs()));
    float row_scale[rows_at_once], beta[rows_at_once], factor[rows_at_once];
    std::int64_t classes[rows_at_once];
    Layer layer{};
    weights.set(layer);
    layer.way = Way::records;  // needs the least scratch
    layer.words = state.words.data();
    layer.edges.source_factor = state.factor.data();
    if (is_last(number)) {
        layer.classes = classes;
    } else {
        layer.out_words = words.data();
        layer.out_beta = beta;
        layer.out_factor = factor;
    }
    std::byte* scratch = thread_scratch(kernels_.scratch_bytes(layer));
    for (std::size_t first = 0; first < count; first += rows_at_once) {
        const std::size_t num_rows = std::min(rows_at_once, count - first);
        const std::int32_t* rows = nodes + first;
        for (std::size_t r = 0; r < num_rows; ++r) fetch_kept(number, rows[r]);
        for (std::size_t r = 0; r < num_rows; ++r) {
            const auto node = static_cast<std::size_t>(rows[r]);
            const Rounding& rounding = state.roundings[node];
            float target_factor = kind.scale.empty() ? 1.0f : kind.scale[node];
            if (kind.kind.factor == EdgeKind::Factor::mean) {
                target_factor = 1.0f / static_cast<float>(std::max(1u, state.counts[node]));
            }
            // A power of two, or 0 for a row whose weights are all 0, as is its sum.
            row_scale[r] =
                rounding.bits ? target_factor * (1.0f / rounding.two_to_e()) : target_factor;
        }
        layer.own_ids = rows;
        kernels_.finish_rows(layer, state.sums.rows.data(), state.sums.stride, rows, row_scale,
                             num_rows, scratch);
        if (is_last(number)) {
            keep_classes(rows, num_rows, classes, changed);
        } else {
            keep_rows(number, rows, num_rows, words.data(), beta, changed);
        }
    }
}

}  // namespace bignn
