// AVX-512 as on Ice Lake and Zen 4 and later: VPOPCNTDQ counts the bits of eight words in one
// instruction, VNNI (vpdpbusd) multiplies and adds 64 bytes in one, VBMI (vpermb) looks 64 bytes up
// in one.
//
// Called after dispatch.cpp has asked the CPU. Sums are named variables throughout, since GCC 12
// spills arrays of them.
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace bignn {
namespace {

namespace plain {
#include "plain.h"
}

using plain::add_head;
using plain::bounded;
using plain::floor_log2;
using plain::leaky;
using plain::power_of_two;
using plain::RowWeights;
using plain::share_of;

template <int number>
struct Number {
    static constexpr int value = number;
};

inline __mmask16 first_lanes(std::size_t count) {
    return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

// sum + four unsigned bytes times four signed ones, per 32 bits; and two signed 16-bit numbers
// times two. As assembly, since GCC 12 copies every sum of a loop from register to register around
// these intrinsics: 24 moves beside 24 instructions of work.
inline __m512i dot_bytes(__m512i sum, __m512i bytes, __m512i factors) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(factors));
    return sum;
}

inline __m512i dot_shorts(__m512i sum, __m512i shorts, __m512i factors) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(shorts), "v"(factors));
    return sum;
}

void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits, word* words) {
    const __m512 zero = _mm512_setzero_ps();
    for (std::size_t i = 0; i < num_rows; ++i) {
        for (std::size_t k = 0; k < num_bits; k += word_bits) {
            word packed = 0;
            for (std::size_t bit = 0; bit < word_bits && k + bit < num_bits; bit += 16) {
                const __mmask16 valid = first_lanes(num_bits - k - bit);
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

#include "avx512_xnor.h"
#include "avx512_weights.h"
#include "avx512_attention.h"
#include "avx512_records.h"
#include "avx512_product.h"
#include "avx512_bits.h"
#include "avx512_ends.h"
#include "rows.h"

// --- Training ----------------------------------------------------------------------------------

using floats = __m512;
constexpr std::size_t lanes = 16;
inline floats broadcast(float x) { return _mm512_set1_ps(x); }

#define BIGNN_HAS_MASKED_COUNTS
inline void masked_counts(const word* row, const word* mask, const half* panel,
                          std::size_t num_words, std::int32_t* counts) {
    const auto* bits = reinterpret_cast<const half_of_word*>(row);
    const auto* kept = reinterpret_cast<const half_of_word*>(mask);
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

#include "training.h"

#include "table.h"

}  // namespace

constinit const Kernels avx512_kernels = kernels_called("avx512");

}  // namespace bignn

#else

namespace bignn {
const Kernels avx512_kernels = {.name = "avx512"};
}

#endif
