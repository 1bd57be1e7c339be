// Way T in blocks of sources, in AVX-512.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

// Whether ids rise, so that those of a block follow each other.
static inline bool rise(const std::int32_t* ids, std::size_t count) {
    __mmask16 falls = 0;
    for (std::size_t e = 0; e + 1 < count; e += 16) {
        const __mmask16 valid = first_lanes(count - 1 - e);
        falls |= _mm512_mask_cmpgt_epi32_mask(valid, _mm512_maskz_loadu_epi32(valid, ids + e),
                                              _mm512_maskz_loadu_epi32(valid, ids + e + 1));
    }
    return falls == 0;
}

// How many of `count` rising ids, from the first on, are below `limit`.
static inline std::size_t count_below(const std::int32_t* ids, std::size_t count,
                                      std::size_t limit) {
    // Unsigned: the end of the last block may be 2^31.
    const __m512i limits = _mm512_set1_epi32(static_cast<int>(limit));
    std::size_t below = 0;
    for (;;) {
        const __mmask16 valid = first_lanes(count - below);
        const __mmask16 some = _mm512_mask_cmplt_epu32_mask(
            valid, _mm512_maskz_loadu_epi32(valid, ids + below), limits);
        below += static_cast<std::size_t>(__builtin_popcount(some));
        if (some != 0xffff) return below;
    }
}

template <class Base>
struct BlockPieces : Base {
    static constexpr bool blocks_pay = true;

    using Base::count_in_blocks;  // for ids of 64 bits
    using Base::split_into_blocks;

    static void count_in_blocks(const std::int32_t* ids, std::size_t count, std::size_t shift,
                                std::uint32_t* lengths, std::size_t step) {
        if (!rise(ids, count)) return Base::count_in_blocks(ids, count, shift, lengths, step);
        for (std::size_t e = 0; e < count;) {
            const std::size_t block = static_cast<std::size_t>(ids[e]) >> shift;
            const std::size_t some = count_below(ids + e, count - e, (block + 1) << shift);
            lengths[block * step] += static_cast<std::uint32_t>(some);
            e += some;
        }
    }

    static void split_into_blocks(const std::int32_t* ids, const std::uint32_t* q,
                                  std::size_t count, std::size_t shift, std::size_t* places,
                                  std::uint16_t* local, std::uint8_t* weights) {
        const __m512i mask = _mm512_set1_epi32((1 << shift) - 1);
        for (std::size_t e = 0; e < count;) {
            // Up to sixteen entries that begin with some of one block, in any order of ids.
            const __mmask16 valid = first_lanes(count - e);
            const __m512i some = _mm512_maskz_loadu_epi32(valid, ids + e);
            const std::size_t block = static_cast<std::size_t>(ids[e]) >> shift;
            const __m512i blocks = _mm512_srl_epi32(some, _mm_cvtsi64_si128(shift));
            const __mmask16 same = _mm512_mask_cmpeq_epi32_mask(
                valid, blocks, _mm512_set1_epi32(static_cast<int>(block)));
            const auto taken =
                static_cast<std::size_t>(__builtin_ctz(~static_cast<unsigned>(same)));
            const std::size_t place = places[block];
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(local + place),
                                _mm512_cvtepi32_epi16(_mm512_and_si512(some, mask)));
            _mm_storeu_si128(reinterpret_cast<__m128i*>(weights + place),
                             _mm512_cvtepi32_epi8(_mm512_loadu_si512(q + e)));
            places[block] = place + taken;
            e += taken;
        }
    }

    static void add_lines(const std::byte* lines, const std::uint16_t* local,
                          const std::uint8_t* weights, std::size_t count, std::int32_t* acc) {
        __m512i a0 = _mm512_loadu_si512(acc), b0 = _mm512_loadu_si512(acc + 16);
        __m512i c0 = _mm512_loadu_si512(acc + 32), d0 = _mm512_loadu_si512(acc + 48);
        const auto line = [&](std::size_t e) {
            return _mm512_loadu_si512(lines + std::size_t{64} * local[e]);
        };
        for (std::size_t e = 0; e < count; e += 4) {
            const __m512i r0 = line(e), r1 = line(e + 1), r2 = line(e + 2), r3 = line(e + 3);
            const __m512i low01 = _mm512_unpacklo_epi8(r0, r1);
            const __m512i high01 = _mm512_unpackhi_epi8(r0, r1);
            const __m512i low23 = _mm512_unpacklo_epi8(r2, r3);
            const __m512i high23 = _mm512_unpackhi_epi8(r2, r3);
            int four;
            __builtin_memcpy(&four, weights + e, sizeof four);
            const __m512i q = _mm512_set1_epi32(four);
            a0 = dot_bytes(a0, q, _mm512_unpacklo_epi16(low01, low23));
            b0 = dot_bytes(b0, q, _mm512_unpackhi_epi16(low01, low23));
            c0 = dot_bytes(c0, q, _mm512_unpacklo_epi16(high01, high23));
            d0 = dot_bytes(d0, q, _mm512_unpackhi_epi16(high01, high23));
        }
        _mm512_storeu_si512(acc, a0);
        _mm512_storeu_si512(acc + 16, b0);
        _mm512_storeu_si512(acc + 32, c0);
        _mm512_storeu_si512(acc + 48, d0);
    }
};

}  // namespace bignn::avx512
