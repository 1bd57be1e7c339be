// Loads, stores and masks of 128 bits, shared by the NEON pieces.
#pragma once

#include <arm_neon.h>

#include "arithmetic.h"

namespace bignn::neon {

// The halves of a word, the low one first.
using half_of_word __attribute__((may_alias)) = half;

// The bits of half a word, from the lowest on.
constexpr std::uint32_t bit_of_half[32] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
    1u << 8,  1u << 9,  1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15,
    1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21, 1u << 22, 1u << 23,
    1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31};

static inline int8x16_t load_bytes(const void* from) {
    return vld1q_s8(static_cast<const std::int8_t*>(from));
}

// The first `count` of four floats, 0 in the lanes past them; no other memory is read.
static inline float32x4_t load_first(const float* from, std::size_t count) {
    if (count >= 4) return vld1q_f32(from);
    float some[4] = {};
    for (std::size_t lane = 0; lane < count; ++lane) some[lane] = from[lane];
    return vld1q_f32(some);
}

// Stores the first `count` of four floats and nothing else.
static inline void store_first(float* to, std::size_t count, float32x4_t values) {
    if (count >= 4) {
        vst1q_f32(to, values);
        return;
    }
    float some[4];
    vst1q_f32(some, values);
    for (std::size_t lane = 0; lane < count; ++lane) to[lane] = some[lane];
}

// All ones in the first `count` of four lanes.
static inline uint32x4_t first_lanes(std::size_t count) {
    constexpr std::uint32_t lane[4] = {0, 1, 2, 3};
    return vcltq_u32(vld1q_u32(lane),
                     vdupq_n_u32(static_cast<std::uint32_t>(count < 4 ? count : 4)));
}

// The values where the mask is all ones, 0 elsewhere.
static inline float32x4_t where(uint32x4_t mask, float32x4_t values) {
    return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(values)));
}

}  // namespace bignn::neon
