// Kernels of training: what is kept for the backward pass are bits, and sums over neighbours round
// their weights as they go, so that neither floats of signs nor rounded weights are stored.
#pragma once

#include "arithmetic.cuh"

constexpr int pair_columns = 64;       // columns of a warp, two per lane
constexpr int product_rows = 16;       // rows of a warp in a product of signs
constexpr int product_words = 4;       // words of 64 bits that are multiplied at a time
constexpr int neighbours_at_once = 4;  // loads in flight
constexpr i64 long_training_row = 512;
constexpr int long_training_warps = 16;

__device__ inline i64 thread_in_grid() {
    return static_cast<i64>(blockIdx.x) * static_cast<int>(blockDim.x) +
           static_cast<int>(threadIdx.x);
}

__device__ inline int count_bits(u64 word) {
    return __popc(static_cast<u32>(word)) + __popc(static_cast<u32>(word >> 32));
}

// The bits of word number `word` of a row that has so many.
__device__ inline u64 bits_of_row(i64 num_bits, i64 word) {
    const i64 rest = num_bits - 64 * word;
    return rest >= 64 ? ~0ull : (1ull << rest) - 1;
}

// --- Dropout -----------------------------------------------------------------------------------

struct Drawing {
    const u64* seed;   // on the device, so that a recorded launch draws anew
    const u64* among;  // null: all bits
    u64* masks;
    i64 num_words, words_per_row, num_bits;
    i64 keep, digits;  // of 2^digits bits
};

// SplitMix64, as csrc/random.h.
__device__ inline u64 random_word(u64 seed, u64 number) {
    u64 z = seed + (number + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

extern "C" __global__ void draw_training_masks(Drawing drawing) {
    const i64 at = thread_in_grid();
    if (at >= drawing.num_words) return;
    u64 kept = drawing.keep >> drawing.digits != 0 ? ~0ull : 0;
    bool is_begun = false;
    for (i64 digit = 0; digit < drawing.digits; ++digit) {
        const bool is_set = (drawing.keep >> digit & 1) != 0;
        is_begun |= is_set;
        if (!is_begun) continue;
        const u64 draw = random_word(*drawing.seed, static_cast<u64>(at * drawing.digits + digit));
        kept = is_set ? kept | draw : kept & draw;
    }
    const u64 among = drawing.among ? drawing.among[at]
                                    : bits_of_row(drawing.num_bits, at % drawing.words_per_row);
    drawing.masks[at] = kept & among;
}

// --- Products of signs -------------------------------------------------------------------------

struct SignProduct {
    const u64* words;    // [rows, words_per_row]
    const u64* masks;    // the same; null: all bits
    const u64* columns;  // [columns, words_per_row]
    s16* dots;           // [rows, dot_stride], an even stride
    i64 num_rows, words_per_row, num_bits, num_columns, dot_stride;
};

// dots = sum of F_ik B_jk over the bits k that are kept. A warp has 16 rows and 64 columns.
extern "C" __global__ void multiply_signs(SignProduct product) {
    const i64 first_row = warp_in_grid() * product_rows;
    const i64 column = static_cast<i64>(blockIdx.y) * pair_columns + 2 * lane_id();
    if (first_row >= product.num_rows) return;
    int kept[product_rows] = {}, differing[product_rows][2] = {};
    for (i64 part = 0; part < product.words_per_row; part += product_words) {
        u64 b[2][product_words];
        for (int side = 0; side < 2; ++side) {
            for (int k = 0; k < product_words; ++k) {
                const bool is_there =
                    column + side < product.num_columns && part + k < product.words_per_row;
                const i64 at = (column + side) * product.words_per_row + part + k;
                b[side][k] = is_there ? product.columns[at] : 0;
            }
        }
#pragma unroll
        for (int r = 0; r < product_rows; ++r) {
            if (first_row + r >= product.num_rows) break;
            const i64 row = (first_row + r) * product.words_per_row + part;
#pragma unroll
            for (int k = 0; k < product_words; ++k) {
                if (part + k >= product.words_per_row) break;
                const u64 x = product.words[row + k];
                const u64 mask = product.masks ? product.masks[row + k] : ~0ull;
                if (product.masks) kept[r] += count_bits(mask);
                differing[r][0] += count_bits(mask & (x ^ b[0][k]));
                differing[r][1] += count_bits(mask & (x ^ b[1][k]));
            }
        }
    }
    if (column >= product.dot_stride) return;
#pragma unroll
    for (int r = 0; r < product_rows; ++r) {
        if (first_row + r >= product.num_rows) break;
        const int total = product.masks ? kept[r] : static_cast<int>(product.num_bits);
        const u32 low = static_cast<u16>(total - 2 * differing[r][0]);
        const u32 high = static_cast<u16>(total - 2 * differing[r][1]);
        const i64 at = (first_row + r) * product.dot_stride + column;
        *reinterpret_cast<u32*>(product.dots + at) = high << 16 | low;
    }
}

// --- Sums over neighbours ----------------------------------------------------------------------

// How the weights of every row are rounded (arithmetic.cuh), made of its largest weight.
struct RowRounding {
    const i64* offsets;
    const i64* ids;
    const float* weights;        // null: all 1
    const float* source_factor;  // t_j, with the scale of the source's signs
    const float* target_factor;  // s_i; null: all 1
    float* two_to_e;             // [rows]
    float* row_scale;            // [rows]
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
    for (int step = warp_lanes / 2; step > 0; step /= 2) {
        const float other = shuffle_xor(most, step);
        most = other > most ? other : most;
    }
    if (lane_id() != 0) return;
    const float target = rounding.target_factor ? rounding.target_factor[row] : 1.0f;
    const RowWeights found =
        row_weights(most, end - begin, target, static_cast<int>(rounding.edge_bits));
    rounding.two_to_e[row] = found.two_to_e;
    rounding.row_scale[row] = found.scale;
}

// Sums of rows, forward of dots: out_ic = s_i scale_c sum_e q_e (D_jc + offset_c) + shift_c; and
// backward of gradients, whose rows are sources j: out_jc = scale_c sum_e q_e s_i g_ic.
struct RowSums {
    const i64* offsets;  // of the matrix, or backward of its transpose
    const i64* ids;
    const float* weights;        // null: all 1
    const float* source_factor;  // as in RowRounding
    const float* two_to_e;
    const float* row_scale;
    const i64* rows;  // the rows of more than long_training_row entries
    const void* values;
    float* out;
    const float* column_scale;  // [columns]; null: 1
    const float* column_shift;  // [columns]; null: 0
    const float* offset;        // [columns]; null: 0
    i64 num_rows, num_columns, value_stride, out_stride, limit;
};

__device__ inline void add_pair(int (&sum)[2], u32 pair, int q) {
    sum[0] += q * static_cast<s16>(pair & 0xffff);
    sum[1] += q * static_cast<s16>(pair >> 16);
}
__device__ inline void add_pair(float (&sum)[2], u32 pair, float q) {
    sum[0] += q * static_cast<float>(static_cast<s16>(pair & 0xffff));
    sum[1] += q * static_cast<float>(static_cast<s16>(pair >> 16));
}
__device__ inline void add_pair(float (&sum)[2], Floats2 pair, float q) {
    sum[0] = fmaf(q, pair.of[0], sum[0]);
    sum[1] = fmaf(q, pair.of[1], sum[1]);
}

// Adds the entries begin + 32 part, ... of a row, 32 of every 32 parts; a lane has two columns.
// Forward `Total` are whole numbers (or floats where these could overflow) and `weight_sum` gets
// the lane's share of sum_e q_e.
template <bool is_back, class Pair, class Total>
__device__ void add_entries(const RowSums& sums, i64 row, int part, int parts, i64 column,
                            Total (&total)[2], float& weight_sum) {
    const i64 begin = sums.offsets[row], end = sums.offsets[row + 1];
    const float own = is_back ? sums.source_factor[row] : sums.two_to_e[row];
    const RowWeights limits{0, 0, static_cast<u32>(sums.limit)};
    const auto* values = static_cast<const Pair*>(sums.values);
    const bool has_columns = column < sums.num_columns;
    for (i64 first = begin + warp_lanes * part; first < end; first += warp_lanes * parts) {
        const i64 entry = first + lane_id();
        u32 id = 0;
        Total weight = 0;
        if (entry < end) {
            id = static_cast<u32>(sums.ids[entry]);
            RowWeights rounding = limits;
            rounding.two_to_e = is_back ? sums.two_to_e[id] : own;
            const float source = is_back ? own : sums.source_factor[id];
            const u32 q = rounded_weight(entry_weight(sums.weights, entry, source), rounding);
            weight = static_cast<Total>(q);
            if (is_back) weight = static_cast<Total>(static_cast<float>(q) * sums.row_scale[id]);
            weight_sum += static_cast<float>(q);
        }
        const int count = end - first < warp_lanes ? static_cast<int>(end - first) : warp_lanes;
        for (int k = 0; k < count; k += neighbours_at_once) {
            Pair pairs[neighbours_at_once] = {};
            Total weights[neighbours_at_once];
#pragma unroll
            for (int n = 0; n < neighbours_at_once; ++n) {
                const i64 from = static_cast<i64>(shuffle(id, k + n));
                weights[n] = shuffle_as(weight, k + n);
                if (has_columns) pairs[n] = values[(from * sums.value_stride + column) / 2];
            }
#pragma unroll
            for (int n = 0; n < neighbours_at_once; ++n) add_pair(total, pairs[n], weights[n]);
        }
    }
}

template <bool is_back, class Total>
__device__ void store_sums(const RowSums& sums, i64 row, i64 column, const Total (&total)[2],
                           float weight_sum) {
    const float row_scale = is_back ? 1.0f : sums.row_scale[row];
    for (int side = 0; side < 2; ++side) {
        const i64 c = column + side;
        if (c >= sums.num_columns) break;
        float sum = static_cast<float>(total[side]);
        if (sums.offset) sum = sum + weight_sum * sums.offset[c];
        if (!is_back) sum = sum * row_scale;
        if (sums.column_scale) sum = sum * sums.column_scale[c];
        if (sums.column_shift) sum = sum + sums.column_shift[c];
        sums.out[row * sums.out_stride + c] = sum;
    }
}

__device__ inline float sum_of_lanes(float x) {
    for (int step = warp_lanes / 2; step > 0; step /= 2) x = x + shuffle_xor(x, step);
    return x;
}

template <bool is_back, class Pair, class Total>
__device__ void sum_short_rows(const RowSums& sums) {
    const i64 row = warp_in_grid();
    if (row >= sums.num_rows) return;
    if (sums.offsets[row + 1] - sums.offsets[row] > long_training_row) return;
    const i64 column = static_cast<i64>(blockIdx.y) * pair_columns + 2 * lane_id();
    Total total[2] = {};
    float weight_sum = 0;
    add_entries<is_back, Pair>(sums, row, 0, 1, column, total, weight_sum);
    if (sums.offset) weight_sum = sum_of_lanes(weight_sum);
    store_sums<is_back>(sums, row, column, total, weight_sum);
}

template <bool is_back, class Pair, class Total>
__device__ void sum_long_rows(const RowSums& sums) {
    __shared__ Total totals[long_training_warps][pair_columns];
    __shared__ float weight_sums[long_training_warps];
    const i64 row = sums.rows[blockIdx.x];
    const int lane = lane_id(), warp = warp_in_block();
    const i64 column = static_cast<i64>(blockIdx.y) * pair_columns + 2 * lane;
    Total total[2] = {};
    float weight_sum = 0;
    add_entries<is_back, Pair>(sums, row, warp, long_training_warps, column, total, weight_sum);
    weight_sum = sum_of_lanes(weight_sum);
    totals[warp][2 * lane] = total[0];
    totals[warp][2 * lane + 1] = total[1];
    if (lane == 0) weight_sums[warp] = weight_sum;
    __syncthreads();
    if (warp != 0) return;
    for (int other = 1; other < long_training_warps; ++other) {
        total[0] += totals[other][2 * lane];
        total[1] += totals[other][2 * lane + 1];
        weight_sum = weight_sum + weight_sums[other];
    }
    store_sums<is_back>(sums, row, column, total, weight_sum);
}

extern "C" __global__ void sum_dots(RowSums sums) { sum_short_rows<false, u32, int>(sums); }
extern "C" __global__ void sum_dots_of_long_rows(RowSums sums) {
    sum_long_rows<false, u32, int>(sums);
}
extern "C" __global__ void sum_wide_dots(RowSums sums) { sum_short_rows<false, u32, float>(sums); }
extern "C" __global__ void sum_wide_dots_of_long_rows(RowSums sums) {
    sum_long_rows<false, u32, float>(sums);
}
extern "C" __global__ void sum_gradients(RowSums sums) {
    sum_short_rows<true, Floats2, float>(sums);
}
extern "C" __global__ void sum_gradients_of_long_rows(RowSums sums) {
    sum_long_rows<true, Floats2, float>(sums);
}

// --- Signs and masks ---------------------------------------------------------------------------

struct ColumnSigns {
    const float* values;  // [rows, value_stride]
    u32* words;           // a row's two words of 32 bits, word_stride apart
    u32* inside;          // the same, of |value| <= 1
    float* totals;        // [rows], to which the sums of |value| are added
    i64 num_rows, num_columns, value_stride, word_stride;
};

// Signs of up to 64 columns; a warp has a row.
extern "C" __global__ void binarize_columns(ColumnSigns signs) {
    const i64 row = warp_in_grid();
    if (row >= signs.num_rows) return;
    float total = 0;
    for (int half = 0; half < 2; ++half) {
        const int column = warp_lanes * half + lane_id();
        const bool is_there = column < signs.num_columns;
        const float value = is_there ? signs.values[row * signs.value_stride + column] : 0.0f;
        const float size = value < 0 ? -value : value;
        const u32 word = ballot(is_there && value >= 0), inside = ballot(is_there && size <= 1);
        total = total + size;
        if (lane_id() == 0) {
            signs.words[row * signs.word_stride + half] = word;
            signs.inside[row * signs.word_stride + half] = inside;
        }
    }
    total = sum_of_lanes(total);
    if (lane_id() == 0) signs.totals[row] = signs.totals[row] + total;
}

struct MaskedRows {
    const float* values;      // [rows, value_stride]
    const u32* masks;         // [rows, word_stride]; null: all
    const u32* inside;        // the same
    const float* row_factor;  // [rows]
    float* out;               // [rows, out_stride]
    i64 num_rows, num_columns, value_stride, out_stride, word_stride;
};

// out = values * factor where the bits of both masks are set, and 0 elsewhere.
extern "C" __global__ void mask_rows(MaskedRows masked) {
    const i64 row = warp_in_grid();
    if (row >= masked.num_rows) return;
    const float factor = masked.row_factor[row];
    for (i64 column = lane_id(); column < masked.num_columns; column += warp_lanes) {
        u32 word = masked.inside[row * masked.word_stride + column / warp_lanes];
        if (masked.masks) word &= masked.masks[row * masked.word_stride + column / warp_lanes];
        const bool is_set = (word >> (column % warp_lanes) & 1) != 0;
        const float value = masked.values[row * masked.value_stride + column];
        masked.out[row * masked.out_stride + column] = is_set ? value * factor : 0.0f;
    }
}

struct Unpacking {
    const u64* words;
    const u64* masks;  // null: all bits
    u16* out;          // bfloat16 [rows, 64 words_per_row]: +1, -1, and 0 where nothing is kept
    i64 num_rows, words_per_row, num_bits;
};

extern "C" __global__ void unpack_signs(Unpacking unpacking) {
    const i64 at = warp_in_grid();
    if (at >= unpacking.num_rows * unpacking.words_per_row) return;
    const i64 place = at % unpacking.words_per_row;
    const u64 mask = unpacking.masks ? unpacking.masks[at] : bits_of_row(unpacking.num_bits, place);
    const u64 word = unpacking.words[at];
    u32 pair = 0;
    for (int side = 0; side < 2; ++side) {
        const int bit = 2 * lane_id() + side;
        const u32 sign = (word >> bit & 1) != 0 ? 0x3f80u : 0xbf80u;
        if ((mask >> bit & 1) != 0) pair |= sign << (16 * side);
    }
    reinterpret_cast<u32*>(unpacking.out)[at * warp_lanes + lane_id()] = pair;
}

struct Splitting {
    const float* values;  // [rows, value_stride]
    u16* out;             // bfloat16 [rows, 2 columns]: the upper parts, then the rests
    i64 num_rows, num_columns, value_stride;
};

__device__ inline u16 as_bfloat16(float x) {
    const u32 bits = __float_as_uint(x);
    return static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

// x = upper + rest to 16 significant bits, for products of tensor cores with exact signs.
extern "C" __global__ void split_floats(Splitting splitting) {
    const i64 at = thread_in_grid();
    if (at >= splitting.num_rows * splitting.num_columns) return;
    const i64 row = at / splitting.num_columns, column = at % splitting.num_columns;
    const float x = splitting.values[row * splitting.value_stride + column];
    const u16 upper = as_bfloat16(x);
    const float rest = x - __uint_as_float(static_cast<u32>(upper) << 16);
    const i64 begin = 2 * row * splitting.num_columns + column;
    splitting.out[begin] = upper;
    splitting.out[begin + splitting.num_columns] = as_bfloat16(rest);
}
