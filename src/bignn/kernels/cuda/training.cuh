// Kernels of training on bits: dropout, products of signs, signs of columns, and signs as bfloat16.
#pragma once

#include "training_sums.cuh"

constexpr int pair_columns = 64;  // columns of a warp, two per lane
constexpr int product_rows = 16;  // rows of a warp in a product of signs
constexpr int product_words = 4;  // words of 64 bits that are multiplied at a time

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

struct Unpacking {
    const u64* words;
    const u64* masks;  // null: all bits
    u16* out;          // bfloat16 [rows, 64 words_per_row]: +1, -1, and 0 where nothing is kept
    i64 num_rows, words_per_row, num_bits;
};

// A thread has a byte of a row.
extern "C" __global__ void unpack_signs(Unpacking unpacking) {
    const i64 at = thread_in_grid(), word = at / 8;
    if (word >= unpacking.num_rows * unpacking.words_per_row) return;
    const int shift = static_cast<int>(8 * (at % 8));
    const i64 place = word % unpacking.words_per_row;
    const u64 mask =
        unpacking.masks ? unpacking.masks[word] : bits_of_row(unpacking.num_bits, place);
    const u32 kept = static_cast<u32>(mask >> shift);
    const u32 bits = static_cast<u32>(unpacking.words[word] >> shift);
    Words4 out{};
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
        const u32 sign = (bits >> bit & 1) != 0 ? 0x3f80u : 0xbf80u;
        if ((kept >> bit & 1) != 0) out.words[bit / 2] |= sign << (16 * (bit % 2));
    }
    reinterpret_cast<Words4*>(unpacking.out)[at] = out;
}
