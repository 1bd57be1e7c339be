// The end of a row, from sums to signs, values or classes, in AVX-512.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

// h of 16 columns.
static inline __m512 output(const float* sums, __mmask16 valid, float row_scale, const float* scale,
                            const float* shift) {
    const __m512 scaled =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(valid, sums), _mm512_set1_ps(row_scale));
    return _mm512_add_ps(_mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(valid, scale)),
                         _mm512_maskz_loadu_ps(valid, shift));
}

// Packs the signs of a row's h; returns the sixteen partial sums of |h|.
static inline __m512 sign_row(const float* sums, float row_scale, const float* scale,
                              const float* shift, std::size_t num_outputs, word* words) {
    __m512 partial = _mm512_setzero_ps();
    const auto piece = [&](std::size_t c, __mmask16 valid) {
        const __m512 h = output(sums + c, valid, row_scale, scale + c, shift + c);
        partial = _mm512_add_ps(partial, _mm512_abs_ps(h));
        return static_cast<word>(
            _mm512_mask_cmp_ps_mask(valid, h, _mm512_setzero_ps(), _CMP_GE_OQ));
    };
    std::size_t k = 0;
    for (; k + word_bits <= num_outputs; k += word_bits) {
        const word p0 = piece(k, 0xffff), p1 = piece(k + 16, 0xffff);
        const word p2 = piece(k + 32, 0xffff), p3 = piece(k + 48, 0xffff);
        *words++ = p0 | p1 << 16 | p2 << 32 | p3 << 48;
    }
    if (k < num_outputs) {
        word packed = 0;
        for (std::size_t bit = 0; k + bit < num_outputs; bit += 16) {
            packed |= piece(k + bit, first_lanes(num_outputs - k - bit)) << bit;
        }
        *words = packed;
    }
    return partial;
}

// Adds halves onto halves, in the order that plain.h defines, down to four numbers.
static inline __m128 fold(__m512 partial) {
    const __m256 by8 =
        _mm256_add_ps(_mm512_castps512_ps256(partial), _mm512_extractf32x8_ps(partial, 1));
    return _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
}

template <class Base>
struct EndPieces : Base {
    // Pairs become 16-bit numbers, which are multiplied by the pair of weights and added.
    static void move_sums(std::int32_t* sums, std::size_t stride, const SumMove* moves,
                          std::size_t count, std::int32_t odd) {
        std::int32_t more = 0;
        for (std::size_t m = 0; m < count; ++m) more += odd * (moves[m].after - moves[m].before);
        for (std::size_t c = 0; c < stride; c += 16) {
            __m512i sum = _mm512_setzero_si512();
            for (std::size_t m = 0; m < count; ++m) {
                const __m512i pairs = _mm512_cvtepi8_epi16(
                    _mm256_loadu_si256(reinterpret_cast<const __m256i*>(moves[m].pairs + 2 * c)));
                sum = dot_shorts(sum, pairs, _mm512_set1_epi32(pair_of(moves[m])));
            }
            sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 1), _mm512_set1_epi32(more));
            _mm512_storeu_si512(sums + c, _mm512_add_epi32(_mm512_loadu_si512(sums + c), sum));
        }
    }

    // Written out since the compiler's own vectors would be half as wide.
    static void put_head(const float* from, float row_scale, std::size_t channels, float* sums) {
        for (std::size_t c = 0; c < channels; c += 16) {
            const __mmask16 valid = first_lanes(channels - c);
            _mm512_mask_storeu_ps(
                sums + c, valid,
                _mm512_mul_ps(_mm512_maskz_loadu_ps(valid, from + c), _mm512_set1_ps(row_scale)));
        }
    }

    static void sign_tile(const float* sums, std::size_t sums_stride, std::size_t num_rows,
                          const float* row_scale, const float* scale, const float* shift,
                          std::size_t num_outputs, word* words, const float* out_scale,
                          float* factor) {
        const std::size_t num_words = words_per_row(num_outputs);
        const auto row = [&](std::size_t r) __attribute__((always_inline)) {
            return r < num_rows ? fold(sign_row(sums + r * sums_stride, row_scale[r], scale, shift,
                                                num_outputs, words + r * num_words))
                                : _mm_setzero_ps();
        };
        const __m128 r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
        const __m128 by2_01 = _mm_add_ps(_mm_movelh_ps(r0, r1), _mm_movehl_ps(r1, r0));
        const __m128 by2_23 = _mm_add_ps(_mm_movelh_ps(r2, r3), _mm_movehl_ps(r3, r2));
        const __m128 sum =
            _mm_add_ps(_mm_shuffle_ps(by2_01, by2_23, 0x88), _mm_shuffle_ps(by2_01, by2_23, 0xdd));
        __m128 result = _mm_div_ps(sum, _mm_set1_ps(static_cast<float>(num_outputs)));
        const auto valid = static_cast<__mmask8>(first_lanes(num_rows));
        // Of two operands, the minimum is the second where the first is not a number.
        const __m128 limit = _mm_set1_ps(largest_weight);
        result = _mm_min_ps(result, limit);
        if (out_scale)
            result = _mm_min_ps(_mm_mul_ps(_mm_maskz_loadu_ps(valid, out_scale), result), limit);
        _mm_mask_storeu_ps(factor, valid, result);
    }

    static void value_row(const float* sums, float row_scale, const float* scale,
                          const float* shift, std::size_t num_outputs, float* values) {
        for (std::size_t c = 0; c < num_outputs; c += 16) {
            const __mmask16 valid = first_lanes(num_outputs - c);
            _mm512_mask_storeu_ps(values + c, valid,
                                  output(sums + c, valid, row_scale, scale + c, shift + c));
        }
    }

    static std::int32_t first_largest(const float* values, std::size_t count) {
        const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
        __m512 most = lowest;
        for (std::size_t c = 0; c < count; c += 16) {
            const __mmask16 valid = first_lanes(count - c);
            // Of two operands, the maximum is the second where the first is not a number.
            most = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, valid, values + c), most);
        }
        const float top = _mm512_reduce_max_ps(most);
        if (top == -__builtin_inff()) return 0;  // nothing is larger than the first
        const __m512 largest_value = _mm512_set1_ps(top);
        for (std::size_t c = 0; c < count; c += 16) {
            const __mmask16 valid = first_lanes(count - c);
            const __mmask16 equal = _mm512_mask_cmp_ps_mask(
                valid, _mm512_maskz_loadu_ps(valid, values + c), largest_value, _CMP_EQ_OQ);
            if (equal) return static_cast<std::int32_t>(c) + __builtin_ctz(equal);
        }
        return 0;
    }

    // The class of a row of up to 64 columns.
    static std::int64_t class_row(const float* sums, float row_scale, const float* scale,
                                  const float* shift, std::size_t num_outputs) {
        const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
        const auto some = [&](std::size_t c) {
            if (c >= num_outputs) return lowest;
            const __mmask16 valid = first_lanes(num_outputs - c);
            const __m512 h = output(sums + c, valid, row_scale, scale + c, shift + c);
            return _mm512_mask_max_ps(lowest, valid, h, lowest);  // lowest where not a number
        };
        const __m512 h0 = some(0), h1 = some(16), h2 = some(32), h3 = some(48);
        const __m512 most = _mm512_max_ps(_mm512_max_ps(h0, h1), _mm512_max_ps(h2, h3));
        const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(most));
        const auto equal = [&](__m512 h) {
            return static_cast<std::uint64_t>(_mm512_cmp_ps_mask(h, top, _CMP_EQ_OQ));
        };
        return __builtin_ctzll(equal(h0) | equal(h1) << 16 | equal(h2) << 32 | equal(h3) << 48);
    }

    static void class_tile(float* sums, std::size_t sums_stride, std::size_t num_rows,
                           const float* row_scale, const float* scale, const float* shift,
                           std::size_t num_outputs, std::int64_t* classes) {
        if (num_rows != 4 || num_outputs > 16) {
            if (num_outputs > 64) {
                Base::class_tile(sums, sums_stride, num_rows, row_scale, scale, shift, num_outputs,
                                 classes);
                return;
            }
            for (std::size_t r = 0; r < num_rows; ++r) {
                classes[r] =
                    class_row(sums + r * sums_stride, row_scale[r], scale, shift, num_outputs);
            }
            return;
        }
        const __mmask16 valid = first_lanes(num_outputs);
        const auto row = [&](std::size_t r) __attribute__((always_inline)) {
            const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
            const __m512 h = output(sums + r * sums_stride, valid, row_scale[r], scale, shift);
            return _mm512_mask_max_ps(lowest, valid, h, lowest);  // lowest where not a number
        };
        const __m512 h0 = row(0), h1 = row(1), h2 = row(2), h3 = row(3);
        const __m128 most = largest_of_each(h0, h1, h2, h3);
        const auto first = [&](__m512 values, __m128 top) {
            return __builtin_ctz(
                _mm512_cmp_ps_mask(values, _mm512_broadcastss_ps(top), _CMP_EQ_OQ));
        };
        classes[0] = first(h0, most);
        classes[1] = first(h1, _mm_permute_ps(most, 0x55));
        classes[2] = first(h2, _mm_permute_ps(most, 0xaa));
        classes[3] = first(h3, _mm_permute_ps(most, 0xff));
    }
};

}  // namespace bignn::avx512
