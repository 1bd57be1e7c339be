// Way G: the product of the sums of bits with B, on byte tensor cores, and the ends of its rows.
//
// With u_k = 2 p_k - total and B_k = 2 b_k - 1, both sums over neighbours of +-1,
//
//     sum_k u_k B_k = 4 sum_k p_k b_k - 2 sum_k p_k + total (K - 2 sum_k b_k),
//
// so that only zeros and ones are multiplied with the digits of p. Digits are done from the last to
// the first, sums multiplied by 256 in between. Where 32 bits do not hold them, the upper two digits
// and the lower two are summed by themselves: 2^16 inputs of 16 bits are below 2^32.
#pragma once

#include "finish.cuh"

struct Product {
    const u8* digits;
    i64 first_row, end_row;  // the rows that `digits` has
    i64 inputs;              // padded
    const u16* columns;      // B as bits [columns padded to 8, inputs / 16], inputs as in digits
    const int* ones;         // [columns], sum_k b_k
    const u32* totals;
    Finish finish;
};

constexpr int product_rows = 32, product_warps = 8;
constexpr int row_tiles = product_rows / 16, column_tiles = 4;

// Four bits as four bytes.
__device__ inline u32 spread(u32 bits) { return (bits & 15u) * 0x00204081u & 0x01010101u; }

struct alignas(16) Bytes16 {
    u32 words[4];
};

using Sums = int[row_tiles][column_tiles][4];

// Adds digits [low, high) of the block's rows to sums, the last first.
__device__ inline void multiply_digits(const Product& from, const int* num_digits, int low,
                                       int high, int first_column, int num_columns, Sums& sums) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    const i64 first = static_cast<i64>(blockIdx.x) * product_rows;
    for (int digit = high - 1; digit >= low; --digit) {
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int n = 0; n < column_tiles; ++n) {
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    sums[m][n][k] = static_cast<int>(static_cast<u32>(sums[m][n][k]) << 8);
                }
            }
        }
        const u8* rows[row_tiles][2];  // null where a row has fewer digits
#pragma unroll
        for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
            for (int upper = 0; upper < 2; ++upper) {
                const int row = m * 16 + upper * 8 + g;
                rows[m][upper] = nullptr;
                if (digit < num_digits[row]) {
                    rows[m][upper] =
                        from.digits + ((first + row) * 4 + digit) * from.inputs + 16 * t;
                }
            }
        }
        for (i64 at = 0; at < from.inputs; at += 64) {
            Bytes16 a[row_tiles][2];
#pragma unroll
            for (int m = 0; m < row_tiles; ++m) {
#pragma unroll
                for (int upper = 0; upper < 2; ++upper) {
                    a[m][upper] = Bytes16{};
                    if (rows[m][upper]) {
                        a[m][upper] = *reinterpret_cast<const Bytes16*>(rows[m][upper] + at);
                    }
                }
            }
#pragma unroll
            for (int n = 0; n < column_tiles; ++n) {
                if (first_column + 8 * n >= num_columns) break;
                const u32 bits = from.columns[(first_column + 8 * n + g) * (from.inputs / 16) +
                                              at / 16 + t];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const u32 b0 = spread(bits >> (8 * half)), b1 = spread(bits >> (8 * half + 4));
#pragma unroll
                    for (int m = 0; m < row_tiles; ++m) {
                        multiply_bytes(sums[m][n], a[m][0].words[2 * half],
                                       a[m][1].words[2 * half], a[m][0].words[2 * half + 1],
                                       a[m][1].words[2 * half + 1], b0, b1);
                    }
                }
            }
        }
    }
}

// A block multiplies product_rows rows, its warps 32 columns at a time, and finishes them.
extern "C" __global__ void __launch_bounds__(product_warps* warp_lanes)
    multiply_sums(Product from) {
    DYNAMIC_SHARED(shared);
    __shared__ int num_digits[product_rows];
    __shared__ i64 all_ones[product_rows];  // sum_k p_k
    __shared__ u32 totals[product_rows];
    const Finish& finish = from.finish;
    const int lane = lane_id(), warp = warp_in_block(), g = lane / 4, t = lane % 4;
    const i64 first = static_cast<i64>(blockIdx.x) * product_rows;
    float* tile = reinterpret_cast<float*>(shared);
    const int stride = static_cast<int>(finish.num_columns) + sums_padding;
    for (int row = warp; row < product_rows; row += product_warps) {
        const bool is_there = from.first_row + first + row < from.end_row;
        const u32 total = is_there ? from.totals[from.first_row + first + row] : 0u;
        const int count = is_there ? digits_of(total) : 0;
        u64 sum = 0;
        for (int digit = 0; digit < count; ++digit) {
            const u8* bytes = from.digits + ((first + row) * 4 + digit) * from.inputs;
            u32 of_digit = 0;
            for (i64 at = 4 * lane; at < from.inputs; at += 4 * warp_lanes) {
                of_digit = sum_of_bytes(*reinterpret_cast<const u32*>(bytes + at), of_digit);
            }
            sum += static_cast<u64>(of_digit) << (8 * digit);
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) sum += shuffle_xor(sum, lanes);
        if (lane == 0) {
            num_digits[row] = count;
            totals[row] = total;
            all_ones[row] = static_cast<i64>(sum);
        }
    }
    __syncthreads();
    int most = 0;
    bool is_wide = false;
    for (int row = 0; row < product_rows; ++row) {
        most = num_digits[row] > most ? num_digits[row] : most;
        is_wide |= static_cast<i64>(totals[row]) * finish.num_inputs >= i64{1} << 31;
    }
    const int num_columns = static_cast<int>(finish.num_columns);
    const int padded = (num_columns + 7) / 8 * 8;
    for (int column = warp * 8 * column_tiles; column < padded;
         column += product_warps * 8 * column_tiles) {
        // each(row, column, place in Sums) for the sums that the lane has.
        const auto for_each = [&](auto each) {
#pragma unroll
            for (int n = 0; n < column_tiles; ++n) {
#pragma unroll
                for (int k = 0; k < 2; ++k) {
                    const int c = column + 8 * n + 2 * t + k;
                    if (c >= num_columns) continue;
#pragma unroll
                    for (int m = 0; m < 2 * row_tiles; ++m) {
                        each(m * 8 + g, c, m / 2, n, m % 2 * 2 + k);
                    }
                }
            }
        };
        Sums sums = {};
        if (is_wide) {
            Sums upper = {};
            multiply_digits(from, num_digits, 2, most, column, padded, upper);
            multiply_digits(from, num_digits, 0, 2, column, padded, sums);
            for_each([&](int row, int c, int m, int n, int k) {
                const i64 product = (static_cast<i64>(static_cast<u32>(upper[m][n][k])) << 16) +
                                    static_cast<u32>(sums[m][n][k]);
                const i64 rest = finish.num_inputs - 2 * from.ones[c];
                const i64 sum = 4 * product - 2 * all_ones[row] + totals[row] * rest;
                tile[row * stride + c] = __ll2float_rn(sum);
            });
        } else {  // |sum| <= total K: it comes out whatever overflows on the way
            multiply_digits(from, num_digits, 0, most, column, padded, sums);
            for_each([&](int row, int c, int m, int n, int k) {
                const u32 rest = static_cast<u32>(finish.num_inputs) - 2u * from.ones[c];
                const u32 sum = 4u * static_cast<u32>(sums[m][n][k]) -
                                2u * static_cast<u32>(all_ones[row]) + totals[row] * rest;
                tile[row * stride + c] = static_cast<float>(static_cast<int>(sum));
            });
        }
    }
    __syncthreads();
    const int half = lane / 16;
    for (int pair = warp; pair < product_rows / 2; pair += product_warps) {
        const int row = 2 * pair + half;
        const i64 at = from.first_row + first + row;
        finish_rows(finish, at, at < from.end_row, tile + row * stride);
    }
}
