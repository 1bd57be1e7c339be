// Integer weights of neighbours: q of every entry, and of every row their total and what its sum is
// multiplied by. Rows of up to `long_row` entries have 16 or 32 lanes each, longer ones a block.
#pragma once

#include "arithmetic.cuh"

constexpr i64 long_row = 2048;
constexpr int short_lanes = 16, medium_lanes = 32, long_lanes = 512;

// Reductions over the lanes of a row.
template <int lanes, class T, class Combine>
__device__ T combined(T x, Combine combine) {
    if constexpr (lanes <= warp_lanes) {
        for (int step = lanes / 2; step > 0; step /= 2) x = combine(x, shuffle_xor(x, step));
        return x;
    } else {
        constexpr int warps = lanes / warp_lanes;
        __shared__ T partial[warps];
        for (int step = warp_lanes / 2; step > 0; step /= 2) x = combine(x, shuffle_xor(x, step));
        __syncthreads();  // what was read of the reduction before
        if (lane_id() == 0) partial[warp_in_block()] = x;
        __syncthreads();
        x = partial[0];
        for (int warp = 1; warp < warps; ++warp) x = combine(x, partial[warp]);
        return x;
    }
}

struct Larger {
    __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};
struct Added {
    template <class T>
    __device__ T operator()(T a, T b) const {
        return a + b;
    }
};

// Rows of a graph and the integer weights that are made of them.
struct Weighing {
    const i64* offsets;
    const int* ids;
    const float* weights;        // null: all 1
    const float* source_factor;  // t_j
    const float* target_factor;  // s_i
    const int* long_rows;        // the rows of more than long_row entries
    i64 num_rows;                // of the graph, or of long_rows
    i64 edge_bits;
    u8* q8;  // [entries], one of these two is null
    u32* q32;
    float* row_scale;  // [rows]
    u32* totals;       // [rows]
};

__device__ inline void store_weight(u8* q8, u32* q32, i64 at, u32 q) {
    if (q8) {
        q8[at] = static_cast<u8>(q);
    } else {
        q32[at] = q;
    }
}

// The row that some lanes work on; `is_there` is false for lanes without one.
struct LaneRow {
    i64 row, begin, end;
    int lane;
    bool is_there;
};

template <int lanes>
__device__ LaneRow lane_row(const i64* offsets, const int* long_rows, i64 num_rows) {
    LaneRow found;
    const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
    const i64 number = thread / lanes;
    found.lane = static_cast<int>(thread % lanes);
    found.is_there = number < num_rows;
    found.row = !found.is_there ? 0 : lanes <= warp_lanes ? number : long_rows[number];
    found.begin = offsets[found.row];
    found.end = offsets[found.row + 1];
    if (lanes <= warp_lanes && found.end - found.begin > long_row) found.is_there = false;
    if (!found.is_there) found.end = found.begin;
    return found;
}

// `held` is how many weights a lane keeps from one pass to the next.
template <int lanes, int held>
__device__ void weigh(const Weighing& from) {
    const LaneRow at = lane_row<lanes>(from.offsets, from.long_rows, from.num_rows);
    const auto weight = [&](i64 e) {
        const float t = from.source_factor[from.ids[e]];
        return from.weights ? bounded(from.weights[e] * t) : t;
    };
    const i64 first = at.begin + at.lane, rest = first + held * lanes;
    float x[held];
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const i64 e = first + i * lanes;
        x[i] = e < at.end ? weight(e) : 0.0f;
    }
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < held; ++i) most = Larger()(most, x[i]);
    for (i64 e = rest; e < at.end; e += lanes) most = Larger()(most, weight(e));
    most = combined<lanes>(most, Larger());
    const float target = at.is_there ? from.target_factor[at.row] : 0.0f;
    const RowWeights weights =
        row_weights(most, at.end - at.begin, target, static_cast<int>(from.edge_bits));
    u32 total = 0;
    const auto take = [&](i64 e, float of_entry) {
        const u32 q = rounded_weight(of_entry, weights);
        store_weight(from.q8, from.q32, e, q);
        total += q;
    };
#pragma unroll
    for (int i = 0; i < held; ++i) {
        const i64 e = first + i * lanes;
        if (e < at.end) take(e, x[i]);
    }
    for (i64 e = rest; e < at.end; e += lanes) take(e, weight(e));
    total = combined<lanes>(total, Added());
    if (at.is_there && at.lane == 0) {
        from.row_scale[at.row] = weights.scale;
        from.totals[at.row] = total;
    }
}

extern "C" __global__ void weigh_short_rows(Weighing from) { weigh<short_lanes, 4>(from); }
extern "C" __global__ void weigh_medium_rows(Weighing from) { weigh<medium_lanes, 16>(from); }
extern "C" __global__ void weigh_long_rows(Weighing from) { weigh<long_lanes, 4>(from); }
