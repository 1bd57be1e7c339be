// Attention in NEON: scores of bits, and the weights that they give neighbours.
#pragma once

#include "neon_vectors.h"

namespace bignn::neon {

// exp(t) for t <= 0, the operations of arithmetic.h in the same order.
static inline float32x4_t exp_of_negative(float32x4_t t) {
    const uint32x4_t counts = vcgeq_f32(t, vdupq_n_f32(lowest_score));
    t = where(counts, t);  // 0 where the result will be 0
    const int32x4_t n = vcvtnq_s32_f32(vmulq_n_f32(t, log2_of_e));
    const float32x4_t times = vcvtq_f32_s32(n);
    const float32x4_t r =
        vsubq_f32(vsubq_f32(t, vmulq_n_f32(times, high_log2)), vmulq_n_f32(times, low_log2));
    const auto next = [&](float32x4_t p, float coefficient) {
        return vaddq_f32(vmulq_f32(p, r), vdupq_n_f32(coefficient));
    };
    float32x4_t p = next(vdupq_n_f32(exp6_c), exp5_c);
    p = next(p, exp4_c);
    p = next(p, exp3_c);
    p = next(p, exp2_c);
    p = vaddq_f32(vaddq_f32(vmulq_f32(p, vmulq_f32(r, r)), r), vdupq_n_f32(1.0f));
    const int32x4_t power = vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23);
    return where(counts, vmulq_f32(p, vreinterpretq_f32_s32(power)));
}

template <class Base>
struct AttentionPieces : Base {
    using typename Base::Isa;

    static float largest_score_of(const float* source, std::size_t count) {
        const float32x4_t lowest = vdupq_n_f32(-largest_score);
        float32x4_t most = lowest;
        for (std::size_t e = 0; e < count; e += 4) {
            most = vmaxnmq_f32(
                most, vbslq_f32(first_lanes(count - e), load_first(source + e, count - e), lowest));
        }
        return vmaxnmvq_f32(most);
    }

    static Attended attend(const float* source, const float* factor, std::size_t count,
                           float target, float top, float slope, float* x) {
        const float32x4_t targets = vdupq_n_f32(target), tops = vdupq_n_f32(top);
        const float32x4_t limit = vdupq_n_f32(largest_weight);
        float32x4_t most = vdupq_n_f32(0);
        int32x4_t shares = vdupq_n_s32(0);
        for (std::size_t e = 0; e < count; e += 4) {
            const std::size_t left = count - e;
            const float32x4_t sum = vaddq_f32(targets, load_first(source + e, left));
            const float32x4_t score = vbslq_f32(vcgezq_f32(sum), sum, vmulq_n_f32(sum, slope));
            const float32x4_t p = where(first_lanes(left), exp_of_negative(vsubq_f32(score, tops)));
            shares = vaddq_s32(shares,
                               vcvtnq_s32_f32(vmulq_n_f32(p, static_cast<float>(1 << share_bits))));
            const float32x4_t weights = vmulq_f32(p, load_first(factor + e, left));
            const float32x4_t bounded = vbslq_f32(vcltq_f32(weights, limit), weights, limit);
            store_first(x + e, left, bounded);
            most = vmaxnmq_f32(most, bounded);  // 0 past the last entry
        }
        return {vmaxnmvq_f32(most), static_cast<std::uint32_t>(vaddvq_s32(shares))};
    }

    // F . V is twice the sum of the values whose bit is 1, less the sum of all.
    static void score_rows(const Scores& scores, std::size_t begin, std::size_t end) {
        const std::size_t num_words = words_per_row(scores.num_bits);
        for (std::size_t n = 0; n < scores.count; ++n) {
            const std::int32_t* values = scores.values + n * num_words * word_bits;
            int32x4_t all = vdupq_n_s32(0);
            for (std::size_t k = 0; k < num_words * word_bits; k += 4) {
                all = vaddq_s32(all, vld1q_s32(values + k));
            }
            const auto total = static_cast<std::uint32_t>(vaddvq_s32(all));
            for (std::size_t i = begin; i < end; ++i) {
                const auto* row =
                    reinterpret_cast<const half_of_word*>(scores.words + i * num_words);
                int32x4_t sum = vdupq_n_s32(0);
                for (std::size_t w = 0; w < 2 * num_words; ++w) {
                    const uint32x4_t bits = vdupq_n_u32(row[w]);
                    for (std::size_t k = 0; k < 32; k += 4) {
                        const int32x4_t set =
                            vreinterpretq_s32_u32(vtstq_u32(bits, vld1q_u32(bit_of_half + k)));
                        sum = vaddq_s32(sum, vandq_s32(set, vld1q_s32(values + 32 * w + k)));
                    }
                }
                const std::uint32_t dot = 2 * static_cast<std::uint32_t>(vaddvq_s32(sum)) - total;
                scores.out[n * scores.num_rows + i] =
                    bounded_score(static_cast<float>(static_cast<std::int32_t>(dot)) *
                                  scores.sigma[n] * scores.factor[i]);
            }
        }
    }
};

}  // namespace bignn::neon
