// AVX-512 with VPOPCNTDQ: eight 64-bit lanes, one instruction counts the bits of all of them.
//
// Built for the ABI's floor; only the functions marked BIGNN_TARGET use AVX-512, and dispatch.cpp
// calls them after the CPU has said it has it.
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define BIGNN_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vpopcntdq")))

namespace bignn {
namespace {

BIGNN_TARGET void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits,
                            word* words) {
    const __m512 zero = _mm512_setzero_ps();
    for (std::size_t i = 0; i < num_rows; ++i) {
        for (std::size_t k = 0; k < num_bits; k += word_bits) {
            word packed = 0;
            for (std::size_t bit = 0; bit < word_bits && k + bit < num_bits; bit += 16) {
                const std::size_t left = num_bits - k - bit;
                const __mmask16 valid = left >= 16 ? static_cast<__mmask16>(0xffff)
                                                   : static_cast<__mmask16>((1u << left) - 1);
                const __m512 values = _mm512_maskz_loadu_ps(valid, x + k + bit);
                packed |= static_cast<word>(_mm512_mask_cmp_ps_mask(valid, values, zero,
                                                                    _CMP_GE_OQ))
                          << bit;
            }
            *words++ = packed;
        }
        x += num_bits;
    }
}

BIGNN_TARGET inline __m512i count_differing(__m512i sum, word bits, __m512i columns) {
    const __m512i broadcast = _mm512_set1_epi64(static_cast<long long>(bits));
    return _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_xor_si512(broadcast, columns)));
}

BIGNN_TARGET inline void store_dots(__m512i differing, std::int32_t num_bits, std::size_t valid,
                                    std::int32_t* out) {
    const __m256i dots =
        _mm256_sub_epi32(_mm256_set1_epi32(num_bits),
                         _mm256_slli_epi32(_mm512_cvtepi64_epi32(differing), 1));
    const auto mask = static_cast<__mmask8>(valid >= panel_width ? 0xff : (1u << valid) - 1);
    _mm256_mask_storeu_epi32(out, mask, dots);
}

// Four rows against one panel: a panel word is loaded once for the four, and the four chains of
// dependent adds hide the popcount's latency. Named sums, since GCC 12 spills arrays of them.
BIGNN_TARGET void xnor_rows(const word* a, const word* b_panels, std::size_t begin,
                            std::size_t end, std::size_t num_columns, std::size_t num_bits,
                            std::int32_t* out) {
    const std::size_t num_words = words_per_row(num_bits);
    const auto bits = static_cast<std::int32_t>(num_bits);
    std::size_t i = begin;
    for (; i + 4 <= end; i += 4) {
        const word* row0 = a + i * num_words;
        const word* row1 = row0 + num_words;
        const word* row2 = row1 + num_words;
        const word* row3 = row2 + num_words;
        for (std::size_t j = 0; j < num_columns; j += panel_width) {
            const word* panel = b_panels + j * num_words;
            __m512i sum0 = _mm512_setzero_si512();
            __m512i sum1 = sum0;
            __m512i sum2 = sum0;
            __m512i sum3 = sum0;
            for (std::size_t w = 0; w < num_words; ++w) {
                const __m512i columns = _mm512_loadu_si512(panel + w * panel_width);
                sum0 = count_differing(sum0, row0[w], columns);
                sum1 = count_differing(sum1, row1[w], columns);
                sum2 = count_differing(sum2, row2[w], columns);
                sum3 = count_differing(sum3, row3[w], columns);
            }
            std::int32_t* to = out + i * num_columns + j;
            store_dots(sum0, bits, num_columns - j, to);
            store_dots(sum1, bits, num_columns - j, to + num_columns);
            store_dots(sum2, bits, num_columns - j, to + 2 * num_columns);
            store_dots(sum3, bits, num_columns - j, to + 3 * num_columns);
        }
    }
    for (; i < end; ++i) {
        const word* row = a + i * num_words;
        for (std::size_t j = 0; j < num_columns; j += panel_width) {
            const word* panel = b_panels + j * num_words;
            __m512i sum = _mm512_setzero_si512();
            for (std::size_t w = 0; w < num_words; ++w) {
                sum = count_differing(sum, row[w], _mm512_loadu_si512(panel + w * panel_width));
            }
            store_dots(sum, bits, num_columns - j, out + i * num_columns + j);
        }
    }
}

}  // namespace

const Kernels avx512_kernels = {"avx512", pack_rows, xnor_rows};

}  // namespace bignn

#else

namespace bignn {
const Kernels avx512_kernels = {"avx512", nullptr, nullptr};
}

#endif
