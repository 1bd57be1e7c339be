// Attention in AVX2: scores of bits, and the weights that they give neighbours.
#pragma once

#include "avx2_vectors.h"

namespace bignn::avx2 {

// exp(t) for t <= 0, the operations of arithmetic.h in the same order.
static inline __m256 exp_of_negative(__m256 t) {
    const __m256 counts = _mm256_cmp_ps(t, _mm256_set1_ps(lowest_score), _CMP_GE_OQ);
    t = _mm256_and_ps(t, counts);  // 0 where the result will be 0
    const __m256i n = _mm256_cvtps_epi32(_mm256_mul_ps(t, _mm256_set1_ps(log2_of_e)));
    const __m256 times = _mm256_cvtepi32_ps(n);
    const __m256 r =
        _mm256_sub_ps(_mm256_sub_ps(t, _mm256_mul_ps(times, _mm256_set1_ps(high_log2))),
                      _mm256_mul_ps(times, _mm256_set1_ps(low_log2)));
    const auto next = [&](__m256 p, float coefficient) {
        return _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(coefficient));
    };
    __m256 p = next(_mm256_set1_ps(exp6_c), exp5_c);
    p = next(p, exp4_c);
    p = next(p, exp3_c);
    p = next(p, exp2_c);
    p = _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(p, _mm256_mul_ps(r, r)), r),
                      _mm256_set1_ps(1.0f));
    const __m256i power = _mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(power)), counts);
}

template <class Base>
struct AttentionPieces : Base {
    using typename Base::Isa;

    static float largest_score_of(const float* source, std::size_t count) {
        const __m256 lowest = _mm256_set1_ps(-largest_score);
        __m256 most = lowest;
        for (std::size_t e = 0; e < count; e += 8) {
            const __m256i valid = first_lanes(count - e);
            const __m256 scores = _mm256_blendv_ps(lowest, _mm256_maskload_ps(source + e, valid),
                                                   _mm256_castsi256_ps(valid));
            most = _mm256_max_ps(scores, most);
        }
        return largest_lane(most);
    }

    static Attended attend(const float* source, const float* factor, std::size_t count,
                           float target, float top, float slope, float* x) {
        const __m256 targets = _mm256_set1_ps(target), tops = _mm256_set1_ps(top);
        const __m256 slopes = _mm256_set1_ps(slope), limit = _mm256_set1_ps(largest_weight);
        __m256 most = _mm256_setzero_ps();
        __m256i shares = _mm256_setzero_si256();
        for (std::size_t e = 0; e < count; e += 8) {
            const __m256i valid = first_lanes(count - e);
            const __m256 sum = _mm256_add_ps(targets, _mm256_maskload_ps(source + e, valid));
            const __m256 score =
                _mm256_blendv_ps(_mm256_mul_ps(sum, slopes), sum,
                                 _mm256_cmp_ps(sum, _mm256_setzero_ps(), _CMP_GE_OQ));
            const __m256 p = _mm256_and_ps(exp_of_negative(_mm256_sub_ps(score, tops)),
                                           _mm256_castsi256_ps(valid));
            shares = _mm256_add_epi32(
                shares, _mm256_cvtps_epi32(
                            _mm256_mul_ps(p, _mm256_set1_ps(static_cast<float>(1 << share_bits)))));
            // Of two operands, the minimum is the second where the first is not a number.
            const __m256 weights =
                _mm256_min_ps(_mm256_mul_ps(p, _mm256_maskload_ps(factor + e, valid)), limit);
            _mm256_maskstore_ps(x + e, valid, weights);
            most = _mm256_max_ps(most, _mm256_and_ps(weights, _mm256_castsi256_ps(valid)));
        }
        return {largest_lane(most), static_cast<std::uint32_t>(total_of_lanes(shares))};
    }

    // F . V is twice the sum of the values whose bit is 1, less the sum of all.
    static void score_rows(const Scores& scores, std::size_t begin, std::size_t end) {
        const std::size_t num_words = words_per_row(scores.num_bits);
        const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        for (std::size_t n = 0; n < scores.count; ++n) {
            const std::int32_t* values = scores.values + n * num_words * word_bits;
            __m256i all = _mm256_setzero_si256();
            for (std::size_t k = 0; k < num_words * word_bits; k += 8) {
                all = _mm256_add_epi32(all, load(values + k));
            }
            const auto total = static_cast<std::uint32_t>(total_of_lanes(all));
            for (std::size_t i = begin; i < end; ++i) {
                const word* row = scores.words + i * num_words;
                __m256i sum = _mm256_setzero_si256();
                for (std::size_t w = 0; w < num_words; ++w) {
                    for (std::size_t byte = 0; byte < 8; ++byte) {
                        const __m256i bits =
                            _mm256_set1_epi32(static_cast<int>(row[w] >> (8 * byte) & 255));
                        const __m256i is_set = _mm256_cmpeq_epi32(_mm256_and_si256(bits, bit), bit);
                        const __m256i some = load(values + w * word_bits + 8 * byte);
                        sum = _mm256_add_epi32(sum, _mm256_and_si256(is_set, some));
                    }
                }
                const std::uint32_t dot =
                    2 * static_cast<std::uint32_t>(total_of_lanes(sum)) - total;
                scores.out[n * scores.num_rows + i] =
                    bounded_score(static_cast<float>(static_cast<std::int32_t>(dot)) *
                                  scores.sigma[n] * scores.factor[i]);
            }
        }
    }
};

}  // namespace bignn::avx2
