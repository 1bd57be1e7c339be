// The integer weights of a row's neighbours, in NEON.
#pragma once

#include "neon_vectors.h"

namespace bignn::neon {

template <class Base>
struct WeightPieces : Base {
    using typename Base::Isa;

    // Of two operands, vmaxnm takes the number where the other one is not a number.
    static float largest(const float* x, std::size_t count) {
        float32x4_t most = vdupq_n_f32(0);
        for (std::size_t e = 0; e < count; e += 4) {
            most = vmaxnmq_f32(most, load_first(x + e, count - e));
        }
        return vmaxnmvq_f32(most);
    }

    // Padded with 0 to a multiple of 16: lanes past the end are loaded as 0.
    static std::uint32_t round_weights(const float* x, std::size_t count, float two_to_e,
                                       std::uint32_t limit, std::uint32_t* q) {
        uint32x4_t total = vdupq_n_u32(0);
        const std::size_t padded = (count + 15) / 16 * 16;
        for (std::size_t e = 0; e < padded; e += 4) {
            const float32x4_t values = load_first(x + e, e < count ? count - e : 0);
            const int32x4_t whole = vcvtnq_s32_f32(vmulq_n_f32(values, two_to_e));
            const uint32x4_t rounded = vminq_u32(vreinterpretq_u32_s32(whole), vdupq_n_u32(limit));
            vst1q_u32(q + e, rounded);
            total = vaddq_u32(total, rounded);
        }
        return vaddvq_u32(total);
    }
};

}  // namespace bignn::neon
