// AVX-512 as on Ice Lake and Zen 4 and later: VPOPCNTDQ counts the bits of eight words in one
// instruction, VNNI (vpdpbusd) multiplies and adds 64 bytes in one, VBMI (vpermb) looks 64 bytes up
// in one.
//
// Called after dispatch.cpp has asked the CPU. Sums are named variables throughout, since GCC 12
// spills arrays of them.
#include "avx512_attention.h"
#include "avx512_bits.h"
#include "avx512_blocks.h"
#include "avx512_ends.h"
#include "avx512_product.h"
#include "avx512_records.h"
#include "avx512_weights.h"
#include "avx512_xnor.h"
#include "table.h"

namespace bignn {
namespace {

struct Avx512 : With<Plain<Avx512>, avx512::XnorPieces, avx512::WeightPieces,
                     avx512::AttentionPieces, avx512::RecordPieces, avx512::BlockPieces,
                     avx512::ProductPieces, avx512::BitPieces, avx512::EndPieces> {
    static void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits, word* words) {
        const __m512 zero = _mm512_setzero_ps();
        for (std::size_t i = 0; i < num_rows; ++i) {
            for (std::size_t k = 0; k < num_bits; k += word_bits) {
                word packed = 0;
                for (std::size_t bit = 0; bit < word_bits && k + bit < num_bits; bit += 16) {
                    const __mmask16 valid = avx512::first_lanes(num_bits - k - bit);
                    const __m512 values = _mm512_maskz_loadu_ps(valid, x + k + bit);
                    packed |=
                        static_cast<word>(_mm512_mask_cmp_ps_mask(valid, values, zero, _CMP_GE_OQ))
                        << bit;
                }
                *words++ = packed;
            }
            x += num_bits;
        }
    }

    using floats = __m512;
    static constexpr std::size_t lanes = 16;
    static floats broadcast(float x) { return _mm512_set1_ps(x); }

    static void masked_counts(const word* row, const word* mask, const half* panel,
                              std::size_t num_words, std::int32_t* counts) {
        const auto* bits = reinterpret_cast<const avx512::half_of_word*>(row);
        const auto* kept = reinterpret_cast<const avx512::half_of_word*>(mask);
        __m512i sum = _mm512_setzero_si512();
        for (std::size_t w = 0; w < 2 * num_words; ++w, panel += panel_width) {
            const __m512i differing = _mm512_xor_si512(_mm512_set1_epi32(static_cast<int>(bits[w])),
                                                       _mm512_loadu_si512(panel));
            const __m512i counted =
                _mm512_and_si512(_mm512_set1_epi32(static_cast<int>(kept[w])), differing);
            sum = _mm512_add_epi32(sum, _mm512_popcnt_epi32(counted));
        }
        _mm512_storeu_si512(counts, sum);
    }
};

}  // namespace

constinit const Kernels avx512_kernels = kernels_of<Avx512>("avx512");

}  // namespace bignn
