// Arithmetic on single numbers, the operations and order of csrc/arithmetic.h: results are the
// CPU's to the last bit. Compiled without fused multiply-add and with IEEE division.
#pragma once

#include "warp.cuh"

constexpr int total_bits = 31;
constexpr float smallest_weight = 8.673617379884035e-19f;  // 2^-60
constexpr float largest_weight = 1e30f;
constexpr int share_bits = 22;
constexpr float lowest_score = -64.0f;
constexpr float largest_score = 1e30f;

__device__ inline float bounded(float weight) {
    return weight < largest_weight ? weight : largest_weight;
}

__device__ inline float power_of_two(int exponent) {
    return __uint_as_float(static_cast<u32>(exponent + 127) << 23);
}

// How the weights of a row become integers: q = min(rint(x * two_to_e), limit), and the row's sum
// is multiplied by `scale`.
struct RowWeights {
    float two_to_e, scale;
    u32 limit;
};

// `most` is the largest of the row's `count` weights.
__device__ inline RowWeights row_weights(float most, i64 count, float target_factor, int bits) {
    while (bits > 1 && (count >> (total_bits - bits)) != 0) --bits;
    const bool any = most >= smallest_weight;
    const int exponent = static_cast<int>(__float_as_uint(most) >> 23) - 127;
    const int e = any ? bits - 1 - exponent : 0;
    RowWeights weights;
    weights.two_to_e = any ? power_of_two(e) : 0.0f;
    weights.scale = target_factor * power_of_two(-e);
    weights.limit = (1u << bits) - 1;
    return weights;
}

__device__ inline u32 rounded_weight(float x, const RowWeights& weights) {
    const u32 rounded = static_cast<u32>(__float2int_rn(x * weights.two_to_e));
    return rounded < weights.limit ? rounded : weights.limit;
}

// exp(t) for t <= 0.
__device__ inline float exp_of_negative(float t) {
    if (!(t >= lowest_score)) return 0.0f;
    const int n = __float2int_rn(t * 1.442695f);
    const float times = static_cast<float>(n);
    const float r = (t - times * 0.693359375f) - times * -0.00021219444f;
    float p = 0.0013926268f * r + 0.008363247f;
    p = p * r + 0.041666552f;
    p = p * r + 0.16666576f;
    p = p * r + 0.5f;
    p = (p * (r * r) + r) + 1.0f;
    return p * power_of_two(n);
}

__device__ inline float leaky(float x, float slope) { return x >= 0 ? x : x * slope; }

// 1 / sum_j p_ij, from the sum in units of 2^-share_bits; 0 for a row without neighbours.
__device__ inline float share_of(u64 shares) {
    if (shares == 0) return 0.0f;
    return 1.0f / (__ull2float_rn(shares) * (1.0f / (1 << share_bits)));
}

__device__ inline float bounded_score(float score) {
    score = score < largest_score ? score : largest_score;
    return score > -largest_score ? score : -largest_score;
}
