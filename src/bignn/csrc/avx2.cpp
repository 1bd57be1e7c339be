// AVX2: four 64-bit lanes. There is no vector popcount, so bits are counted by table: vpshufb
// looks up the count of each nibble, vpsadbw adds the eight byte counts of a lane.
//
// Built for the ABI's floor; only the functions marked BIGNN_TARGET use AVX2, and dispatch.cpp
// calls them after the CPU has said it has it.
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define BIGNN_TARGET __attribute__((target("avx2,popcnt")))

namespace bignn {
namespace {

BIGNN_TARGET void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits,
                            word* words) {
    const __m256 zero = _mm256_setzero_ps();
    for (std::size_t i = 0; i < num_rows; ++i) {
        for (std::size_t k = 0; k < num_bits; k += word_bits) {
            word packed = 0;
            if (k + word_bits <= num_bits) {
                for (std::size_t bit = 0; bit < word_bits; bit += 8) {
                    const __m256 at_least_zero =
                        _mm256_cmp_ps(_mm256_loadu_ps(x + k + bit), zero, _CMP_GE_OQ);
                    packed |= static_cast<word>(
                                  static_cast<unsigned>(_mm256_movemask_ps(at_least_zero)))
                              << bit;
                }
            } else {
                for (std::size_t bit = 0; k + bit < num_bits; ++bit) {
                    packed |= static_cast<word>(x[k + bit] >= 0.0f) << bit;
                }
            }
            *words++ = packed;
        }
        x += num_bits;
    }
}

// Byte-wise population counts. Each byte is at most 8, so 31 of them add up within a byte.
BIGNN_TARGET inline __m256i count_bytes(__m256i v) {
    const __m256i nibble_count =
        _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                         0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(0x0f);
    return _mm256_add_epi8(
        _mm256_shuffle_epi8(nibble_count, _mm256_and_si256(v, low)),
        _mm256_shuffle_epi8(nibble_count, _mm256_and_si256(_mm256_srli_epi16(v, 4), low)));
}

BIGNN_TARGET void xnor_rows(const word* a, const word* b_panels, std::size_t begin,
                            std::size_t end, std::size_t num_columns, std::size_t num_bits,
                            std::int32_t* out) {
    const std::size_t num_words = words_per_row(num_bits);
    const __m256i zero = _mm256_setzero_si256();
    constexpr std::size_t flush_every = 31;
    for (std::size_t i = begin; i < end; ++i) {
        const word* row = a + i * num_words;
        for (std::size_t j = 0; j < num_columns; j += panel_width) {
            const word* panel = b_panels + j * num_words;
            __m256i low_sum = zero;
            __m256i high_sum = zero;
            for (std::size_t w = 0; w < num_words;) {
                const std::size_t stop = w + flush_every < num_words ? w + flush_every : num_words;
                __m256i low_bytes = zero;
                __m256i high_bytes = zero;
                for (; w < stop; ++w) {
                    const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(row[w]));
                    const auto* columns =
                        reinterpret_cast<const __m256i*>(panel + w * panel_width);
                    low_bytes = _mm256_add_epi8(
                        low_bytes,
                        count_bytes(_mm256_xor_si256(bits, _mm256_loadu_si256(columns))));
                    high_bytes = _mm256_add_epi8(
                        high_bytes,
                        count_bytes(_mm256_xor_si256(bits, _mm256_loadu_si256(columns + 1))));
                }
                low_sum = _mm256_add_epi64(low_sum, _mm256_sad_epu8(low_bytes, zero));
                high_sum = _mm256_add_epi64(high_sum, _mm256_sad_epu8(high_bytes, zero));
            }
            alignas(32) std::uint64_t differing[panel_width];
            _mm256_store_si256(reinterpret_cast<__m256i*>(differing), low_sum);
            _mm256_store_si256(reinterpret_cast<__m256i*>(differing + 4), high_sum);
            for (std::size_t lane = 0; lane < panel_width && j + lane < num_columns; ++lane) {
                out[i * num_columns + j + lane] =
                    static_cast<std::int32_t>(num_bits) -
                    2 * static_cast<std::int32_t>(differing[lane]);
            }
        }
    }
}

}  // namespace

const Kernels avx2_kernels = {"avx2", pack_rows, xnor_rows};

}  // namespace bignn

#else

namespace bignn {
const Kernels avx2_kernels = {"avx2", nullptr, nullptr};
}

#endif
