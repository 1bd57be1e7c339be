// Layers whose weights come from attention, row by row.
#pragma once

#include "gather.h"

namespace bignn {

// Walks over the neighbours of row i as gather_row does, with one head's weights.
template <class Isa, typename Id, class Add>
inline float attend_row(const Layer& layer, std::size_t head, std::size_t i,
                        Batch<Isa, Id>& entries, Scratch<Isa>& scratch, Add add) {
    const Edges& from = layer.edges;
    const Attention& attention = layer.attention;
    const float target = attention.target[head * attention.num_sources + own_id(layer, i)];
    const auto begin = static_cast<std::size_t>(from.offsets[i]);
    const auto end = static_cast<std::size_t>(from.offsets[i + 1]);
    const auto count = [&](std::size_t at) { return end - at < chunk ? end - at : chunk; };
    float largest_source = -largest_score;
    for (std::size_t at = begin; at < end; at += chunk) {
        entries.cover(at, at + count(at));
        const float some = Isa::largest_score_of(entries.scores(head, at), count(at));
        largest_source = some > largest_source ? some : largest_source;
    }
    // leaky is monotonic, rounding included: the largest source has the largest score.
    const float top = leaky(target + largest_source, attention.slope);
    const auto attend_chunk = [&](std::size_t at) {
        entries.cover(at, at + count(at));
        return Isa::attend(entries.scores(head, at), entries.factors(at), count(at), target, top,
                           attention.slope, scratch.x);
    };
    float most = 0;
    std::uint64_t shares = 0;
    for (std::size_t at = begin; at < end; at += chunk) {
        const auto some = attend_chunk(at);
        most = some.most > most ? some.most : most;
        shares += some.shares;
    }
    const RowWeights weights = row_weights(most, end - begin, share_of(shares), layer.edge_bits);
    const bool in_one = end - begin <= chunk;
    std::size_t at = begin;
    do {  // at least once: a row without neighbours is 0
        const std::size_t some = at < end ? count(at) : 0;
        std::uint32_t total = 0;
        if (some) {
            if (!in_one) attend_chunk(at);
            total = Isa::round_weights(scratch.x, some, weights.two_to_e, weights.limit, scratch.q);
        }
        add(entries.rows(at), some, total, at == begin);
        at += chunk;
    } while (at < end);
    return weights.scale;
}

// Sums one head of row i: into `sums`, or by bits into `u`.
template <class Isa, typename Id>
inline float attend_one(const Layer& layer, const Records& part, std::size_t head, std::size_t i,
                        Batch<Isa, Id>& entries, Scratch<Isa>& scratch, float* sums,
                        std::int32_t* u) {
    const auto gather = [&](auto add) { return attend_row(layer, head, i, entries, scratch, add); };
    if (layer.way == Way::bits) return sum_bits(layer.num_inputs, scratch, u, gather);
    return sum_row(part, layer.attention.channels, num_neighbours(layer, i), scratch, sums, gather);
}

// Sums all heads of a tile's rows and puts them together in scratch.sums.
template <class Isa, typename Id>
inline void attend_tile(const Layer& layer, std::size_t first, std::size_t num_rows, bool is_few,
                        Batch<Isa, Id>& entries, Scratch<Isa>& scratch) {
    const Attention& attention = layer.attention;
    const std::size_t channels = attention.channels;
    const std::int64_t* offsets = layer.edges.offsets + first;
    const auto begin = static_cast<std::size_t>(offsets[0]);
    if (is_few) entries.cover(begin, static_cast<std::size_t>(offsets[tile_rows]));
    for (std::size_t head = 0; head < attention.heads; ++head) {
        float row_scale[tile_rows];
        Records part = layer.records;
        part.offset = head * part.stride;
        part.center += head * scratch.head_stride;
        const float* target = attention.target + head * attention.num_sources;
        if (is_few) {
            float targets[tile_rows];
            for (std::size_t r = 0; r < tile_rows; ++r) {
                targets[r] = target[own_id(layer, first + r)];
            }
            std::uint32_t totals[tile_rows];
            Isa::attend_few(entries.scores(head, begin), entries.factors(begin), offsets, targets,
                            attention.slope, layer.edge_bits, scratch.q, totals, row_scale);
            sum_few(layer, part, channels, offsets, totals, entries, scratch, scratch.head,
                    scratch.head_stride);
        } else {
            for (std::size_t r = 0; r < num_rows; ++r) {
                row_scale[r] = attend_one(layer, part, head, first + r, entries, scratch,
                                          scratch.head + r * scratch.head_stride,
                                          scratch.u + r * Isa::u_stride(layer.num_inputs));
            }
        }
        if (layer.way == Way::bits) {
            Isa::multiply(scratch.u, num_rows, layer.num_inputs, channels,
                          layer.product + head * attention.product_stride, scratch.multiply,
                          scratch.head, scratch.head_stride);
        }
        for (std::size_t r = 0; r < num_rows; ++r) {
            const float* from = scratch.head + r * scratch.head_stride;
            float* sums = scratch.sums + r * scratch.sums_stride;
            if (attention.averages) {
                Isa::add_head(from, row_scale[r], layer.scale + head * channels, head == 0,
                              channels, sums);
            } else {
                Isa::put_head(from, row_scale[r], channels, sums + head * channels);
            }
        }
    }
}

}  // namespace bignn
