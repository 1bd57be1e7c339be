// Sums over neighbours in training, forward and backward: they round their weights as they go, so
// that no rounded weights are stored. Gradients are whole numbers of 16 bits with scales.
#pragma once

#include "arithmetic.cuh"

constexpr int lane_columns = 8;        // columns of a lane in sums, 16 bytes
constexpr int scaled_columns = 32;     // columns of a gradient that have a scale in common
constexpr int neighbours_at_once = 8;  // loads in flight
constexpr i64 long_training_row = 128;
constexpr int long_training_warps = 16;
constexpr float largest_whole = 32767.0f;
constexpr float smallest_float = 1.17549435e-38f;
constexpr float largest_float = 3.40282347e38f;
constexpr float least_gradient = 1e-32f;  // what is smaller counts as 0

__device__ inline float sum_of_lanes(float x) {
    for (int step = warp_lanes / 2; step > 0; step /= 2) x = x + shuffle_xor(x, step);
    return x;
}

__device__ inline float most_of_lanes(float x) {
    for (int step = warp_lanes / 2; step > 0; step /= 2) {
        const float other = shuffle_xor(x, step);
        x = other > x ? other : x;
    }
    return x;
}

__device__ inline u16 as_bfloat16(float x) {
    if (x != x) return 0x7fc0;  // a GPU's own NaN would round to -0
    const u32 bits = __float_as_uint(x);
    return static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// --- Sums over neighbours ----------------------------------------------------------------------

// How the weights of every row are rounded (arithmetic.cuh), made of its largest weight.
struct RowRounding {
    const i64* offsets;
    const i64* ids;
    const float* weights;        // null: all 1
    const float* source_factor;  // t_j, with the scale of the source's signs
    const float* target_factor;  // s_i; null: all 1
    Floats2* factors;            // [rows]: two_to_e, and the scale of the row's sum
    i64 num_rows, edge_bits;
};

__device__ inline float entry_weight(const float* weights, i64 entry, float source_factor) {
    return weights ? bounded(weights[entry] * source_factor) : source_factor;
}

extern "C" __global__ void round_training_rows(RowRounding rounding) {
    const i64 row = warp_in_grid();
    if (row >= rounding.num_rows) return;
    const i64 begin = rounding.offsets[row], end = rounding.offsets[row + 1];
    float most = 0;
    for (i64 entry = begin + lane_id(); entry < end; entry += warp_lanes) {
        const float source = rounding.source_factor[rounding.ids[entry]];
        const float x = entry_weight(rounding.weights, entry, source);
        most = x > most ? x : most;
    }
    most = most_of_lanes(most);
    if (lane_id() != 0) return;
    const float target = rounding.target_factor ? rounding.target_factor[row] : 1.0f;
    const RowWeights found =
        row_weights(most, end - begin, target, static_cast<int>(rounding.edge_bits));
    rounding.factors[row] = {{found.two_to_e, found.scale}};
}

// Sums of rows of 16-bit numbers v, eight columns per lane.
// Forward, of dots: h_ic = s_i scale_c sum_e q_e (v_jc + offset_c) + shift_c, as floats, or as bits
// of h >= 0 and |h| <= 1 and the mean of |h|. Backward, of gradients g_ic = v_ic scales_ic, whose
// rows are sources j: t_jc = scale_c sum_e q_e s_i g_ic, as the sum of two bfloat16.
struct RowSums {
    const i64* offsets;  // of the matrix, or backward of its transpose
    const i64* ids;
    const float* weights;        // null: all 1
    const float* source_factor;  // as in RowRounding
    const Floats2* factors;      // as in RowRounding
    const i64* long_rows;        // the rows of more than long_training_row entries
    const s16* values;           // [rows, value_stride]; rows begin at multiples of 16 bytes
    const float* scales;         // backward [rows, scale_stride], of 32 columns each
    const float* column_scale;   // [columns]
    const float* column_shift;   // [columns]; null: 0
    const float* offset;         // [columns]; null: 0
    float* out;                  // [rows, columns]; null: bits, or backward halves
    u8* words;                   // [rows, bytes_per_row]
    u8* inside;                  // the same
    float* means;                // [rows]
    u16* halves;                 // backward, from first_row on: [rows, 2 value_stride]
    i64 first_row, num_rows, num_columns, value_stride, scale_stride, bytes_per_row;
    i64 lanes_per_row;  // 8, 16 or 32 of a warp's lanes; the others take other neighbours
    i64 limit;
};

__device__ inline void add_columns(int (&sum)[lane_columns], const Words4& values, int q) {
#pragma unroll
    for (int k = 0; k < lane_columns / 2; ++k) {
        sum[2 * k] += q * static_cast<s16>(values.words[k] & 0xffff);
        sum[2 * k + 1] += q * static_cast<s16>(values.words[k] >> 16);
    }
}
__device__ inline void add_columns(float (&sum)[lane_columns], const Words4& values, float q) {
#pragma unroll
    for (int k = 0; k < lane_columns / 2; ++k) {
        const s16 low = static_cast<s16>(values.words[k] & 0xffff);
        const s16 high = static_cast<s16>(values.words[k] >> 16);
        sum[2 * k] = fmaf(q, static_cast<float>(low), sum[2 * k]);
        sum[2 * k + 1] = fmaf(q, static_cast<float>(high), sum[2 * k + 1]);
    }
}

// Adds the entries begin + 32 part, ... of a row, 32 of every 32 parts. Forward `Total` are whole
// numbers (or floats where these could overflow), and `weight_sum` gets the lane's share of
// sum_e q_e. Groups of lanes_per_row lanes take neighbours in turn; their sums are added up.
template <bool is_back, class Total>
__device__ void add_entries(const RowSums& sums, i64 row, int part, int parts, int column,
                            Total (&total)[lane_columns], float& weight_sum) {
    const i64 begin = sums.offsets[row], end = sums.offsets[row + 1];
    const float own = is_back ? sums.source_factor[row] : sums.factors[row].of[0];
    const RowWeights limits{0, 0, static_cast<u32>(sums.limit)};
    const int lanes_per_row = static_cast<int>(sums.lanes_per_row);
    const int groups = warp_lanes / lanes_per_row, group = lane_id() / lanes_per_row;
    const bool has_columns = column < sums.num_columns;
    for (i64 first = begin + warp_lanes * part; first < end; first += warp_lanes * parts) {
        const i64 entry = first + lane_id();
        u32 id = 0;
        Total weight = 0;
        if (entry < end) {
            id = static_cast<u32>(sums.ids[entry]);
            RowWeights rounding = limits;
            Floats2 factors{};
            if (is_back) factors = sums.factors[id];
            rounding.two_to_e = is_back ? factors.of[0] : own;
            const float source = is_back ? own : sums.source_factor[id];
            const u32 q = rounded_weight(entry_weight(sums.weights, entry, source), rounding);
            weight = static_cast<Total>(q);
            if (is_back) weight = static_cast<Total>(static_cast<float>(q) * factors.of[1]);
            weight_sum += static_cast<float>(q);
        }
        const int count = end - first < warp_lanes ? static_cast<int>(end - first) : warp_lanes;
        for (int k = 0; k < count; k += neighbours_at_once * groups) {
            Words4 taken[neighbours_at_once] = {};
            Total weights[neighbours_at_once];
#pragma unroll
            for (int n = 0; n < neighbours_at_once; ++n) {
                const int at = k + n * groups + group;  // under 32: there are four groups at most
                const i64 from = static_cast<i64>(shuffle(id, at));
                weights[n] = shuffle_as(weight, at);
                if (!has_columns || at >= count) continue;
                taken[n] = *reinterpret_cast<const Words4*>(sums.values + from * sums.value_stride +
                                                            column);
                if (is_back) {
                    const i64 scale = from * sums.scale_stride + column / scaled_columns;
                    weights[n] = weights[n] * static_cast<Total>(sums.scales[scale]);
                }
            }
#pragma unroll
            for (int n = 0; n < neighbours_at_once; ++n) add_columns(total, taken[n], weights[n]);
        }
    }
    for (int step = lanes_per_row; step < warp_lanes; step *= 2) {
        for (int side = 0; side < lane_columns; ++side) {
            total[side] += shuffle_as(total[side], lane_id() ^ step);
        }
    }
}

// Ends the columns of a lane; forward, its share of the row's sum of |h| is added to `size`.
template <bool is_back, class Total>
__device__ void end_columns(const RowSums& sums, i64 row, int column,
                            const Total (&total)[lane_columns], float weight_sum, float& size) {
    const float row_scale = is_back ? 1.0f : sums.factors[row].of[1];
    u32 signs = 0, inside = 0;
    Words4 upper{}, rest{};
#pragma unroll
    for (int side = 0; side < lane_columns; ++side) {
        const int c = column + side;
        if (c >= sums.num_columns) break;
        float sum = static_cast<float>(total[side]);
        if (is_back) {
            sum = sum * sums.column_scale[c];
            const u16 high = as_bfloat16(sum);
            const u16 low = as_bfloat16(sum - __uint_as_float(static_cast<u32>(high) << 16));
            upper.words[side / 2] |= static_cast<u32>(high) << (16 * (side % 2));
            rest.words[side / 2] |= static_cast<u32>(low) << (16 * (side % 2));
            continue;
        }
        if (sums.offset) sum = sum + weight_sum * sums.offset[c];
        sum = sum * row_scale * sums.column_scale[c];
        if (sums.column_shift) sum = sum + sums.column_shift[c];
        if (sums.out) {
            sums.out[row * sums.num_columns + c] = sum;
            continue;
        }
        const float absolute = sum < 0 ? -sum : sum;
        signs |= (sum >= 0 ? 1u : 0u) << side;
        inside |= (absolute <= 1 ? 1u : 0u) << side;
        size = size + absolute;
    }
    if (is_back) {
        if (column >= sums.value_stride) return;
        u16* to = sums.halves + 2 * (row - sums.first_row) * sums.value_stride + column;
        *reinterpret_cast<Words4*>(to) = upper;
        *reinterpret_cast<Words4*>(to + sums.value_stride) = rest;
    } else if (!sums.out && column / lane_columns < sums.bytes_per_row) {
        const i64 at = row * sums.bytes_per_row + column / lane_columns;
        sums.words[at] = static_cast<u8>(signs);
        sums.inside[at] = static_cast<u8>(inside);
    }
}

__device__ inline void store_mean(const RowSums& sums, i64 row, float size) {
    if (!sums.means) return;
    size = sum_of_lanes(size) / static_cast<float>(sums.num_columns);
    if (lane_id() == 0) sums.means[row] = size < smallest_float ? smallest_float : size;
}

template <bool is_back, class Total>
__device__ void sum_short_rows(const RowSums& sums) {
    const i64 row = sums.first_row + warp_in_grid();
    if (warp_in_grid() >= sums.num_rows) return;
    if (sums.offsets[row + 1] - sums.offsets[row] > long_training_row) return;
    const int lanes_per_row = static_cast<int>(sums.lanes_per_row), lane = lane_id();
    float size = 0;
    for (int first = 0; first < 8 * sums.bytes_per_row; first += lane_columns * lanes_per_row) {
        const int column = first + lane_columns * (lane % lanes_per_row);
        Total total[lane_columns] = {};
        float weight_sum = 0;
        add_entries<is_back>(sums, row, 0, 1, column, total, weight_sum);
        if (sums.offset) weight_sum = sum_of_lanes(weight_sum);
        if (lane < lanes_per_row) {
            end_columns<is_back>(sums, row, column, total, weight_sum, size);
        }
    }
    store_mean(sums, row, size);
}

template <bool is_back, class Total>
__device__ void sum_long_rows(const RowSums& sums) {
    __shared__ Total totals[long_training_warps][lane_columns * warp_lanes];
    __shared__ float weight_sums[long_training_warps];
    const i64 row = sums.long_rows[blockIdx.x];
    if (row < sums.first_row || row >= sums.first_row + sums.num_rows) return;
    const int lanes_per_row = static_cast<int>(sums.lanes_per_row), lane = lane_id();
    const int warp = warp_in_block();
    float size = 0;
    for (int first = 0; first < 8 * sums.bytes_per_row; first += lane_columns * lanes_per_row) {
        const int column = first + lane_columns * (lane % lanes_per_row);
        Total total[lane_columns] = {};
        float weight_sum = 0;
        add_entries<is_back>(sums, row, warp, long_training_warps, column, total, weight_sum);
        weight_sum = sum_of_lanes(weight_sum);
        for (int side = 0; side < lane_columns; ++side) {
            totals[warp][lane_columns * lane + side] = total[side];
        }
        if (lane == 0) weight_sums[warp] = weight_sum;
        __syncthreads();
        if (warp == 0) {
            for (int other = 1; other < long_training_warps; ++other) {
                for (int side = 0; side < lane_columns; ++side) {
                    total[side] += totals[other][lane_columns * lane + side];
                }
                weight_sum = weight_sum + weight_sums[other];
            }
            if (lane < lanes_per_row) {
                end_columns<is_back>(sums, row, column, total, weight_sum, size);
            }
        }
        __syncthreads();
    }
    if (warp == 0) store_mean(sums, row, size);
}

extern "C" __global__ void sum_dots(RowSums sums) { sum_short_rows<false, int>(sums); }
extern "C" __global__ void sum_dots_of_long_rows(RowSums sums) { sum_long_rows<false, int>(sums); }
extern "C" __global__ void sum_wide_dots(RowSums sums) { sum_short_rows<false, float>(sums); }
extern "C" __global__ void sum_wide_dots_of_long_rows(RowSums sums) {
    sum_long_rows<false, float>(sums);
}
extern "C" __global__ void __launch_bounds__(256, 3) sum_gradients(RowSums sums) {
    sum_short_rows<true, float>(sums);
}
extern "C" __global__ void sum_gradients_of_long_rows(RowSums sums) {
    sum_long_rows<true, float>(sums);
}

// --- Gradients as whole numbers ----------------------------------------------------------------

struct RowScaling {
    const float* values;      // [rows, value_stride]
    const u32* masks;         // [rows, word_stride]; null: all
    const u32* inside;        // the same
    const float* row_factor;  // [rows]; null: 1
    s16* out;                 // [rows, out_stride]
    float* scales;            // [rows, scale_stride]
    i64 num_rows, num_columns, padded_columns, value_stride, word_stride, out_stride, scale_stride;
};

// values * factor where the bits of both masks are set, and 0 elsewhere, as whole numbers of 16
// bits times a scale for 32 columns, which eight lanes have. What is not finite makes the scale
// NaN.
extern "C" __global__ void scale_rows(RowScaling scaling) {
    constexpr int columns = 4, lanes = scaled_columns / columns;
    const i64 row = warp_in_grid();
    if (row >= scaling.num_rows) return;
    const float factor = scaling.row_factor ? scaling.row_factor[row] : 1.0f;
    for (i64 first = 0; first < scaling.num_columns; first += columns * warp_lanes) {
        const i64 column = first + columns * lane_id(), part = column / scaled_columns;
        const bool is_there = column < scaling.num_columns;
        u32 word = ~0u;
        if (is_there && scaling.inside) word = scaling.inside[row * scaling.word_stride + part];
        if (is_there && scaling.masks) word &= scaling.masks[row * scaling.word_stride + part];
        float values[columns] = {}, most = 0;
#pragma unroll
        for (int side = 0; side < columns; ++side) {
            const i64 c = column + side;
            if (c >= scaling.num_columns || (word >> (c % scaled_columns) & 1) == 0) continue;
            values[side] = scaling.values[row * scaling.value_stride + c] * factor;
            const float size = values[side] < 0 ? -values[side] : values[side];
            most = size <= most ? most : size <= largest_float ? size : 2 * largest_float;
        }
        for (int step = 1; step < lanes; step *= 2) {
            const float other = shuffle_xor(most, step);
            most = other > most ? other : most;
        }
        if (column >= scaling.padded_columns) continue;
        const bool counts = most > least_gradient && most <= largest_float;
        const float times = counts ? largest_whole / most : 0.0f;
#pragma unroll
        for (int side = 0; side < columns; ++side) {
            if (column + side >= scaling.padded_columns) break;
            scaling.out[row * scaling.out_stride + column + side] =
                static_cast<s16>(counts ? __float2int_rn(values[side] * times) : 0);
        }
        if (lane_id() % lanes != 0) continue;
        const float scale = counts ? most / largest_whole : 0.0f;
        scaling.scales[row * scaling.scale_stride + part] =
            most <= largest_float ? scale : __uint_as_float(0x7fc00000u);
    }
}

struct ColumnTotals {
    const s16* values;    // [rows, value_stride]
    const float* scales;  // [rows, scale_stride]
    float* out;           // [warps, value_stride]
    i64 num_rows, num_warps, value_stride, scale_stride;
};

// Sums of the rows w, w + num_warps, ... of a gradient, for warp w.
extern "C" __global__ void sum_gradient_columns(ColumnTotals totals) {
    const i64 warp = warp_in_grid();
    if (warp >= totals.num_warps) return;
    for (i64 column = lane_columns * lane_id(); column < totals.value_stride;
         column += lane_columns * warp_lanes) {
        float sum[lane_columns] = {};
        for (i64 row = warp; row < totals.num_rows; row += totals.num_warps) {
            const Words4 values = *reinterpret_cast<const Words4*>(
                totals.values + row * totals.value_stride + column);
            add_columns(sum, values,
                        totals.scales[row * totals.scale_stride + column / scaled_columns]);
        }
        for (int side = 0; side < lane_columns; ++side) {
            totals.out[warp * totals.value_stride + column + side] = sum[side];
        }
    }
}
