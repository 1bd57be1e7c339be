// Sums over neighbours in training and evaluation of torch models: rounded weights, weighted sums
// of float rows, and the scales of rows, to the last bit as plain loops have them.
#pragma once

#include "arithmetic.h"

namespace bignn {

// See isa.h for what Isa is.
template <class Isa>
struct Weighted {
    static void round_rows(const FactoredRows& rows, int edge_bits, std::size_t begin,
                           std::size_t end, float* q, float* scale) {
        const auto start = static_cast<std::size_t>(rows.offsets[begin]);
        const auto all = static_cast<std::size_t>(rows.offsets[end]) - start;
        const float* given = rows.weights ? rows.weights + start : nullptr;
        Isa::weigh(rows.ids + start, given, all, rows.source_factor, q + start);
        for (std::size_t i = begin; i < end; ++i) {
            const auto first = static_cast<std::size_t>(rows.offsets[i]);
            const auto stop = static_cast<std::size_t>(rows.offsets[i + 1]);
            const float most = Isa::largest(q + first, stop - first);
            const float factor = rows.row_factor ? rows.row_factor[i] : 1.0f;
            const RowWeights weights = row_weights(most, stop - first, factor, edge_bits);
            const auto limit = static_cast<float>(weights.limit);
            for (std::size_t e = first; e < stop; ++e) {
                const float rounded = __builtin_rintf(q[e] * weights.two_to_e);
                q[e] = rounded < limit ? rounded : limit;
            }
            scale[i] = weights.scale;
        }
    }

    // Whole numbers below this are exact in float32, and so are their sums.
    static constexpr std::size_t exact_floats = 1 << 24;
    static constexpr std::size_t lanes = Isa::lanes;
    using floats = typename Isa::floats;
    typedef double doubles __attribute__((vector_size(2 * sizeof(floats))));

    // Sums of columns, in vectors of floats or of doubles. They are passed by reference, since
    // vectors wider than the CPU's have no fixed way to be passed.
    template <class Sum>
    static void add(Sum& sum, float weight, const float* from) {
        floats values;
        __builtin_memcpy(&values, from, sizeof values);
        sum += __builtin_convertvector(values, Sum) * weight;
    }

    template <class Sum>
    static void finish(const Sum& sum, const float* scale, std::size_t count, float* to) {
        floats values = __builtin_convertvector(sum, floats);
        if (scale) values = values * *scale;
        if (count >= lanes) {
            __builtin_memcpy(to, &values, sizeof values);
        } else {
            for (std::size_t c = 0; c < count; ++c) to[c] = values[c];
        }
    }

    template <class Sum>
    static void sum_row(const WeightedRows& rows, std::size_t i, const float* x,
                        std::size_t num_columns, float* out) {
        const std::int64_t first = rows.offsets[i], stop = rows.offsets[i + 1];
        const float* scale = rows.scale ? rows.scale + i : nullptr;
        const auto weight = [&](std::int64_t e) {
            return rows.weights[rows.places ? rows.places[e] : e];
        };
        const auto source = [&](std::int64_t e) {
            return x + static_cast<std::size_t>(rows.ids[e]) * num_columns;
        };
        std::size_t c = 0;
        for (; c + 4 * lanes <= num_columns; c += 4 * lanes) {
            Sum s0 = {}, s1 = s0, s2 = s0, s3 = s0;
            for (std::int64_t e = first; e < stop; ++e) {
                const float w = weight(e);
                const float* from = source(e) + c;
                add(s0, w, from), add(s1, w, from + lanes);
                add(s2, w, from + 2 * lanes), add(s3, w, from + 3 * lanes);
            }
            finish(s0, scale, lanes, out + c), finish(s1, scale, lanes, out + c + lanes);
            finish(s2, scale, lanes, out + c + 2 * lanes);
            finish(s3, scale, lanes, out + c + 3 * lanes);
        }
        const float* end = x + rows.num_sources * num_columns;
        for (; c < num_columns; c += lanes) {
            Sum sum = {};
            for (std::int64_t e = first; e < stop; ++e) {
                const float* from = source(e) + c;
                // What is read past a row's end belongs to the next row, and is not written.
                if (from + lanes <= end) {
                    add(sum, weight(e), from);
                } else {
                    float rest[lanes] = {};
                    for (std::size_t k = 0; from + k < end; ++k) rest[k] = from[k];
                    add(sum, weight(e), rest);
                }
            }
            finish(sum, scale, num_columns - c, out + c);
        }
    }

    static void sum_rows(const WeightedRows& rows, const float* x, std::size_t num_columns,
                         std::size_t largest, std::size_t begin, std::size_t end, float* out) {
        for (std::size_t i = begin; i < end; ++i) {
            const auto count = static_cast<std::size_t>(rows.offsets[i + 1] - rows.offsets[i]);
            if (count * largest >= exact_floats) {
                sum_row<doubles>(rows, i, x, num_columns, out + i * num_columns);
            } else {
                sum_row<floats>(rows, i, x, num_columns, out + i * num_columns);
            }
        }
    }

    // The order of additions is that of packed layers: column c in partial sum c % 16.
    static void row_means(const float* h, std::size_t num_columns, std::size_t begin,
                          std::size_t end, float* beta) {
        constexpr std::size_t partial_sums = 16;
        for (std::size_t i = begin; i < end; ++i) {
            const float* row = h + i * num_columns;
            float sums[partial_sums] = {};
            std::size_t c = 0;
            for (; c + partial_sums <= num_columns; c += partial_sums) {
                for (std::size_t k = 0; k < partial_sums; ++k) {
                    sums[k] += __builtin_fabsf(row[c + k]);
                }
            }
            for (std::size_t k = 0; c + k < num_columns; ++k) {
                sums[k] += __builtin_fabsf(row[c + k]);
            }
            for (std::size_t half = partial_sums / 2; half > 0; half /= 2) {
                for (std::size_t k = 0; k < half; ++k) sums[k] += sums[half + k];
            }
            beta[i] = bounded(sums[0] / static_cast<float>(num_columns));
        }
    }
};

}  // namespace bignn
