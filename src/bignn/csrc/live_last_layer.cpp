// The last layer of a live graph. Where floats hold its integer sums exactly, they are kept, and a
// source that changed is taken off the sums of its readers and put on again.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "live_layers.h"
#include "reweighed.h"
#include "threads.h"

namespace bignn {
namespace {

// Whole numbers below this are exact as floats, as are sums and differences of them.
constexpr std::size_t exact_floats = (std::size_t{1} << 24) - 1;

std::size_t grain_for(std::size_t num_rows) {
    const std::size_t pieces = static_cast<std::size_t>(num_threads()) * 8;
    return std::clamp<std::size_t>(num_rows / pieces / tile_rows * tile_rows, 32, 1024);
}

std::vector<std::int32_t> where(const std::vector<std::int32_t>& nodes,
                                const std::vector<std::uint8_t>& is_wanted) {
    std::vector<std::int32_t> found;
    for (std::size_t n = 0; n < nodes.size(); ++n) {
        if (is_wanted[n]) found.push_back(nodes[n]);
    }
    return found;
}

// Moves are collected, so that the sums of some are fetched while others are made.
class Moves {
   public:
    Moves(const Kernels& kernels, float* sums, const float* old_dots, const float* new_dots,
          std::size_t stride)
        : kernels_(kernels),
          sums_(sums),
          old_dots_(old_dots),
          new_dots_(new_dots),
          stride_(stride) {}

    void add(const SumMove& move) {
        for (std::size_t k = 0; k < stride_; k += 16) {
            __builtin_prefetch(sums_ + move.row * stride_ + k, 1);
        }
        moves_[count_++] = move;
        if (count_ == most) make();
    }

    void make() {
        kernels_.move_sums(sums_, old_dots_, new_dots_, stride_, moves_, count_);
        count_ = 0;
    }

   private:
    static constexpr std::size_t most = 64;
    const Kernels& kernels_;
    float* sums_;
    const float* old_dots_;
    const float* new_dots_;
    std::size_t stride_, count_ = 0;
    SumMove moves_[most];
};

}  // namespace

// Lays out the last layer's weights for single products, if its rows are sums and nothing else.
void LiveLayers::bind_sums() {
    const LayerWeights& weights = *states_[num_layers() - 1].weights;
    most_summed_ = exact_floats / (weights.num_inputs << weights.edge_bits);
    if (num_layers() == 1 || weights.reads_bits() || most_summed_ < few) return;
    sums_stride_ = (weights.num_columns() + 15) / 16 * 16;  // whole cache lines
    std::vector<std::size_t> order(weights.num_columns());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t width = words_per_row(weights.num_inputs);
    const std::size_t padded = (order.size() + panel_width - 1) / panel_width * panel_width;
    last_panels_ = Aligned<half>(padded * 2 * width);
    fill_panels(weights.words.data(), order.size(), width, order.data(), order.size(),
                last_panels_.data());
}

// Whether sums that follow what changed take less than computing the rows that read it: a source
// taken off and put on costs about as much as reading four neighbours.
bool LiveLayers::is_moving_cheaper(const Changed& changed) const {
    if (last_panels_.size() == 0) return false;
    std::size_t moves = 0;
    for (const std::int32_t node : changed.nodes) {
        moves += readers_->ids(static_cast<std::size_t>(node)).size();
    }
    return 4 * moves < rows_.num_entries();
}

// Computes rows and keeps their classes, and sums where they are exact; returns those whose class
// is another.
LiveLayers::Nodes LiveLayers::run_last(const Nodes& nodes) {
    Nodes summed, others;
    for (const std::int32_t node : nodes) {
        const std::size_t most = rows_.ids(static_cast<std::size_t>(node)).size() + 1;
        (last_panels_.size() && most <= most_summed_ ? summed : others).push_back(node);
    }
    compute_sums(summed);
    Nodes found = finish_sums(summed);
    const Nodes more = compute_classes(others);
    found.insert(found.end(), more.begin(), more.end());
    work_[num_layers() - 1] = {nodes.size(), found.size()};
    return found;
}

void LiveLayers::compute_sums(const Nodes& nodes) {
    State& state = states_[num_layers() - 1];
    const std::size_t width = state.weights->num_outputs();
    const std::vector<float> ones(width, 1.0f), zeros(width, 0.0f);
    auto some = [&](std::size_t begin, std::size_t end) {
        thread_local Entries entries;
        thread_local std::vector<float> sums;
        sums.resize((end - begin) * width);
        Layer layer{};
        layer.values = sums.data();
        layer.scale = ones.data();
        layer.shift = zeros.data();
        compute(num_layers() - 1, nodes.data() + begin, end - begin, layer, entries);
        for (std::size_t n = begin; n < end; ++n) {
            const auto node = static_cast<std::size_t>(nodes[n]);
            state.roundings[node] = entries.roundings[n - begin];
            state.roundings[node].has_sum = true;
            std::copy_n(sums.data() + (n - begin) * width, width,
                        sums_.data() + node * sums_stride_);
        }
    };
    run_in_pieces(nodes.size(), grain_for(nodes.size()), some);
}

LiveLayers::Nodes LiveLayers::compute_classes(const Nodes& nodes) {
    State& state = states_[num_layers() - 1];
    std::vector<std::uint8_t> is_new(nodes.size(), 0);
    auto some = [&](std::size_t begin, std::size_t end) {
        thread_local Entries entries;
        thread_local std::vector<std::int64_t> classes;
        classes.resize(end - begin);
        Layer layer{};
        layer.classes = classes.data();
        compute(num_layers() - 1, nodes.data() + begin, end - begin, layer, entries);
        for (std::size_t n = begin; n < end; ++n) {
            const auto node = static_cast<std::size_t>(nodes[n]);
            if (!state.roundings.empty()) state.roundings[node] = entries.roundings[n - begin];
            is_new[n] = classes[n - begin] != classes_[node];
            classes_[node] = classes[n - begin];
        }
    };
    run_in_pieces(nodes.size(), grain_for(nodes.size()), some);
    return where(nodes, is_new);
}

// F . B of rows of bits, as floats, a row to sums_stride_.
LiveLayers::Lines LiveLayers::multiply(const std::vector<word>& words, std::size_t count) const {
    const LayerWeights& weights = *states_[num_layers() - 1].weights;
    const std::size_t columns = weights.num_columns(), width = words_per_row(weights.num_inputs);
    Lines dots(count * sums_stride_);
    auto some = [&](std::size_t begin, std::size_t end) {
        thread_local std::vector<std::int32_t> made;
        made.resize((end - begin) * columns);
        kernels_.xnor_rows(words.data() + begin * width, last_panels_.data(), 0, end - begin,
                           columns, weights.num_inputs, made.data());
        for (std::size_t n = begin; n < end; ++n) {
            std::copy_n(made.data() + (n - begin) * columns, columns,
                        dots.data() + n * sums_stride_);
        }
    };
    run_in_pieces(count, grain_for(count), some);
    return dots;
}

// Takes sources that changed off the sums of their readers and puts them on again. Returns the rows
// whose sums are new; adds those that must be computed to `computed`, which names them once then.
LiveLayers::Nodes LiveLayers::move_sums(const Changed& changed, Nodes& computed) {
    const State& state = states_[num_layers() - 1];
    const Kind& kind = kinds_[state.kind];
    const std::size_t num_words = words_per_row(state.weights->num_inputs);
    const bool has_loop_of_its_own = kind.kind.loops == EdgeKind::Loops::added && !has_loops_;
    const bool has_weights = kind.kind.is_weighted && rows_.is_weighted();
    const int edge_bits = state.weights->edge_bits;
    std::vector<word> words(changed.nodes.size() * num_words);
    for (std::size_t c = 0; c < changed.nodes.size(); ++c) {
        std::copy_n(state.words.data() + static_cast<std::size_t>(changed.nodes[c]) * num_words,
                    num_words, words.data() + c * num_words);
    }
    const Lines old_dots = multiply(changed.old_words, changed.nodes.size());
    const Lines new_dots = multiply(words, changed.nodes.size());
    std::size_t work = 0;
    for (const std::int32_t node : changed.nodes) {
        work += readers_->ids(static_cast<std::size_t>(node)).size();
    }
    start_marks();
    const std::uint32_t is_moved = mark_;
    start_marks();
    const std::uint32_t is_computed = mark_;
    Nodes first;  // rows that are computed whatever else changed
    const auto compute_first = [&](std::int32_t node) {
        if (mark(node)) first.push_back(node);
    };
    for (const std::int32_t node : computed) compute_first(node);
    if (has_loop_of_its_own) {
        for (const std::int32_t node : changed.nodes) compute_first(node);
    }
    std::sort(first.begin(), first.end());
    const auto is_first = [&](std::size_t row) {
        return std::binary_search(first.begin(), first.end(), static_cast<std::int32_t>(row));
    };
    const std::size_t nodes = num_nodes();
    // As few pieces as there are threads: finding a source's readers takes longer than moving sums.
    const std::size_t pieces = work < 4096 ? 1 : static_cast<std::size_t>(num_threads());
    const std::size_t grain = (nodes + pieces - 1) / pieces;
    std::vector<Nodes> found(pieces);
    // Rows are shared out among threads, each of which finds its own among a source's readers.
    auto some = [&](std::size_t begin, std::size_t end) {
        Nodes& mine = found[begin / grain];
        Moves moves(kernels_, sums_.data(), old_dots.data(), new_dots.data(), sums_stride_);
        for (std::size_t c = 0; c < changed.nodes.size(); ++c) {
            const auto node = static_cast<std::size_t>(changed.nodes[c]);
            const auto readers = readers_->ids(node);
            const float* weights = has_weights ? readers_->weights(node) : nullptr;
            if (c + 8 < changed.nodes.size()) {
                const auto later = static_cast<std::size_t>(changed.nodes[c + 8]);
                __builtin_prefetch(readers_->ids(later).data());
            }
            auto at =
                std::lower_bound(readers.begin(), readers.end(), static_cast<std::int32_t>(begin));
            for (; at != readers.end() && static_cast<std::size_t>(*at) < end; ++at) {
                const auto row = static_cast<std::size_t>(*at);
                if (readers.end() - at > 8) {
                    __builtin_prefetch(&state.roundings[static_cast<std::size_t>(at[8])]);
                }
                if (marks_[row] == is_computed) continue;
                const Rounding& rounding = state.roundings[row];
                const float weight = weights ? weights[at - readers.begin()] : 1.0f;
                const Reweighed q =
                    reweighed(rounding.two_to_e, rounding.top, rounding.count, edge_bits,
                              weight * changed.old_factor[c], weight * state.factor[node]);
                if (!changed.has_new_bits[c] && !q.is_scale_new && q.before == q.after) continue;
                if (marks_[row] != is_moved) mine.push_back(*at);
                if (q.is_scale_new || !rounding.has_sum || std::isnan(changed.old_factor[c])) {
                    marks_[row] = is_computed;
                    continue;
                }
                marks_[row] = is_moved;
                moves.add({row, c, static_cast<float>(q.before), static_cast<float>(q.after)});
            }
        }
        moves.make();
        if (mine.size() < (end - begin) / 32) {
            std::sort(mine.begin(), mine.end());
        } else {
            const std::size_t before = mine.size();
            mine.clear();
            mine.reserve(before);
            for (std::size_t row = begin; row < end; ++row) {
                const bool is_mine =
                    marks_[row] == is_moved || (marks_[row] == is_computed && !is_first(row));
                if (is_mine) mine.push_back(static_cast<std::int32_t>(row));
            }
        }
    };
    run_in_pieces(nodes, grain, some);
    Nodes moved;
    computed = std::move(first);
    for (const Nodes& mine : found) {
        for (const std::int32_t node : mine) {
            const bool is_whole = marks_[static_cast<std::size_t>(node)] == is_moved;
            (is_whole ? moved : computed).push_back(node);
        }
    }
    std::sort(computed.begin(), computed.end());
    return moved;
}

// Makes classes of kept sums; returns the rows whose class is another.
LiveLayers::Nodes LiveLayers::finish_sums(const Nodes& nodes) {
    const State& state = states_[num_layers() - 1];
    const Kind& kind = kinds_[state.kind];
    const LayerWeights& weights = *state.weights;
    const std::size_t width = weights.num_outputs();
    std::vector<std::uint8_t> is_new(nodes.size(), 0);
    const std::size_t stride = (width + 63) / 64 * 64;
    auto some = [&](std::size_t begin, std::size_t end) {
        Lines tile(tile_rows * stride);
        float row_scale[tile_rows];
        std::int64_t classes[tile_rows];
        for (std::size_t first = begin; first < end; first += tile_rows) {
            const std::size_t count = std::min(tile_rows, end - first);
            for (std::size_t r = 0; r < count; ++r) {
                const auto node = static_cast<std::size_t>(nodes[first + r]);
                const Rounding& rounding = state.roundings[node];
                float factor = kind.scale.empty() ? 1.0f : kind.scale[node];
                if (kind.kind.factor == EdgeKind::Factor::mean) {
                    factor = 1.0f / static_cast<float>(std::max(1u, rounding.count));
                }
                // A power of two, or 0 for a row whose weights are all 0, as is its sum.
                row_scale[r] = rounding.two_to_e > 0 ? factor * (1.0f / rounding.two_to_e) : factor;
                std::copy_n(sums_.data() + node * sums_stride_, width, tile.data() + r * stride);
            }
            kernels_.class_tile(tile.data(), stride, count, row_scale, weights.scale.data(),
                                weights.shift.data(), width, classes);
            for (std::size_t r = 0; r < count; ++r) {
                std::int64_t& known = classes_[static_cast<std::size_t>(nodes[first + r])];
                is_new[first + r] = known != classes[r];
                known = classes[r];
            }
        }
    };
    run_in_pieces(nodes.size(), grain_for(nodes.size()), some);
    return where(nodes, is_new);
}

}  // namespace bignn
