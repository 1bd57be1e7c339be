// Small operations on vectors that several pieces of AVX-512 use.
#pragma once

#include <immintrin.h>

#include "arithmetic.h"

namespace bignn::avx512 {

// Words are read by halves, for which the type must be allowed to alias them.
using half_of_word __attribute__((may_alias)) = half;

// A mask of the first `count` of 16 lanes, or of all.
static inline __mmask16 first_lanes(std::size_t count) {
    return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

// Per 32 bits, dot_bytes adds four unsigned bytes times four signed ones to sum, and dot_shorts two
// signed 16-bit numbers times two. They are assembly, since GCC 12 copies every sum of a loop from
// register to register around the intrinsics: 24 moves beside 24 instructions of work.
static inline __m512i dot_bytes(__m512i sum, __m512i bytes, __m512i factors) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(bytes), "v"(factors));
    return sum;
}

static inline __m512i dot_shorts(__m512i sum, __m512i shorts, __m512i factors) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(shorts), "v"(factors));
    return sum;
}

// `bounded` of arithmetic.h: the minimum is its second operand where the first is not a number.
static inline __m512 bounded(__m512 weights) {
    return _mm512_min_ps(weights, _mm512_set1_ps(largest_weight));
}

// The largest lane of each of four vectors.
static inline __m128 largest_of_each(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all =
        _mm512_max_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 half_of_it =
        _mm256_max_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_max_ps(_mm256_castps256_ps128(half_of_it), _mm256_extractf128_ps(half_of_it, 1));
}

// The sum of the lanes of each of four vectors.
static inline __m128i total_of_each(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half_of_it =
        _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half_of_it),
                         _mm256_extracti128_si256(half_of_it, 1));
}

// Prefetches a line of the neighbour that comes `ahead` places later.
static inline void prefetch(const std::byte* const* rows, std::size_t e, std::size_t at) {
    _mm_prefetch(reinterpret_cast<const char*>(rows[e + ahead] + at), _MM_HINT_T0);
}

}  // namespace bignn::avx512
