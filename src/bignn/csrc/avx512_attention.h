// Scores and the weights of attention, in AVX-512. plain_attention.h defines them.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

// exp_of_negative of arithmetic.h: the same operations in the same order.
static inline __m512 exp_of_negative(__m512 t) {
    const __mmask16 counts = _mm512_cmp_ps_mask(t, _mm512_set1_ps(lowest_score), _CMP_GE_OQ);
    const __m512i n = _mm512_maskz_cvtps_epi32(counts, _mm512_mul_ps(t, _mm512_set1_ps(log2_of_e)));
    const __m512 times = _mm512_cvtepi32_ps(n);
    const __m512 r =
        _mm512_sub_ps(_mm512_sub_ps(t, _mm512_mul_ps(times, _mm512_set1_ps(high_log2))),
                      _mm512_mul_ps(times, _mm512_set1_ps(low_log2)));
    __m512 p = _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(exp6_c), r), _mm512_set1_ps(exp5_c));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(exp4_c));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(exp3_c));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(exp2_c));
    p = _mm512_add_ps(_mm512_add_ps(_mm512_mul_ps(p, _mm512_mul_ps(r, r)), r),
                      _mm512_set1_ps(1.0f));
    const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(counts, p, _mm512_castsi512_ps(power));
}

static inline __m512 leaky_of(__m512 x, __m512 slope) {
    const __mmask16 below = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ);
    return _mm512_mask_mul_ps(x, below, x, slope);
}

static inline __m512i shares_of(__m512 p) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(p, _mm512_set1_ps(1 << share_bits)));
}

template <class Base>
struct AttentionPieces : Base {
    using typename Base::Isa;

    static void score_rows(const Scores& scores, std::size_t begin, std::size_t end) {
        const std::size_t num_words = words_per_row(scores.num_bits), pieces = 4 * num_words;
        for (std::size_t n = 0; n < scores.count; ++n) {
            const std::int32_t* values = scores.values + n * num_words * word_bits;
            __m512i all = _mm512_setzero_si512();
            for (std::size_t p = 0; p < pieces; ++p) {
                all = _mm512_add_epi32(all, _mm512_loadu_si512(values + 16 * p));
            }
            const auto total = static_cast<std::uint32_t>(_mm512_reduce_add_epi32(all));
            for (std::size_t i = begin; i < end; ++i) {
                const auto* bits = reinterpret_cast<const std::byte*>(scores.words + i * num_words);
                __m512i even = _mm512_setzero_si512(), odd = even;
                for (std::size_t p = 0; p < pieces; p += 2) {
                    __mmask16 low, high;
                    __builtin_memcpy(&low, bits + 2 * p, sizeof low);
                    __builtin_memcpy(&high, bits + 2 * p + 2, sizeof high);
                    even =
                        _mm512_mask_add_epi32(even, low, even, _mm512_loadu_si512(values + 16 * p));
                    odd = _mm512_mask_add_epi32(odd, high, odd,
                                                _mm512_loadu_si512(values + 16 * p + 16));
                }
                const auto set = static_cast<std::uint32_t>(
                    _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd)));
                scores.out[n * scores.num_rows + i] =
                    bounded_score(static_cast<float>(static_cast<std::int32_t>(2 * set - total)) *
                                  scores.sigma[n] * scores.factor[i]);
            }
        }
    }

    static float largest_score_of(const float* source, std::size_t count) {
        __m512 most = _mm512_set1_ps(-largest_score);
        for (std::size_t e = 0; e < count; e += 16) {
            const __mmask16 valid = first_lanes(count - e);
            most = _mm512_mask_max_ps(most, valid, most, _mm512_maskz_loadu_ps(valid, source + e));
        }
        return _mm512_reduce_max_ps(most);
    }

    static Attended attend(const float* source, const float* factor, std::size_t count,
                           float target, float top, float slope, float* x) {
        const __m512 targets = _mm512_set1_ps(target), tops = _mm512_set1_ps(top);
        __m512 most = _mm512_setzero_ps();
        __m512i shares = _mm512_setzero_si512();
        for (std::size_t e = 0; e < count; e += 16) {
            const __mmask16 valid = first_lanes(count - e);
            const __m512 score =
                leaky_of(_mm512_add_ps(targets, _mm512_maskz_loadu_ps(valid, source + e)),
                         _mm512_set1_ps(slope));
            const __m512 p =
                _mm512_maskz_mov_ps(valid, exp_of_negative(_mm512_sub_ps(score, tops)));
            shares = _mm512_add_epi32(shares, shares_of(p));
            const __m512 weights =
                bounded(_mm512_mul_ps(p, _mm512_maskz_loadu_ps(valid, factor + e)));
            _mm512_storeu_ps(x + e, weights);
            most = _mm512_max_ps(most, weights);
        }
        return {_mm512_reduce_max_ps(most),
                static_cast<std::uint32_t>(_mm512_reduce_add_epi32(shares))};
    }

    // Each of the four rows is one vector; sums across lanes are taken for the four together.
    static void attend_few(const float* source, const float* factor, const std::int64_t* offsets,
                           const float* targets, float slope, int bits, std::uint32_t* q,
                           std::uint32_t* totals, float* row_scale) {
        static_assert(tile_rows == 4 && few == 16);
        const auto at = [&](std::size_t r) { return offsets[r] - offsets[0]; };
        const auto lanes_of = [&](std::size_t r) {
            return first_lanes(static_cast<std::size_t>(offsets[r + 1] - offsets[r]));
        };
        const __mmask16 v0 = lanes_of(0), v1 = lanes_of(1), v2 = lanes_of(2), v3 = lanes_of(3);
        const __m512 lowest = _mm512_set1_ps(-largest_score);
        const __m512 s0 = _mm512_mask_loadu_ps(lowest, v0, source);
        const __m512 s1 = _mm512_mask_loadu_ps(lowest, v1, source + at(1));
        const __m512 s2 = _mm512_mask_loadu_ps(lowest, v2, source + at(2));
        const __m512 s3 = _mm512_mask_loadu_ps(lowest, v3, source + at(3));
        const __m128 target = _mm_loadu_ps(targets);
        const __m128 sum = _mm_add_ps(target, largest_of_each(s0, s1, s2, s3));
        const __mmask8 below = _mm_cmp_ps_mask(sum, _mm_setzero_ps(), _CMP_LT_OQ);
        const __m128 top = _mm_mask_mul_ps(sum, below, sum, _mm_set1_ps(slope));
        const __m512 slopes = _mm512_set1_ps(slope);
        const auto shares_in = [&](__m512 s, __mmask16 valid, __m128 own, __m128 most) {
            const __m512 score = leaky_of(_mm512_add_ps(_mm512_broadcastss_ps(own), s), slopes);
            return _mm512_maskz_mov_ps(
                valid, exp_of_negative(_mm512_sub_ps(score, _mm512_broadcastss_ps(most))));
        };
        const __m512 p0 = shares_in(s0, v0, target, top);
        const __m512 p1 =
            shares_in(s1, v1, _mm_permute_ps(target, 0x55), _mm_permute_ps(top, 0x55));
        const __m512 p2 =
            shares_in(s2, v2, _mm_permute_ps(target, 0xaa), _mm_permute_ps(top, 0xaa));
        const __m512 p3 =
            shares_in(s3, v3, _mm_permute_ps(target, 0xff), _mm_permute_ps(top, 0xff));
        const __m128i shares =
            total_of_each(shares_of(p0), shares_of(p1), shares_of(p2), shares_of(p3));
        const __m128 share = _mm_maskz_div_ps(
            _mm_test_epi32_mask(shares, shares), _mm_set1_ps(1.0f),
            _mm_mul_ps(_mm_cvtepi32_ps(shares), _mm_set1_ps(1.0f / (1 << share_bits))));
        // weigh_tile wants the rows' weights one after the other.
        alignas(64) float x[4 * few], shares_of_rows[4];
        const auto weigh_row = [&](std::size_t r, __m512 p, __mmask16 valid) {
            _mm512_mask_storeu_ps(
                x + at(r), valid,
                bounded(_mm512_mul_ps(p, _mm512_maskz_loadu_ps(valid, factor + at(r)))));
        };
        weigh_row(0, p0, v0), weigh_row(1, p1, v1), weigh_row(2, p2, v2), weigh_row(3, p3, v3);
        _mm_storeu_ps(shares_of_rows, share);
        Isa::weigh_tile(x, offsets, shares_of_rows, bits, q, totals, row_scale);
    }
};

}  // namespace bignn::avx512
