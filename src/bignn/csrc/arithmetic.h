// Arithmetic on single numbers that every instruction set shares: it defines the results to the
// last bit, and vector forms repeat its operations in the same order.
//
// Functions of the kernels' headers are static, or members of a template over the instruction set
// (isa.h says why): each file keeps the copies that were compiled with its own flags.
#pragma once

#include "isa.h"

namespace bignn {

// --- Weights -----------------------------------------------------------------------------------

// A weight that overflowed, or is not a number, becomes the largest.
static inline float bounded(float weight) {
    return weight < largest_weight ? weight : largest_weight;
}

static inline int floor_log2(float positive) {
    std::uint32_t bits;
    __builtin_memcpy(&bits, &positive, sizeof bits);
    return static_cast<int>(bits >> 23) - 127;
}

static inline float power_of_two(int exponent) {
    const auto bits = static_cast<std::uint32_t>(exponent + 127) << 23;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// How the weights of a row become integers: q = min(rint(x * two_to_e), limit), and the row's sum
// is multiplied by `scale`.
struct RowWeights {
    float two_to_e, scale;
    std::uint32_t limit;
};

// `most` is the largest of the row's `count` weights, `bits` the layer's edge_bits.
static inline RowWeights row_weights(float most, std::size_t count, float target_factor, int bits) {
    while (bits > 1 && (count >> (total_bits - bits)) != 0) --bits;
    const bool any = most >= smallest_weight;
    const int e = any ? bits - 1 - floor_log2(most) : 0;
    return {.two_to_e = any ? power_of_two(e) : 0,
            .scale = target_factor * power_of_two(-e),
            .limit = (std::uint32_t{1} << bits) - 1};
}

// The weights of a move as a pair of 16-bit numbers, what is taken off being negative.
static inline std::int32_t pair_of(const SumMove& move) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(move.after) |
                                     static_cast<std::uint32_t>(-move.before) << 16);
}

// h of one column.
static inline float output(float sum, float row_scale, float scale, float shift) {
    return sum * row_scale * scale + shift;
}

// --- Attention ---------------------------------------------------------------------------------

// exp(t) for t <= 0, in these operations and this order. t = n log 2 + r; n has 7 bits and
// high_log2 has 10, so their product is exact.
constexpr float log2_of_e = 1.442695f;
constexpr float high_log2 = 0.693359375f;
constexpr float low_log2 = -0.00021219444f;
constexpr float exp2_c = 0.5f, exp3_c = 0.16666576f, exp4_c = 0.041666552f, exp5_c = 0.008363247f,
                exp6_c = 0.0013926268f;

static inline float exp_of_negative(float t) {
    if (!(t >= lowest_score)) return 0;
    const auto n = static_cast<int>(__builtin_lrintf(t * log2_of_e));
    const auto times = static_cast<float>(n);
    const float r = (t - times * high_log2) - times * low_log2;
    float p = exp6_c * r + exp5_c;
    p = p * r + exp4_c;
    p = p * r + exp3_c;
    p = p * r + exp2_c;
    p = (p * (r * r) + r) + 1.0f;
    return p * power_of_two(n);
}

static inline float leaky(float x, float slope) { return x >= 0 ? x : x * slope; }

// 1 / sum_j p_ij, from the sum in units of 2^-share_bits; 0 for a row without neighbours.
static inline float share_of(std::uint64_t shares) {
    return shares ? 1.0f / (static_cast<float>(shares) * (1.0f / (1 << share_bits))) : 0.0f;
}

static inline float bounded_score(float score) {
    score = score < largest_score ? score : largest_score;
    return score > -largest_score ? score : -largest_score;
}

// What `attend` returns for some entries of a row: their largest weight, and the sum of their p in
// units of 2^-share_bits.
struct Attended {
    float most;
    std::uint32_t shares;
};

}  // namespace bignn
