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

// All ones in the first `count` of eight lanes, for masked loads, which touch no other memory.
static inline __m256i first_lanes(std::size_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count < 8 ? count : 8)), lane);
}

}  // namespace bignn::avx2
