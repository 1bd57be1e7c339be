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

    static_assert(few % 8 == 0 && slack >= 8);

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
            const __m256 valid_weights = _mm256_and_ps(weights, _mm256_castsi256_ps(valid));
            // Both callers have room for whole registers, and masked stores are slow on many CPUs.
            _mm256_storeu_ps(x + e, valid_weights);
            most = _mm256_max_ps(most, valid_weights);
        }
        return {largest_lane(most), static_cast<std::uint32_t>(total_of_lanes(shares))};
    }

    // F . V is twice the sum of the values whose bit is 1, less the sum of all. Eight scores fill a
    // register; the sums of every four bits' values are looked up, 256 bits and 256 rows at a time.
    static void score_rows(const Scores& scores, std::size_t begin, std::size_t end) {
        constexpr std::size_t slab_words = 4, nibbles = slab_words * word_bits / 4;
        constexpr std::size_t rows_at_once = 256;
        alignas(32) std::int32_t tables[nibbles * 16 * 8];
        alignas(32) std::int32_t sums[rows_at_once * 8];
        const std::size_t num_words = words_per_row(scores.num_bits);
        for (std::size_t n = 0; n < scores.count; n += 8) {
            const std::size_t some = scores.count - n < 8 ? scores.count - n : 8;
            for (std::size_t first = begin; first < end; first += rows_at_once) {
                const std::size_t num_rows =
                    end - first < rows_at_once ? end - first : rows_at_once;
                for (std::size_t w = 0; w < num_words; w += slab_words) {
                    const std::size_t words =
                        num_words - w < slab_words ? num_words - w : slab_words;
                    const __m256i total = make_score_tables(scores, n, some, w, words, tables);
                    for (std::size_t i = 0; i < num_rows; ++i) {
                        const word* row = scores.words + (first + i) * num_words + w;
                        const __m256i sum = look_up_scores(row, words, tables);
                        const __m256i dot = _mm256_sub_epi32(_mm256_add_epi32(sum, sum), total);
                        store(sums + i * 8,
                              w == 0 ? dot : _mm256_add_epi32(dot, load(sums + i * 8)));
                    }
                }
                for (std::size_t m = 0; m < some; ++m) {
                    for (std::size_t i = 0; i < num_rows; ++i) {
                        scores.out[(n + m) * scores.num_rows + first + i] =
                            bounded_score(static_cast<float>(sums[i * 8 + m]) *
                                          scores.sigma[n + m] * scores.factor[first + i]);
                    }
                }
            }
        }
    }

   private:
    // tables[nibble][i]: the sums of those of four bits' values whose bit in i is set, of the
    // scores n .. n + count side by side. Returns the sums of all values.
    static __m256i make_score_tables(const Scores& scores, std::size_t n, std::size_t count,
                                     std::size_t first_word, std::size_t words,
                                     std::int32_t* tables) {
        const std::size_t row = words_per_row(scores.num_bits) * word_bits;
        __m256i total = _mm256_setzero_si256();
        for (std::size_t k = 0; k < words * word_bits; k += 4, tables += 16 * 8) {
            store(tables, _mm256_setzero_si256());
            for (std::size_t m = 0; m < 4; ++m) {
                alignas(32) std::int32_t values[8] = {};
                for (std::size_t lane = 0; lane < count; ++lane) {
                    values[lane] = scores.values[(n + lane) * row + first_word * word_bits + k + m];
                }
                const std::size_t half_of_it = std::size_t{1} << m;
                for (std::size_t i = 0; i < half_of_it; ++i) {
                    store(tables + (half_of_it + i) * 8,
                          _mm256_add_epi32(load(tables + i * 8), load(values)));
                }
            }
            total = _mm256_add_epi32(total, load(tables + 15 * 8));
        }
        return total;
    }

    static __m256i look_up_scores(const word* row, std::size_t words, const std::int32_t* tables) {
        __m256i even = _mm256_setzero_si256(), odd = even;
        for (std::size_t w = 0; w < words; ++w) {
            word bits = row[w];
            for (std::size_t byte = 0; byte < 8; ++byte, bits >>= 8, tables += 2 * 16 * 8) {
                even = _mm256_add_epi32(even, load(tables + (bits & 15) * 8));
                odd = _mm256_add_epi32(odd, load(tables + (16 + (bits >> 4 & 15)) * 8));
            }
        }
        return _mm256_add_epi32(even, odd);
    }
};

}  // namespace bignn::avx2
