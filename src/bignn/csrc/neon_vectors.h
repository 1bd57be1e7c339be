// Loads, stores and masks of 128 bits, shared by the NEON pieces.
#pragma once

#include <arm_neon.h>

#include "arithmetic.h"

namespace bignn::neon {

// The halves of a word, the low one first.
using half_of_word __attribute__((may_alias)) = half;

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
