// A layer row by row, in terms of the pieces in plain.h or their vector forms.
#pragma once

#include "attention_rows.h"
#include "blocked_rows.h"

namespace bignn {

template <class Isa>
inline std::size_t scratch_bytes(const Layer& layer) {
    const std::size_t size = Scratch<Isa>(layer, nullptr).size;
    return layer.blocks.shift ? size + TileScratch<Isa>(layer, nullptr).size : size;
}

// Makes records of num_rows rows of bits, sources `first` on; false when a value does not fit.
template <class Isa>
inline bool make_records(const word* rows, std::size_t first, std::size_t num_rows,
                         const Panels& panels, std::byte* records) {
    if (!panels.line_step) {
        return Isa::make_records(rows, num_rows, panels, records + first * panels.stride);
    }
    bool fits = true;
    Panels part = panels;
    part.stride = 64;
    for (std::size_t at = 0; at < panels.stride; at += 64, records += panels.line_step) {
        fits = Isa::make_records(rows, num_rows, part, records + first * 64) && fits;
        part.halves += 64 * 2 * words_per_row(panels.num_bits);
        part.base += 64;
        part.valid += 64 / panel_width;
    }
    return fits;
}

// Adds the own parts of rows first .. first + num_rows to their sums.
template <class Isa>
inline void add_own_parts(const Layer& layer, std::size_t first, std::size_t num_rows,
                          const float* row_scale, Scratch<Isa>& scratch) {
    const std::size_t num_words = words_per_row(layer.num_inputs);
    const word* words = layer.words + first * num_words;
    if (layer.own_ids) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            const word* from = layer.words + own_id(layer, first + r) * num_words;
            for (std::size_t w = 0; w < num_words; ++w) {
                scratch.own_words[r * num_words + w] = from[w];
            }
        }
        words = scratch.own_words;
    }
    float factors[tile_rows];
    for (std::size_t r = 0; r < num_rows; ++r) {
        factors[r] = layer.edges.source_factor[own_id(layer, first + r)];
    }
    Isa::add_own_rows(words, num_rows, layer.num_inputs, layer.own, factors, row_scale, layer.scale,
                      layer.num_outputs, scratch.sums, scratch.sums_stride);
}

// Sends rows first .. first + num_rows, whose sums are in scratch, to where the layer wants them.
// False when a value does not fit the next layer's records.
template <class Isa>
inline bool finish_tile(const Layer& layer, std::size_t first, std::size_t num_rows,
                        const float* row_scale, const float* scale, Scratch<Isa>& scratch) {
    const std::size_t num_outputs = layer.num_outputs;
    if (layer.values) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            Isa::value_row(scratch.sums + r * scratch.sums_stride, row_scale[r], scale, layer.shift,
                           num_outputs,
                           layer.values + (first + r - layer.first_value) * num_outputs);
        }
    }
    if (layer.classes) {
        Isa::class_tile(scratch.sums, scratch.sums_stride, num_rows, row_scale, scale, layer.shift,
                        num_outputs, layer.classes + first);
    }
    if (!layer.out_factor) return true;
    word* words =
        layer.out_words ? layer.out_words + first * words_per_row(num_outputs) : scratch.words;
    const float* out_scale = layer.out_scale ? layer.out_scale + first : nullptr;
    float* factor = layer.out_factor + first;
    Isa::sign_tile(scratch.sums, scratch.sums_stride, num_rows, row_scale, scale, layer.shift,
                   num_outputs, words, layer.out_beta ? nullptr : out_scale, factor);
    if (layer.out_beta) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            layer.out_beta[first + r] = factor[r];
            if (out_scale) factor[r] = bounded(out_scale[r] * factor[r]);
        }
    }
    return !layer.next ||
           make_records<Isa>(words, first, num_rows, *layer.next, layer.next_records);
}

// The same for sums of neighbours alone, to which a layer may add the rows' own parts.
template <class Isa>
inline bool end_tile(const Layer& layer, std::size_t first, std::size_t num_rows,
                     const float* row_scale, Scratch<Isa>& scratch) {
    if (!layer.own.panels) {
        return finish_tile(layer, first, num_rows, row_scale, layer.scale, scratch);
    }
    // Sums that were put together from parts are scaled already.
    constexpr float ones[tile_rows] = {1, 1, 1, 1};
    add_own_parts(layer, first, num_rows, row_scale, scratch);
    return finish_tile(layer, first, num_rows, ones, layer.end_scale, scratch);
}

// Sums tile_rows rows of few neighbours each.
template <class Isa, typename Id>
inline void gather_few(const Layer& layer, std::size_t first, Batch<Isa, Id>& entries,
                       Scratch<Isa>& scratch, float* row_scale) {
    const Edges& from = layer.edges;
    const std::int64_t* offsets = from.offsets + first;
    const auto begin = static_cast<std::size_t>(offsets[0]);
    entries.cover(begin, static_cast<std::size_t>(offsets[tile_rows]));
    std::uint32_t totals[tile_rows];
    Isa::weigh_tile(entries.x(begin), offsets, from.target_factor + first, layer.edge_bits,
                    scratch.q, totals, row_scale);
    sum_few(layer, layer.records, layer.num_outputs, offsets, totals, entries, scratch,
            scratch.sums, scratch.sums_stride);
}

// Sums row i: into `sums`, or by bits into `u`.
template <class Isa, typename Id>
inline float gather_one(const Layer& layer, std::size_t i, Batch<Isa, Id>& entries,
                        Scratch<Isa>& scratch, float* sums, std::int32_t* u) {
    const auto gather = [&](auto add) { return gather_row(layer, i, entries, scratch, add); };
    if (layer.way == Way::bits) return sum_bits(layer.num_inputs, scratch, u, gather);
    return sum_row(layer.records, layer.num_outputs, num_neighbours(layer, i), scratch, sums,
                   gather);
}

// Whether tile_rows rows have at most `few` neighbours each.
static inline bool has_few(const std::int64_t* offsets) {
    bool all = true;
    for (std::size_t r = 0; r < tile_rows; ++r) {
        all &= offsets[r + 1] - offsets[r] <= static_cast<std::int64_t>(few);
    }
    return all;
}

template <class Isa, typename Id>
inline bool layer_rows_with(const Layer& layer, const Id* ids, std::size_t begin, std::size_t end,
                            std::byte* bytes) {
    Scratch<Isa> scratch(layer, bytes);
    if (layer.blocks.shift) {
        bool fits = true;
        blocked_rows(layer, ids, begin, end, bytes, scratch,
                     [&](std::size_t first, std::size_t num_rows, const float* row_scale) {
                         fits = end_tile(layer, first, num_rows, row_scale, scratch) && fits;
                     });
        return fits;
    }
    Batch<Isa, Id> entries(layer, ids, begin, end, scratch);
    // Sums that heads were put together to are scaled already.
    constexpr float ones[tile_rows] = {1, 1, 1, 1};
    bool fits = true;
    for (std::size_t first = begin; first < end; first += tile_rows) {
        const std::size_t num_rows = end - first < tile_rows ? end - first : tile_rows;
        float row_scale[tile_rows];
        const bool is_few = num_rows == tile_rows && has_few(layer.edges.offsets + first);
        if (layer.attention.heads) {
            attend_tile(layer, first, num_rows, is_few, entries, scratch);
            fits = finish_tile(layer, first, num_rows, ones, layer.end_scale, scratch) && fits;
            continue;
        }
        if (is_few) {
            gather_few(layer, first, entries, scratch, row_scale);
        } else {
            for (std::size_t r = 0; r < num_rows; ++r) {
                row_scale[r] = gather_one(layer, first + r, entries, scratch,
                                          scratch.sums + r * scratch.sums_stride,
                                          scratch.u + r * Isa::u_stride(layer.num_inputs));
            }
        }
        if (layer.way == Way::bits) {
            Isa::multiply(scratch.u, num_rows, layer.num_inputs, layer.num_outputs, layer.product,
                          scratch.multiply, scratch.sums, scratch.sums_stride);
        }
        fits = end_tile(layer, first, num_rows, row_scale, scratch) && fits;
    }
    return fits;
}

template <class Isa>
inline bool layer_rows(const Layer& layer, std::size_t begin, std::size_t end, std::byte* scratch) {
    const Edges& from = layer.edges;
    return from.ids ? layer_rows_with<Isa>(layer, from.ids, begin, end, scratch)
                    : layer_rows_with<Isa>(layer, from.long_ids, begin, end, scratch);
}

// See FinishRows in kernels.h.
template <class Isa>
inline void finish_rows(const Layer& layer, const std::int32_t* sums, std::size_t stride,
                        const std::int32_t* nodes, const float* row_scale, std::size_t count,
                        std::byte* bytes) {
    Scratch<Isa> scratch(layer, bytes);
    for (std::size_t first = 0; first < count; first += tile_rows) {
        const std::size_t num_rows = count - first < tile_rows ? count - first : tile_rows;
        for (std::size_t r = 0; r < num_rows; ++r) {
            const std::int32_t* from = sums + static_cast<std::size_t>(nodes[first + r]) * stride;
            float* __restrict to = scratch.sums + r * scratch.sums_stride;
            for (std::size_t c = 0; c < layer.num_outputs; ++c) to[c] = static_cast<float>(from[c]);
        }
        end_tile(layer, first, num_rows, row_scale + first, scratch);
    }
}

template <class Isa>
inline bool records_of_bits(const word* rows, const Panels& panels, std::size_t begin,
                            std::size_t end, std::byte* records) {
    return make_records<Isa>(rows + begin * words_per_row(panels.num_bits), begin, end - begin,
                             panels, records);
}

template <class Isa>
inline bool records_of_sparse(const SparseRows& rows, const SignTable& table, std::size_t begin,
                              std::size_t end, std::byte* records) {
    bool fits = true;
    for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t start = rows.offsets[i];
        fits = Isa::sparse_record(rows.inputs + start,
                                  static_cast<std::size_t>(rows.offsets[i + 1] - start), table,
                                  records + i * table.stride) &&
               fits;
    }
    return fits;
}

}  // namespace bignn
