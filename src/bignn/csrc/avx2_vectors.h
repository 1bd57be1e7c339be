// Loads, stores and masks of 256 bits, shared by the AVX2 pieces.
#pragma once

#include <immintrin.h>

#include "arithmetic.h"

namespace bignn::avx2 {

static inline __m256i load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

static inline void store(void* to, __m256i values) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), values);
}

// The same 16 bytes in both halves.
static inline __m256i broadcast_half(const void* from) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}

// add_shorts and add_ints add numbers of 16 and 32 bits to a sum that stays in its register. They
// are assembly, since GCC 12 copies the sums of a loop from register to register around the
// intrinsics, and runs out of registers.
static inline void add_shorts(__m256i& sum, __m256i shorts) {
    asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(shorts));
}

static inline void add_ints(__m256i& sum, __m256i ints) {
    asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(ints));
}

// All ones in the first `count` of eight lanes, for masked loads, which touch no other memory.
static inline __m256i first_lanes(std::size_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count < 8 ? count : 8)), lane);
}

static inline float largest_lane(__m256 values) {
    const __m128 four =
        _mm_max_ps(_mm256_castps256_ps128(values), _mm256_extractf128_ps(values, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

static inline std::int32_t total_of_lanes(__m256i values) {
    const __m128i four =
        _mm_add_epi32(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

}  // namespace bignn::avx2
