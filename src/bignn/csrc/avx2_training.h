// Training on bits in AVX2.
#pragma once

#include "avx2_xnor.h"

namespace bignn::avx2 {

template <class Base>
struct TrainingPieces : Base {
    using typename Base::Isa;

    using floats = float __attribute__((vector_size(32)));
    static constexpr std::size_t lanes = 8;
    static floats broadcast(float x) { return floats(_mm256_set1_ps(x)); }

    static void masked_counts(const word* row, const word* mask, const half* panel,
                              std::size_t num_words, std::int32_t* counts) {
        __m256i low = _mm256_setzero_si256(), high = low;
        for (std::size_t w = 0; w < 2 * num_words;) {
            const std::size_t left = 2 * num_words - w;
            const std::size_t stop = w + (left < flush_every ? left : flush_every);
            __m256i low_bytes = _mm256_setzero_si256(), high_bytes = low_bytes;
            for (; w < stop; ++w, panel += panel_width) {
                const __m256i bits = broadcast_bits(row, w), kept = broadcast_bits(mask, w);
                const auto count = [&](const half* columns) {
                    return count_bytes(
                        _mm256_and_si256(kept, _mm256_xor_si256(bits, load(columns))));
                };
                low_bytes = _mm256_add_epi8(low_bytes, count(panel));
                high_bytes = _mm256_add_epi8(high_bytes, count(panel + 8));
            }
            low = add_bytes(low, low_bytes);
            high = add_bytes(high, high_bytes);
        }
        store(counts, low);
        store(counts + 8, high);
    }

    static void keep_row(const float* x, const word* mask, std::size_t num_bits, float* out) {
        const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        std::size_t k = 0;
        for (; k + 8 <= num_bits; k += 8) {
            const __m256i bits =
                _mm256_set1_epi32(static_cast<int>(mask[k / word_bits] >> k % word_bits & 255));
            const __m256i is_kept = _mm256_cmpeq_epi32(_mm256_and_si256(bits, bit), bit);
            _mm256_storeu_ps(out + k, _mm256_maskload_ps(x + k, is_kept));
        }
        for (; k < num_bits; ++k) {
            out[k] = mask[k / word_bits] >> k % word_bits & 1 ? x[k] : 0.0f;
        }
    }
};

}  // namespace bignn::avx2
