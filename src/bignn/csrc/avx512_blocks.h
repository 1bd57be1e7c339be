// Way T in blocks of sources, in AVX-512.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

// Calls visit(begin, end) for runs of ids of one block, in any order of ids. Where runs end is
// found sixteen ids at a time, so that no run waits for the one before it.
template <class Visit>
[[gnu::always_inline]] static inline void for_runs(const std::int32_t* ids, std::size_t count,
                                                   std::size_t shift, Visit visit) {
    const __m128i by = _mm_cvtsi64_si128(static_cast<long long>(shift));
    std::size_t begin = 0;
    for (std::size_t e = 0; e + 1 < count; e += 16) {
        const __mmask16 valid = first_lanes(count - 1 - e);
        const __m512i some = _mm512_srl_epi32(_mm512_maskz_loadu_epi32(valid, ids + e), by);
        const __m512i next = _mm512_srl_epi32(_mm512_maskz_loadu_epi32(valid, ids + e + 1), by);
        for (unsigned ends = _mm512_cmpneq_epi32_mask(some, next); ends; ends &= ends - 1) {
            const std::size_t end = e + static_cast<std::size_t>(__builtin_ctz(ends)) + 1;
            visit(begin, end);
            begin = end;
        }
    }
    if (count) visit(begin, count);
}

template <class Base>
struct BlockPieces : Base {
    static constexpr bool blocks_pay = true;

    using Base::count_in_blocks;  // for ids of 64 bits
    using Base::split_into_blocks;

    static void count_in_blocks(const std::int32_t* ids, std::size_t count, std::size_t shift,
                                std::uint32_t* lengths, std::size_t step) {
        for_runs(ids, count, shift, [&](std::size_t begin, std::size_t end) {
            const std::size_t block = static_cast<std::size_t>(ids[begin]) >> shift;
            lengths[block * step] += static_cast<std::uint32_t>(end - begin);
        });
    }

    static void split_into_blocks(const std::int32_t* ids, const std::uint32_t* q,
                                  std::size_t count, std::size_t shift, std::size_t* places,
                                  std::uint16_t* local, std::uint8_t* weights) {
        const __m512i mask = _mm512_set1_epi32((1 << shift) - 1);
        for_runs(ids, count, shift, [&](std::size_t begin, std::size_t end) {
            std::size_t& to = places[static_cast<std::size_t>(ids[begin]) >> shift];
            std::size_t place = to;
            to += end - begin;
            for (std::size_t e = begin; e < end; e += 16, place += 16) {
                const __m512i some = _mm512_maskz_loadu_epi32(first_lanes(count - e), ids + e);
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(local + place),
                                    _mm512_cvtepi32_epi16(_mm512_and_si512(some, mask)));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(weights + place),
                                 _mm512_cvtepi32_epi8(_mm512_loadu_si512(q + e)));
            }
        });
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
