// Way G: the product of the sums of bits with B, on byte tensor cores, and the ends of its rows.
//
// With u_k = 2 p_k - total and B_k = 2 b_k - 1, both sums over neighbours of +-1,
//
//     sum_k u_k B_k = 4 sum_k p_k b_k - 2 sum_k p_k + total (K - 2 sum_k b_k),
//
// so that only zeros and ones are multiplied with the digits of p, bytes of it. A warp sums the
// bits of a tile of 16 rows into its shared memory as two digits each, multiplies them with all
// columns, 32 at a time, and finishes the rows as they come. Where a row of the tile takes more
// than two digits, the tile is done in halves, of four digits each.
#pragma once

#include "bits.cuh"
#include "finish.cuh"

struct Product {
    SumBits sum;
    const u32* totals;
    const u32* columns;  // B as bits [columns / 32 + 1, inputs / 128, 32 lanes, 4]
    // Of columns padded to 32: K - 2 sum_k b_k, scales and shifts.
    const int* rest;
    const float* scale;
    const float* shift;
    Finish finish;
};

constexpr int tile_columns = 32, column_tiles = tile_columns / 8;
constexpr u32 most_of_two_digits = 0xffff;

// A bit of B is shifted to the top of its byte: sums come out 128 times too large, which 32 bits
// hold for 2^16 inputs.
constexpr u32 top_bits = 0x80808080u;
constexpr int top_bit = 7;

// Sums of 32 columns: of four times eight columns and of each digit.
using ColumnSums = int[column_tiles][2][4];

// Multiplies with the 32 columns whose first bits are in `next`; leaves there what follows them.
__device__ inline void multiply_digits(const Digits& digits, int blocks, const Words4*& columns,
                                       Words4& next, ColumnSums& sums) {
    const u8* bytes = digits_at(digits, 0, lane_id() / 4, 8 * (lane_id() % 4));
    const int digit_stride = tile_pairs * digits.stride;
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
        const Words4 bits = next;
        columns += warp_lanes;
        next = *columns;
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            Words4 a[2];
#pragma unroll
            for (int digit = 0; digit < 2; ++digit) {
                a[digit] =
                    *reinterpret_cast<const Words4*>(bytes + digit * digit_stride + 64 * step);
            }
#pragma unroll
            for (int n = 0; n < column_tiles; ++n) {
                const u32 b0 = bits.words[n] << (7 - 2 * step) & top_bits;
                const u32 b1 = bits.words[n] << (6 - 2 * step) & top_bits;
#pragma unroll
                for (int digit = 0; digit < 2; ++digit) {
                    const u32(&rows)[4] = a[digit].words;
                    multiply_bytes(sums[n][digit], rows[0], rows[1], rows[2], rows[3], b0, b1);
                }
            }
        }
        bytes += 256;
    }
}

struct alignas(8) Ints2 {
    int of[2];
};

// Multiplies a tile whose first row is `first` and finishes its rows.
template <bool is_wide, bool has_own>
__device__ void multiply_tile(const Product& from, i64 first, const Digits& digits,
                              const u64* all_ones) {
    const Finish& to = from.finish;
    const int g = lane_id() / 4, t = lane_id() % 4;
    TileRow rows[2];
    u32 totals[2];
    u64 all[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int of_tile = is_wide ? g : 2 * g + r;
        const i64 row = first + of_tile;
        rows[r] = tile_row(to, row, row < to.num_rows && !(r == 1 && is_wide));
        totals[r] = rows[r].is_there ? from.totals[row] : 0u;
        all[r] = all_ones[of_tile];
    }
    const int num_columns = static_cast<int>(to.num_columns);
    const int blocks = static_cast<int>(from.sum.inputs) / 128;
    const auto* columns = reinterpret_cast<const Words4*>(from.columns) + lane_id();
    Words4 next = *columns;
#pragma unroll 1
    for (int column = 0; column < num_columns; column += tile_columns) {
        Ints2 rest[column_tiles];
        Floats2 scale[column_tiles], shift[column_tiles];
#pragma unroll
        for (int n = 0; n < column_tiles; ++n) {
            const int c = column + 8 * n + 2 * t;
            rest[n] = *reinterpret_cast<const Ints2*>(from.rest + c);
            scale[n] = *reinterpret_cast<const Floats2*>(from.scale + c);
            shift[n] = *reinterpret_cast<const Floats2*>(from.shift + c);
        }
        ColumnSums sums = {};
        multiply_digits(digits, blocks, columns, next, sums);
        float h[2][column_tiles][2];
#pragma unroll
        for (int n = 0; n < column_tiles; ++n) {
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                const int c = column + 8 * n + 2 * t + k;
                const auto product_times_4 = [&](int r) {
                    return (static_cast<u32>(sums[n][0][2 * r + k]) >> (top_bit - 2)) +
                           (static_cast<u32>(sums[n][1][2 * r + k]) << (8 + 2 - top_bit));
                };
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    float sum;
                    if (is_wide) {
                        const u64 both =
                            (static_cast<u64>(product_times_4(1)) << 16) + product_times_4(0);
                        sum = __ll2float_rn(static_cast<i64>(both - 2 * all[r]) +
                                            static_cast<i64>(totals[r]) * rest[n].of[k]);
                    } else {  // |sum| <= total K: it comes out whatever overflows on the way
                        const u32 of_row = product_times_4(r) - 2u * static_cast<u32>(all[r]) +
                                           totals[r] * static_cast<u32>(rest[n].of[k]);
                        sum = static_cast<float>(static_cast<int>(of_row));
                    }
                    float value = sum * rows[r].scale * scale[n].of[k];
                    if (has_own && rows[r].is_there && c < num_columns) {
                        value = value + own_part(to, rows[r].own, c);
                    }
                    h[r][n][k] = value + shift[n].of[k];
                }
            }
        }
#pragma unroll
        for (int r = 0; r < (is_wide ? 1 : 2); ++r) finish_columns(to, rows[r], column, h[r]);
    }
#pragma unroll
    for (int r = 0; r < (is_wide ? 1 : 2); ++r) finish_tile_row(to, rows[r]);
}

template <class Largest, bool has_own>
__device__ void do_tile(const Product& from) {
    DYNAMIC_SHARED(shared);
    __shared__ u64 all_ones[many_rows];
    const i64 first = static_cast<i64>(blockIdx.x) * many_rows;
    const i64 row = first + lane_id() % many_rows;
    Digits digits;
    digits.is_wide =
        ballot(row < from.finish.num_rows && from.totals[row] > most_of_two_digits) != 0;
    digits.bytes = shared;
    digits.stride = 2 * static_cast<int>(from.sum.inputs) + 64;
    const int rows = digits.is_wide ? group_rows : many_rows;
#pragma unroll 1
    for (int done = 0; done < many_rows; done += rows) {
#pragma unroll 1
        for (int group = 0; group < rows; group += group_rows) {
            sum_group<Largest>(from.sum, first + done + group, digits, group, all_ones);
        }
        sync_warp();
        if (digits.is_wide) {
            multiply_tile<true, has_own>(from, first + done, digits, all_ones);
        } else {
            multiply_tile<false, has_own>(from, first + done, digits, all_ones);
        }
        sync_warp();
    }
}

// A block is a warp, and does a tile; of layers without and with a part of a node's own, of less
// than 512 inputs and of more.
extern "C" __global__ void __launch_bounds__(warp_lanes, 12) sum_and_multiply_256(Product from) {
    do_tile<u32, false>(from);
}
extern "C" __global__ void __launch_bounds__(warp_lanes, 12)
    sum_and_multiply_256_own(Product from) {
    do_tile<u32, true>(from);
}
extern "C" __global__ void __launch_bounds__(warp_lanes, 8) sum_and_multiply_512(Product from) {
    do_tile<u64, false>(from);
}
extern "C" __global__ void __launch_bounds__(warp_lanes, 8) sum_and_multiply_512_own(Product from) {
    do_tile<u64, true>(from);
}
