#include "packed_layers.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "threads.h"

namespace bignn {
namespace {

// Records of more bytes than this do not stay in the nearer caches.
constexpr std::size_t far_bytes = std::size_t{1} << 19;

// Blocks of way T: their sources, what a tile has less rows than that, and the mean neighbours that
// a row must have in a block. A line of a block and a tile's sums of it are 512 KiB each.
constexpr std::size_t block_shift = 13, rows_of_block = 4, least_per_block = 16;
// Where a line of all records is in the second cache, there is nothing to gain. Neighbours are
// listed once for all lines of a record: for few lines that pays only where they come from far.
constexpr std::size_t many_lines = 4, near_bytes = std::size_t{1} << 21;
constexpr std::size_t near_bytes_of_few_lines = std::size_t{1} << 23;
// Rows that are looked at to see whether neighbours are in order.
constexpr std::size_t rows_looked_at = 256;

// Pieces are whole tiles, and many enough for skewed degrees to even out.
std::size_t grain_for(std::size_t num_rows) {
    const std::size_t pieces = static_cast<std::size_t>(num_threads()) * 32;
    const std::size_t rows = std::clamp<std::size_t>(num_rows / pieces, 32, 4096);
    return rows / tile_rows * tile_rows;
}

// Blocked rows: as few tiles as there may be, and equally many for every thread.
std::size_t grain_for(const Blocks& blocks, std::size_t num_rows) {
    const auto threads = static_cast<std::size_t>(num_threads());
    const std::size_t tiles = (num_rows + threads * blocks.rows - 1) / (threads * blocks.rows);
    const std::size_t pieces = std::max<std::size_t>(1, threads * tiles);
    return std::max<std::size_t>(1, (num_rows + pieces - 1) / pieces);
}

// Whether the neighbours of some rows, spread over all, rise: those of a block are found fast then.
template <typename Id>
bool rows_rise(const Edges& edges, const Id* ids) {
    const std::size_t step = edges.num_rows / rows_looked_at + 1;
    for (std::size_t i = 0; i < edges.num_rows; i += step) {
        if (!std::is_sorted(ids + edges.offsets[i], ids + edges.offsets[i + 1])) return false;
    }
    return true;
}

}  // namespace

bool blocks_pay(const Kernels& kernels, int edge_bits, std::size_t stride, std::size_t num_rows,
                std::size_t num_sources, std::size_t num_entries) {
    const double per_block = static_cast<double>(num_entries << block_shift) /
                             (static_cast<double>(num_rows) * static_cast<double>(num_sources) + 1);
    const std::size_t near = stride < 64 * many_lines ? near_bytes_of_few_lines : near_bytes;
    return kernels.blocks_pay && edge_bits <= kernels.most_block_bits && num_rows && stride >= 64 &&
           num_sources * 64 > near && per_block >= static_cast<double>(least_per_block);
}

// Binds the layers to buffers of their present sizes; what the graph and weights do not change is
// made here, once for many runs.
void PackedLayers::bind() {
    steps_.assign(specs_.size(), {});
    buffers_.clear();
    buffers_.resize(specs_.size());
    seconds_.assign(specs_.size(), 0);
    for (std::size_t number = 0; number < specs_.size(); ++number) bind_layer(number);
    // A layer whose successor gathers records makes them while its bits are in cache.
    for (std::size_t number = 0; number + 1 < specs_.size(); ++number) {
        if (steps_[number + 1].layer.way != Way::records) continue;
        steps_[number].layer.next = &steps_[number + 1].panels;
        steps_[number].layer.next_records = buffers_[number + 1].records.data();
    }
}

void PackedLayers::bind_layer(std::size_t number) {
    const LayerSpec& spec = specs_[number];
    const LayerWeights& weights = *spec.weights;
    Layer& layer = steps_[number].layer;
    layer.edges = spec.edges;
    layer.edges.source_factor = number == 0 ? source_factor_ : buffers_[number - 1].factor.data();
    weights.set(layer);
    layer.way = spec.way == LayerSpec::Way::gather ? Way::bits : Way::records;
    if (layer.way == Way::bits || weights.reads_bits()) {
        layer.words = number == 0 ? dense_features() : buffers_[number - 1].words.data();
    }
    if (weights.reads_bits()) layer.own_ids = spec.own_ids;
    if (layer.way == Way::bits) {
        layer.product = weights.product_form(kernels_).bytes.data();
    } else {
        bind_records(number);
    }
    if (weights.attention.heads) bind_attention(number);
    bind_output(number);
}

void PackedLayers::bind_records(std::size_t number) {
    const LayerSpec& spec = specs_[number];
    const LayerWeights& weights = *spec.weights;
    Step& step = steps_[number];
    Buffers& buffers = buffers_[number];
    const std::size_t bytes_per_column = weights.bytes_per_column();
    const LayerWeights::RecordForm& form = weights.record_form(bytes_per_column);
    buffers.records = Aligned<std::byte>(spec.num_sources * form.stride);
    step.is_sparse = spec.way == LayerSpec::Way::sparse;
    std::vector<std::int32_t> center;
    if (step.is_sparse) {
        // Deviations are relative to the products of the base row.
        center = weights.products(features_.base.data());
        buffers.signs = weights.sign_table(bytes_per_column, features_.base);
        step.table = {
            .signs = buffers.signs->bytes.data(),
            .positive = buffers.signs->positive.empty() ? nullptr : buffers.signs->positive.data(),
            .stride = form.stride,
            .bytes_per_column = bytes_per_column,
        };
    } else {
        const std::vector<std::int32_t> differing = likely_differing(number);
        center.resize(weights.num_columns());
        for (std::size_t c = 0; c < center.size(); ++c) {
            center[c] = static_cast<std::int32_t>(weights.num_inputs) - 2 * differing[c];
        }
        for (const std::size_t column : form.columns) {
            buffers.base.push_back(column < differing.size() ? differing[column] : 0);
        }
        step.panels = {
            .halves = form.panels.data(),
            .num_bits = weights.num_inputs,
            .base = buffers.base.data(),
            .valid = form.valid.data(),
            .stride = form.stride,
            .bytes_per_column = bytes_per_column,
            .line_step = 0,
        };
    }
    // Vector code reads centers by whole registers, a head's from a multiple of 64 on.
    const std::size_t channels = weights.channels(), padded = (channels + 63) / 64 * 64;
    buffers.center.assign(weights.heads() * padded, 0);
    std::int32_t largest = 0;
    for (std::size_t c = 0; c < center.size(); ++c) {
        buffers.center[c / channels * padded + c % channels] = center[c];
        largest = std::max(largest, std::abs(center[c]));
    }
    step.layer.records = {
        .data = buffers.records.data(),
        .step = form.stride,
        .offset = 0,
        .stride = record_stride(channels, bytes_per_column),
        .bytes_per_column = bytes_per_column,
        .center = buffers.center.data(),
        .max_center = largest,
        .far = spec.num_sources * form.stride > far_bytes,
        .edge_bits = weights.edge_bits,
    };
    bind_blocks(number);
}

// Decides whether way T takes neighbours by blocks of sources, and stores records line by line
// then.
void PackedLayers::bind_blocks(std::size_t number) {
    const LayerSpec& spec = specs_[number];
    Step& step = steps_[number];
    const Records& records = step.layer.records;
    const bool is_able = records.bytes_per_column == 1 && records.stride % 64 == 0 &&
                         records.edge_bits <= kernels_.most_block_bits &&
                         !spec.weights->attention.heads &&
                         (!step.is_sparse || records.stride == 64);
    if (!is_able || spec.block_shift == 0) return;
    if (!spec.block_shift) {
        const Edges& edges = spec.edges;
        const auto entries = static_cast<std::size_t>(edges.offsets[edges.num_rows]);
        const bool pays = blocks_pay(kernels_, records.edge_bits, records.stride, edges.num_rows,
                                     spec.num_sources, entries);
        if (!pays) return;
        if (!(edges.ids ? rows_rise(edges, edges.ids) : rows_rise(edges, edges.long_ids))) return;
    }
    const std::size_t shift = spec.block_shift.value_or(block_shift);
    step.layer.blocks = {
        .shift = shift,
        .num_sources = spec.num_sources,
        .line_step = spec.num_sources * 64,
        .rows = std::max<std::size_t>(tile_rows, (std::size_t{1} << shift) / rows_of_block),
    };
    step.layer.records.step = 64;
    if (records.stride > 64) step.panels.line_step = step.layer.blocks.line_step;
}

void PackedLayers::bind_attention(std::size_t number) {
    const LayerSpec& spec = specs_[number];
    const LayerWeights& weights = *spec.weights;
    const AttentionWeights& attention = weights.attention;
    Step& step = steps_[number];
    const std::size_t count = 2 * attention.heads;
    buffers_[number].scores = Aligned<float>(count * spec.num_sources);
    step.scores = {
        .words = step.layer.words,
        .num_rows = spec.num_sources,
        .num_bits = weights.num_inputs,
        .count = count,
        .values = attention.values.data(),
        .sigma = attention.sigma.data(),
        .factor = step.layer.edges.source_factor,
        .out = buffers_[number].scores.data(),
    };
    step.layer.attention = {
        .heads = attention.heads,
        .channels = weights.channels(),
        .averages = attention.averages,
        .slope = attention.slope,
        .source = step.scores.out,
        .target = step.scores.out + attention.heads * spec.num_sources,
        .num_sources = spec.num_sources,
        .product_stride = step.layer.way == Way::bits ? weights.product_form(kernels_).stride : 0,
    };
}

void PackedLayers::bind_output(std::size_t number) {
    const LayerSpec& spec = specs_[number];
    Layer& layer = steps_[number].layer;
    Buffers& buffers = buffers_[number];
    const std::size_t rows = spec.edges.num_rows, outputs = layer.num_outputs;
    const bool is_last = number + 1 == specs_.size();
    if (spec.keeps_values) {
        buffers.values = Aligned<float>(rows * outputs);
        layer.values = buffers.values.data();
    }
    if (is_last && !spec.keeps_bits) return;
    buffers.factor = Aligned<float>(std::max<std::size_t>(1, rows));
    layer.out_factor = buffers.factor.data();
    layer.out_scale = spec.out_scale;
    const bool is_read = !is_last && (specs_[number + 1].way == LayerSpec::Way::gather ||
                                      specs_[number + 1].weights->reads_bits());
    if (is_read || spec.keeps_bits) {
        buffers.words = Aligned<word>(std::max<std::size_t>(1, rows * words_per_row(outputs)));
        layer.out_words = buffers.words.data();
    }
    if (spec.keeps_bits) {
        buffers.beta = Aligned<float>(rows);
        layer.out_beta = buffers.beta.data();
    }
}

// Guesses, per column, a number of differing bits that most rows are near. Up to 255 inputs, any
// number fits a byte relative to 127. Beyond, a first layer tries some rows of the features, and
// hidden layers take half of the inputs. A bad guess costs a wider record, never another result.
std::vector<std::int32_t> PackedLayers::likely_differing(std::size_t number) {
    const LayerWeights& weights = *specs_[number].weights;
    const std::size_t columns = weights.num_columns(), inputs = weights.num_inputs;
    if (inputs <= 255) return std::vector<std::int32_t>(columns, 127);
    std::vector<std::int32_t> likely(columns, static_cast<std::int32_t>(inputs / 2));
    if (number > 0 || !features_.words || features_.num_rows == 0) return likely;
    const std::size_t every = std::max<std::size_t>(1, features_.num_rows / 64);
    std::vector<double> total(columns, 0);
    std::size_t count = 0;
    for (std::size_t row = 0; row < features_.num_rows; row += every, ++count) {
        const auto dots = weights.products(features_.words + row * words_per_row(inputs));
        for (std::size_t c = 0; c < columns; ++c) total[c] += dots[c];
    }
    for (std::size_t c = 0; c < columns; ++c) {
        likely[c] = static_cast<std::int32_t>(
            std::lrint((static_cast<double>(inputs) - total[c] / static_cast<double>(count)) / 2));
    }
    return likely;
}

const word* PackedLayers::dense_features() {
    if (features_.words) return features_.words;
    const std::size_t num_words = features_.base.size();
    if (dense_.size() == 0) {
        dense_ = Aligned<word>(std::max<std::size_t>(1, features_.num_rows * num_words));
        for (std::size_t i = 0; i < features_.num_rows; ++i) {
            word* row = dense_.data() + i * num_words;
            std::copy(features_.base.begin(), features_.base.end(), row);
            for (std::int64_t e = features_.offsets[i]; e < features_.offsets[i + 1]; ++e) {
                const auto k = static_cast<std::size_t>(features_.inputs[e]);
                row[k / word_bits] ^= word{1} << (k % word_bits);
            }
        }
    }
    return dense_.data();
}

// Makes what a layer needs of all its sources: attention's scores, and a first layer's records.
// False when a record's value did not fit.
bool PackedLayers::prepare(std::size_t number) {
    const Step& step = steps_[number];
    if (step.scores.count) {
        auto score = [&](std::size_t begin, std::size_t end) {
            kernels_.score_rows(step.scores, begin, end);
        };
        run_in_pieces(step.scores.num_rows, grain_for(step.scores.num_rows), score);
    }
    if (number > 0 || step.layer.way != Way::records) return true;
    std::byte* records = buffers_[number].records.data();
    const SparseRows rows{features_.offsets, features_.inputs};
    std::atomic<bool> fits{true};
    auto make = [&](std::size_t begin, std::size_t end) {
        const bool fit =
            step.is_sparse
                ? kernels_.records_of_sparse(rows, step.table, begin, end, records)
                : kernels_.records_of_bits(dense_features(), step.panels, begin, end, records);
        if (!fit) fits = false;
    };
    if (!step.is_sparse) dense_features();  // made here, before several threads need them
    run_in_pieces(features_.num_rows, grain_for(features_.num_rows), make);
    return fits;
}

bool PackedLayers::run_layer(const Layer& layer, std::size_t begin, std::size_t end) {
    std::atomic<bool> fits{true};
    const std::size_t size = kernels_.scratch_bytes(layer);
    auto rows = [&](std::size_t first, std::size_t last) {
        if (!kernels_.layer_rows(layer, begin + first, begin + last, thread_scratch(size))) {
            fits = false;
        }
    };
    run_in_pieces(
        end - begin,
        layer.blocks.shift ? grain_for(layer.blocks, end - begin) : grain_for(end - begin), rows);
    return fits;
}

// Returns the number of the layer whose records overflowed, after which nothing was run.
std::optional<std::size_t> PackedLayers::try_run(std::size_t count, float* values,
                                                 std::int64_t* classes) {
    for (std::size_t number = 0; number < count; ++number) {
        const auto start = std::chrono::steady_clock::now();
        Layer layer = steps_[number].layer;
        if (number + 1 == specs_.size() && (values || classes)) {
            layer.values = values;
            layer.classes = classes;
        }
        if (!prepare(number)) return number;
        if (!run_layer(layer, 0, layer.edges.num_rows)) return number + 1;
        seconds_[number] =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    // A last layer that is left to run_rows.
    if (count < specs_.size() && !prepare(count)) return count;
    return std::nullopt;
}

void PackedLayers::run(std::size_t count, float* values, std::int64_t* classes) {
    for (;;) {
        if (steps_.size() != specs_.size()) {
            try {
                bind();
            } catch (...) {
                steps_.clear();  // half bound, as where memory ran out
                throw;
            }
        }
        const std::optional<std::size_t> overflowed = try_run(count, values, classes);
        if (!overflowed) return;
        specs_[*overflowed].weights->widen(bytes_per_column(*overflowed));
        steps_.clear();
    }
}

void PackedLayers::run_rows(std::size_t begin, std::size_t end, float* values) {
    Layer layer = steps_.back().layer;
    layer.values = values;
    layer.first_value = begin;
    layer.out_factor = nullptr;
    run_layer(layer, begin, end);
}

void PackedLayers::run_block(const Edges& edges, const std::int32_t* own_ids,
                             const RowOutputs& out) {
    Layer layer = steps_.back().layer;
    const float* source_factor = layer.edges.source_factor;
    layer.edges = edges;
    layer.edges.source_factor = source_factor;
    layer.own_ids = specs_.back().weights->reads_bits() ? own_ids : nullptr;
    layer.values = out.values;
    layer.first_value = 0;
    layer.classes = out.classes;
    layer.out_words = out.words;
    layer.out_beta = nullptr;
    layer.out_scale = nullptr;
    layer.out_factor = out.beta;  // without a factor of the rows it is their beta
    run_layer(layer, 0, edges.num_rows);
}

std::size_t PackedLayers::bytes_per_column(std::size_t layer) const {
    if (layer >= steps_.size() || steps_[layer].layer.way != Way::records) return 0;
    return steps_[layer].layer.records.bytes_per_column;
}

}  // namespace bignn
