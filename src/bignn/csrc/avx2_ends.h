// The end of a row in AVX2: from sums to signs, values or classes.
#pragma once

#include "avx2_vectors.h"

namespace bignn::avx2 {

template <class Base>
struct EndPieces : Base {
    using typename Base::Isa;

    static void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits, word* words) {
        const __m256 zero = _mm256_setzero_ps();
        for (std::size_t i = 0; i < num_rows; ++i, x += num_bits) {
            for (std::size_t k = 0; k < num_bits; k += word_bits) {
                word packed = 0;
                for (std::size_t bit = 0; bit < word_bits && k + bit < num_bits; bit += 8) {
                    const std::size_t left = num_bits - k - bit;
                    const __m256 values = _mm256_maskload_ps(x + k + bit, first_lanes(left));
                    const word signs = static_cast<word>(static_cast<unsigned>(
                        _mm256_movemask_ps(_mm256_cmp_ps(values, zero, _CMP_GE_OQ))));
                    packed |= (left < 8 ? signs & ((word{1} << left) - 1) : signs) << bit;
                }
                *words++ = packed;
            }
        }
    }

    // Pairs become 16-bit numbers, which are multiplied by the pair of weights and added.
    static void move_sums(std::int32_t* sums, std::size_t stride, const SumMove* moves,
                          std::size_t count, std::int32_t odd) {
        std::int32_t more = 0;
        for (std::size_t m = 0; m < count; ++m) more += odd * (moves[m].after - moves[m].before);
        for (std::size_t c = 0; c < stride; c += 8) {
            auto* to = reinterpret_cast<__m256i*>(sums + c);
            __m256i sum = _mm256_setzero_si256();
            for (std::size_t m = 0; m < count; ++m) {
                const __m256i pairs = _mm256_cvtepi8_epi16(
                    _mm_loadu_si128(reinterpret_cast<const __m128i*>(moves[m].pairs + 2 * c)));
                sum = _mm256_add_epi32(
                    sum, _mm256_madd_epi16(pairs, _mm256_set1_epi32(pair_of(moves[m]))));
            }
            sum = _mm256_add_epi32(_mm256_slli_epi32(sum, 1), _mm256_set1_epi32(more));
            _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), sum));
        }
    }

    // sum * row_scale * scale + shift of eight columns; 0 in lanes that are not valid.
    static __m256 output(const float* sums, __m256i valid, float row_scale, const float* scale,
                         const float* shift) {
        const __m256 scaled =
            _mm256_mul_ps(_mm256_maskload_ps(sums, valid), _mm256_set1_ps(row_scale));
        return _mm256_add_ps(_mm256_mul_ps(scaled, _mm256_maskload_ps(scale, valid)),
                             _mm256_maskload_ps(shift, valid));
    }

    static __m256 output(const float* sums, float row_scale, const float* scale,
                         const float* shift) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(sums), _mm256_set1_ps(row_scale));
        return _mm256_add_ps(_mm256_mul_ps(scaled, _mm256_loadu_ps(scale)), _mm256_loadu_ps(shift));
    }

    static word signs_of(__m256 h) {
        return static_cast<word>(static_cast<unsigned>(
            _mm256_movemask_ps(_mm256_cmp_ps(h, _mm256_setzero_ps(), _CMP_GE_OQ))));
    }

    static __m256 absolute(__m256 h) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), h); }

    // Sixteen partial sums of |h|, column c in number c % 16, then halves onto halves: the order
    // that Plain defines.
    static float sign_row(const float* sums, float row_scale, const float* scale,
                          const float* shift, std::size_t num_outputs, word* words) {
        __m256 low = _mm256_setzero_ps(), high = low;
        for (std::size_t k = 0; k < num_outputs; k += word_bits) {
            word packed = 0;
            for (std::size_t bit = 0; bit < word_bits && k + bit < num_outputs; bit += 16) {
                const std::size_t c = k + bit, left = num_outputs - c;
                if (left >= 16) {
                    const __m256 h0 = output(sums + c, row_scale, scale + c, shift + c);
                    const __m256 h1 = output(sums + c + 8, row_scale, scale + c + 8, shift + c + 8);
                    low = _mm256_add_ps(low, absolute(h0));
                    high = _mm256_add_ps(high, absolute(h1));
                    packed |= (signs_of(h0) | signs_of(h1) << 8) << bit;
                    continue;
                }
                const __m256i valid0 = first_lanes(left);
                const __m256 h0 = output(sums + c, valid0, row_scale, scale + c, shift + c);
                low = _mm256_add_ps(low, absolute(h0));
                word some = signs_of(h0);
                if (left > 8) {
                    const __m256i valid1 = first_lanes(left - 8);
                    const __m256 h1 =
                        output(sums + c + 8, valid1, row_scale, scale + c + 8, shift + c + 8);
                    high = _mm256_add_ps(high, absolute(h1));
                    some |= signs_of(h1) << 8;
                }
                packed |= (some & ((word{1} << left) - 1)) << bit;
            }
            *words++ = packed;
        }
        const __m256 by8 = _mm256_add_ps(low, high);
        const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
        const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
        return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
    }

    static void value_row(const float* sums, float row_scale, const float* scale,
                          const float* shift, std::size_t num_outputs, float* values) {
        std::size_t c = 0;
        for (; c + 8 <= num_outputs; c += 8) {
            _mm256_storeu_ps(values + c, output(sums + c, row_scale, scale + c, shift + c));
        }
        if (c < num_outputs) {
            const __m256i valid = first_lanes(num_outputs - c);
            _mm256_maskstore_ps(values + c, valid,
                                output(sums + c, valid, row_scale, scale + c, shift + c));
        }
    }

    static std::int32_t first_largest(const float* values, std::size_t count) {
        const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
        __m256 most = lowest;
        const auto some = [&](std::size_t c) {
            const __m256i valid = first_lanes(count - c);
            return _mm256_blendv_ps(lowest, _mm256_maskload_ps(values + c, valid),
                                    _mm256_castsi256_ps(valid));
        };
        // Of two operands, the maximum is the second where the first is not a number.
        for (std::size_t c = 0; c < count; c += 8) most = _mm256_max_ps(some(c), most);
        const float top = largest_lane(most);
        if (top == -__builtin_inff()) return 0;  // nothing is larger than the first
        for (std::size_t c = 0; c < count; c += 8) {
            const int equal =
                _mm256_movemask_ps(_mm256_cmp_ps(some(c), _mm256_set1_ps(top), _CMP_EQ_OQ));
            if (equal)
                return static_cast<std::int32_t>(c) + __builtin_ctz(static_cast<unsigned>(equal));
        }
        return 0;
    }

    static void put_head(const float* from, float row_scale, std::size_t channels, float* sums) {
        std::size_t c = 0;
        for (; c + 8 <= channels; c += 8) {
            _mm256_storeu_ps(sums + c,
                             _mm256_mul_ps(_mm256_loadu_ps(from + c), _mm256_set1_ps(row_scale)));
        }
        for (; c < channels; ++c) sums[c] = from[c] * row_scale;
    }
};

}  // namespace bignn::avx2
