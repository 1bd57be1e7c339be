// The end of a row: from the sums of its columns to values, classes, or bits and their scales.
#pragma once

#include "arithmetic.cuh"

struct Finish {
    i64 num_rows, num_outputs, num_columns;  // columns are more than outputs if heads are averaged
    i64 channels;                            // columns of a head
    i64 averages;
    const float* scale;      // [columns]
    const float* end_scale;  // [outputs], where heads are averaged
    const float* shift;      // [outputs]
    const float* row_scale;  // [heads, rows]
    // A node's own part: B_own as bits [words, outputs]; null without one.
    const u32* own_words;
    const float* own_scale;
    const u32* source_words;
    i64 word_stride, num_words, num_inputs;
    const float* source_factor;
    const int* own_ids;  // null: row i is source i
    // Where the results go; null for what is not wanted.
    float* values;
    int* classes;
    u32* out_words;  // rows of out_stride words; what is beyond the last output stays 0
    i64 out_stride;
    float* out_beta;
    float* out_factor;
    const float* out_scale;  // null: 1
};

__device__ inline float infinity() { return __int_as_float(0x7f800000); }

// What source `own` adds to a column by itself.
__device__ inline float own_part(const Finish& to, i64 own, i64 column) {
    u32 differing = 0;
#pragma unroll 1
    for (i64 w = 0; w < to.num_words; ++w) {
        differing += __popc(to.source_words[own * to.word_stride + w] ^
                            to.own_words[w * to.num_outputs + column]);
    }
    const int dot = static_cast<int>(to.num_inputs) - 2 * static_cast<int>(differing);
    return static_cast<float>(dot) * to.source_factor[own] * to.own_scale[column];
}

// h of one column; `sums` has all columns of the row.
__device__ inline float output(const Finish& to, i64 row, i64 own, const float* sums, i64 column) {
    if (to.averages) {
        float sum = 0.0f;
        for (i64 head = 0; head * to.channels < to.num_columns; ++head) {
            const i64 c = head * to.channels + column;
            const float part = sums[c] * to.row_scale[head * to.num_rows + row] * to.scale[c];
            sum = head == 0 ? part : sum + part;
        }
        return sum * to.end_scale[column] + to.shift[column];
    }
    const i64 head = to.channels == to.num_columns ? 0 : column / to.channels;
    float h = sums[column] * to.row_scale[head * to.num_rows + row] * to.scale[column];
    if (to.own_words) h = h + own_part(to, own, column);
    return h + to.shift[column];
}

// Stores a row's scales, of the sum of |h|.
__device__ inline void store_factor(const Finish& to, i64 row, float sum) {
    const float beta = bounded(sum / static_cast<float>(to.num_outputs));
    if (to.out_beta) to.out_beta[row] = beta;
    to.out_factor[row] = to.out_scale ? bounded(to.out_scale[row] * beta) : beta;
}

// The better of two lanes' classes: that of the larger value, or the first of equal ones.
__device__ inline void exchange_best(float& most, int& best, int lanes) {
    const float other = shuffle_xor(most, lanes);
    const int other_best = static_cast<int>(shuffle_xor(static_cast<u32>(best), lanes));
    if (other > most || (other == most && other_best < best)) {
        most = other;
        best = other_best;
    }
}

// The same for a row of one head without a part of its own, whose row_scale is given.
__device__ inline float plain_output(const Finish& to, float row_scale, const float* sums,
                                     int column) {
    return sums[column] * row_scale * to.scale[column] + to.shift[column];
}

// Finishes two rows, one per half of a warp: `row` and `sums` are those of the lane's half. A lane
// takes every 16th column, so that it adds up one of the sixteen partial sums of |h| in their
// order.
__device__ inline void finish_rows(const Finish& to, i64 row, bool is_there, const float* sums) {
    const int lane = lane_id() % 16, half = lane_id() / 16;
    const bool is_plain = to.channels == to.num_columns && !to.own_words && !to.averages;
    const i64 own = to.own_words && is_there ? (to.own_ids ? to.own_ids[row] : row) : 0;
    const float row_scale = is_plain && is_there ? to.row_scale[row] : 0.0f;
    const int num_outputs = static_cast<int>(to.num_outputs);
    float* values = to.values ? to.values + row * num_outputs : nullptr;
    u32* out_words = to.out_words ? to.out_words + row * to.out_stride : nullptr;
    float partial = 0.0f;
    float most = -infinity();
    int best = 0;
    u32 word = 0;
    const int steps = (num_outputs + 15) / 16;
    for (int step = 0; step < steps; ++step) {
        const int column = step * 16 + lane;
        bool is_set = false;
        if (is_there && column < num_outputs) {
            const float h = is_plain ? plain_output(to, row_scale, sums, column)
                                     : output(to, row, own, sums, column);
            if (values) values[column] = h;
            if (h > most) {
                most = h;
                best = column;
            }
            is_set = h >= 0;
            partial += h < 0 ? -h : h;
        }
        if (to.out_words) {
            const u32 bits = ballot(is_set) >> (16 * half) & 0xffffu;
            word = step % 2 == 0 ? bits : word | bits << 16;
            if (is_there && lane == 0 && (step % 2 == 1 || step + 1 == steps)) {
                out_words[step / 2] = word;
            }
        }
    }
    if (to.classes) {
        for (int lanes = 8; lanes > 0; lanes /= 2) exchange_best(most, best, lanes);
        if (is_there && lane == 0) to.classes[row] = best;
    }
    if (to.out_factor) {
        for (int lanes = 8; lanes > 0; lanes /= 2) partial += shuffle_xor(partial, lanes);
        if (is_there && lane == 0) store_factor(to, row, partial);
    }
}

// A row whose columns a warp has as tensor cores give them: of every eight columns, lane 4 g + t
// has 2 t and 2 t + 1. Rows of one head only.
struct TileRow {
    i64 row, own;
    bool is_there;
    float scale;
    float partial[2][2];  // those of the sixteen partial sums of |h| that are of the lane's columns
    float most;
    int best;
    u32 word;
};

__device__ inline TileRow tile_row(const Finish& to, i64 row, bool is_there) {
    TileRow made = {};
    made.row = row;
    made.is_there = is_there;
    made.own = to.own_words && is_there && to.own_ids ? to.own_ids[row] : row;
    made.scale = is_there ? to.row_scale[row] : 0.0f;
    made.most = -infinity();
    return made;
}

// Takes 32 columns from `column` on, in their order, and returns their bits. A hidden layer's are
// all there, and give bits and scales alone.
template <bool is_hidden>
__device__ inline u32 take_columns(const Finish& to, TileRow& at, int column,
                                   const float (&h)[4][2]) {
    const int num_outputs = static_cast<int>(to.num_outputs);
    u32 bits = 0;
#pragma unroll
    for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const int c = column + 8 * n + 2 * (lane_id() % 4) + k;
            const float value = h[n][k];
            if (!is_hidden) {
                if (c >= num_outputs) continue;
                if (to.values && at.is_there) to.values[at.row * num_outputs + c] = value;
                if (value > at.most) {
                    at.most = value;
                    at.best = c;
                }
            }
            at.partial[n % 2][k] += fabsf(value);
            bits |= value >= 0 ? 1u << (8 * n + k) : 0u;
        }
    }
    return bits;
}

__device__ inline void finish_columns(const Finish& to, TileRow& at, int column,
                                      const float (&h)[4][2]) {
    const int t = lane_id() % 4, num_outputs = static_cast<int>(to.num_outputs);
    const bool is_hidden = !to.values && !to.classes && column + 32 <= num_outputs;
    u32 bits =
        is_hidden ? take_columns<true>(to, at, column, h) : take_columns<false>(to, at, column, h);
    if (!to.out_words) return;
    bits <<= 2 * t;
    bits |= shuffle_xor(bits, 1);
    bits |= shuffle_xor(bits, 2);
    // Four words are stored together, one by each of four lanes.
    const int number = column / 32, last = (num_outputs - 1) / 32;
    if (number % 4 == t) at.word = bits;
    if ((number % 4 == 3 || number == last) && at.is_there && number / 4 * 4 + t <= number) {
        to.out_words[at.row * to.out_stride + number / 4 * 4 + t] = at.word;
    }
}

__device__ inline void finish_tile_row(const Finish& to, TileRow& at) {
    const bool is_first = lane_id() % 4 == 0;
    if (to.classes) {
        exchange_best(at.most, at.best, 2);
        exchange_best(at.most, at.best, 1);
        if (at.is_there && is_first) to.classes[at.row] = at.best;
    }
    if (to.out_factor) {  // in the order of finish_rows
        float sums[2];
        for (int k = 0; k < 2; ++k) {
            sums[k] = at.partial[0][k] + at.partial[1][k];
            sums[k] += shuffle_xor(sums[k], 2);
            sums[k] += shuffle_xor(sums[k], 1);
        }
        if (at.is_there && is_first) store_factor(to, at.row, sums[0] + sums[1]);
    }
}
