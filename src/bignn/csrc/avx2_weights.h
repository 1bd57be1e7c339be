// The integer weights of a row's neighbours, in AVX2.
#pragma once

#include "avx2_vectors.h"

namespace bignn::avx2 {

template <class Base>
struct WeightPieces : Base {
    using typename Base::Isa;

    static float largest(const float* x, std::size_t count) {
        __m256 most = _mm256_setzero_ps();
        for (std::size_t e = 0; e < count; e += 8) {
            most = _mm256_max_ps(most, _mm256_maskload_ps(x + e, first_lanes(count - e)));
        }
        return largest_lane(most);
    }

    // Padded with 0 to a multiple of 16: lanes past the end are loaded as 0.
    static std::uint32_t round_weights(const float* x, std::size_t count, float two_to_e,
                                       std::uint32_t limit, std::uint32_t* q) {
        __m256i total = _mm256_setzero_si256();
        const __m256 power = _mm256_set1_ps(two_to_e);
        const __m256i most = _mm256_set1_epi32(static_cast<int>(limit));
        const std::size_t padded = (count + 15) / 16 * 16;
        for (std::size_t e = 0; e < padded; e += 8) {
            const std::size_t left = e < count ? count - e : 0;
            const __m256 values = _mm256_maskload_ps(x + e, first_lanes(left));
            const __m256i rounded =
                _mm256_min_epu32(_mm256_cvtps_epi32(_mm256_mul_ps(values, power)), most);
            store(q + e, rounded);
            total = _mm256_add_epi32(total, rounded);
        }
        return static_cast<std::uint32_t>(total_of_lanes(total));
    }

    // `few` neighbours never cost a weight any bits, so that a row's two registers say it all.
    static void weigh_tile(const float* x, const std::int64_t* offsets, const float* target_factor,
                           int bits, std::uint32_t* q, std::uint32_t* totals, float* row_scale) {
        static_assert(few == 16 && few < std::size_t{1} << (total_bits - most_edge_bits));
        for (std::size_t r = 0; r < tile_rows; ++r) {
            const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
            const RowWeights weights =
                row_weights(Isa::largest(x, count), count, target_factor[r], bits);
            totals[r] = Isa::round_weights(x, count, weights.two_to_e, weights.limit, q + r * few);
            if (count == 0) {
                store(q + r * few, _mm256_setzero_si256());
                store(q + r * few + 8, _mm256_setzero_si256());
            }
            row_scale[r] = weights.scale;
            x += count;
        }
    }
};

}  // namespace bignn::avx2
