// AVX2. There is no vector popcount, so bits are counted by table: vpshufb looks up the count of
// each nibble, and two multiplications by 1 add the four byte counts of a half word.
//
// Called after dispatch.cpp has asked the CPU.
#include <immintrin.h>

#include "table.h"

namespace bignn {
namespace {

// Byte-wise population counts. Each byte is at most 8, so 31 of them add up within a byte.
inline __m256i count_bytes(__m256i v) {
    const __m256i nibble_count =
        _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                         0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(0x0f);
    return _mm256_add_epi8(
        _mm256_shuffle_epi8(nibble_count, _mm256_and_si256(v, low)),
        _mm256_shuffle_epi8(nibble_count, _mm256_and_si256(_mm256_srli_epi16(v, 4), low)));
}

// The byte counts of four columns' half words in each 128 bits, added up per half word.
inline __m256i add_bytes(__m256i sums, __m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// The pieces that are not here are the plain loops, which the compiler turns into AVX2.
struct Avx2 : Plain<Avx2> {
    static void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits, word* words) {
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

    static void count_differing(const word* row, const half* panel, std::size_t num_words,
                                std::int32_t* differing) {
        const __m256i zero = _mm256_setzero_si256();
        constexpr std::size_t flush_every = 31;
        const std::size_t num_halves = 2 * num_words;
        __m256i low_sum = zero;
        __m256i high_sum = zero;
        for (std::size_t w = 0; w < num_halves;) {
            const std::size_t stop = w + flush_every < num_halves ? w + flush_every : num_halves;
            __m256i low_bytes = zero;
            __m256i high_bytes = zero;
            for (; w < stop; ++w) {
                const __m256i bits =
                    _mm256_set1_epi32(static_cast<int>(row[w / 2] >> (w % 2 * 32)));
                const auto* columns = reinterpret_cast<const __m256i*>(panel + w * panel_width);
                low_bytes = _mm256_add_epi8(
                    low_bytes, count_bytes(_mm256_xor_si256(bits, _mm256_loadu_si256(columns))));
                high_bytes = _mm256_add_epi8(
                    high_bytes,
                    count_bytes(_mm256_xor_si256(bits, _mm256_loadu_si256(columns + 1))));
            }
            low_sum = add_bytes(low_sum, low_bytes);
            high_sum = add_bytes(high_sum, high_bytes);
        }
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(differing), low_sum);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(differing + 8), high_sum);
    }

    using floats = float __attribute__((vector_size(32)));
    static constexpr std::size_t lanes = 8;
    static floats broadcast(float x) { return floats(_mm256_set1_ps(x)); }
};

}  // namespace

constinit const Kernels avx2_kernels = kernels_of<Avx2>("avx2");

}  // namespace bignn
