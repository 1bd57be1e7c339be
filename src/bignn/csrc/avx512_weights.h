// The integer weights of a row's neighbours and where their data is, in AVX-512.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

template <class Base>
struct WeightPieces : Base {
    using Base::weigh;  // for ids of 64 bits

    static void weigh(const std::int32_t* ids, const float* weights, std::size_t count,
                      const float* factor, float* x) {
        for (std::size_t e = 0; e < count; e += 16) {
            const __mmask16 valid = first_lanes(count - e);
            const __m512i from = _mm512_maskz_loadu_epi32(valid, ids + e);
            __m512 values =
                _mm512_mask_i32gather_ps(_mm512_setzero_ps(), valid, from, factor, sizeof(float));
            if (weights) {
                values = bounded(_mm512_mul_ps(values, _mm512_maskz_loadu_ps(valid, weights + e)));
            }
            _mm512_storeu_ps(x + e, values);
        }
    }

    static float largest(const float* x, std::size_t count) {
        __m512 most = _mm512_setzero_ps();
        for (std::size_t e = 0; e < count; e += 16) {
            most = _mm512_max_ps(most, _mm512_maskz_loadu_ps(first_lanes(count - e), x + e));
        }
        return _mm512_reduce_max_ps(most);
    }

    using Base::set_row_pointers;  // for ids of 64 bits

    static void set_row_pointers(const std::int32_t* ids, std::size_t count, const std::byte* data,
                                 std::size_t stride, const std::byte** rows) {
        const __m512i start = _mm512_set1_epi64(reinterpret_cast<long long>(data));
        const __m512i step = _mm512_set1_epi64(static_cast<long long>(stride));
        for (std::size_t e = 0; e < count; e += 16) {
            const __m512i some = _mm512_maskz_loadu_epi32(first_lanes(count - e), ids + e);
            const __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(some));
            const __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(some, 1));
            // Ids and strides are below 2^32, so one multiplication of 32 bits is enough.
            _mm512_storeu_si512(rows + e, _mm512_add_epi64(start, _mm512_mul_epu32(low, step)));
            _mm512_storeu_si512(rows + e + 8,
                                _mm512_add_epi64(start, _mm512_mul_epu32(high, step)));
        }
    }

    static std::uint32_t round_weights(const float* x, std::size_t count, float two_to_e,
                                       std::uint32_t limit, std::uint32_t* q) {
        __m512i total = _mm512_setzero_si512();
        for (std::size_t e = 0; e < count; e += 16) {
            const __m512 scaled = _mm512_mul_ps(
                _mm512_maskz_loadu_ps(first_lanes(count - e), x + e), _mm512_set1_ps(two_to_e));
            const __m512i rounded = _mm512_min_epu32(_mm512_cvtps_epi32(scaled),
                                                     _mm512_set1_epi32(static_cast<int>(limit)));
            _mm512_storeu_si512(q + e, rounded);
            total = _mm512_add_epi32(total, rounded);
        }
        return static_cast<std::uint32_t>(_mm512_reduce_add_epi32(total));
    }

    // Does what row_weights does, for four rows at once. `few` neighbours never cost a weight any
    // bits.
    static void weigh_tile(const float* x, const std::int64_t* offsets, const float* target_factor,
                           int bits, std::uint32_t* q, std::uint32_t* totals, float* row_scale) {
        static_assert(tile_rows == 4 && few == 16 &&
                      few < std::size_t{1} << (total_bits - most_edge_bits));
        const auto row = [&](std::size_t r) {
            return _mm512_maskz_loadu_ps(
                first_lanes(static_cast<std::size_t>(offsets[r + 1] - offsets[r])),
                x + (offsets[r] - offsets[0]));
        };
        const __m512 x0 = row(0), x1 = row(1), x2 = row(2), x3 = row(3);
        const __m128 most = largest_of_each(x0, x1, x2, x3);
        const __mmask8 any = _mm_cmp_ps_mask(most, _mm_set1_ps(smallest_weight), _CMP_GE_OQ);
        // e = bits - 1 - floor(log2(most)), and 2^e from its exponent field.
        const __m128i field = _mm_srli_epi32(_mm_castps_si128(most), 23);
        const __m128i e = _mm_maskz_sub_epi32(any, _mm_set1_epi32(bits - 1 + 127), field);
        const __m128i bias = _mm_set1_epi32(127);
        const __m128 up = _mm_castsi128_ps(_mm_maskz_slli_epi32(any, _mm_add_epi32(bias, e), 23));
        const __m128 down = _mm_castsi128_ps(_mm_slli_epi32(_mm_sub_epi32(bias, e), 23));
        _mm_storeu_ps(row_scale, _mm_mul_ps(_mm_loadu_ps(target_factor), down));
        const auto weights = [&](__m512 values, __m128 power) {
            return _mm512_min_epu32(
                _mm512_cvtps_epi32(_mm512_mul_ps(values, _mm512_broadcastss_ps(power))),
                _mm512_set1_epi32((1 << bits) - 1));
        };
        const __m512i q0 = weights(x0, up);
        const __m512i q1 = weights(x1, _mm_permute_ps(up, 0x55));
        const __m512i q2 = weights(x2, _mm_permute_ps(up, 0xaa));
        const __m512i q3 = weights(x3, _mm_permute_ps(up, 0xff));
        _mm512_storeu_si512(q, q0);
        _mm512_storeu_si512(q + few, q1);
        _mm512_storeu_si512(q + 2 * few, q2);
        _mm512_storeu_si512(q + 3 * few, q3);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(totals), total_of_each(q0, q1, q2, q3));
    }
};

}  // namespace bignn::avx512
