// Way T in blocks of sources, in AVX2.
#pragma once

#include "avx2_vectors.h"

namespace bignn::avx2 {

template <class Base>
struct BlockPieces : Base {
    using Isa = typename Base::Isa;
    static constexpr bool blocks_pay = true;
    static constexpr int most_block_bits = Base::digit_bits;

    // Half a line at a time: eight sums of 16 bytes each would not leave registers for the bytes.
    static void add_lines(const std::byte* lines, const std::uint16_t* local,
                          const std::uint8_t* weights, std::size_t count, std::int32_t* acc) {
        for (std::size_t part = 0; part < 2; ++part) {
            std::int32_t* to = acc + 8 * part;
            __m256i a0 = load(to), b0 = load(to + 16), c0 = load(to + 32), d0 = load(to + 48);
            const auto line = [&](std::size_t e) {
                return load(lines + std::size_t{64} * local[e] + 32 * part);
            };
            for (std::size_t e = 0; e < count; e += 4) {
                const __m256i r0 = line(e), r1 = line(e + 1), r2 = line(e + 2), r3 = line(e + 3);
                const __m256i low01 = _mm256_unpacklo_epi8(r0, r1);
                const __m256i high01 = _mm256_unpackhi_epi8(r0, r1);
                const __m256i low23 = _mm256_unpacklo_epi8(r2, r3);
                const __m256i high23 = _mm256_unpackhi_epi8(r2, r3);
                int four;
                __builtin_memcpy(&four, weights + e, sizeof four);
                const __m256i q = _mm256_set1_epi32(four);
                a0 = Isa::dot_bytes(a0, q, _mm256_unpacklo_epi16(low01, low23));
                b0 = Isa::dot_bytes(b0, q, _mm256_unpackhi_epi16(low01, low23));
                c0 = Isa::dot_bytes(c0, q, _mm256_unpacklo_epi16(high01, high23));
                d0 = Isa::dot_bytes(d0, q, _mm256_unpackhi_epi16(high01, high23));
            }
            store(to, a0), store(to + 16, b0), store(to + 32, c0), store(to + 48, d0);
        }
    }
};

}  // namespace bignn::avx2
