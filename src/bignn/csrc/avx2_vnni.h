// AVX2 with VNNI on 256 bits: in way T's gather, vpdpbusd multiplies and adds in one instruction
// what takes AVX2 three, and cannot overflow, so that a weight's digit has 8 bits.
#pragma once

#include "avx2_pieces.h"

namespace bignn::avx2 {

// CPUs without AVX-512 have vpdpbusd as AVX-VNNI, those with a part of AVX-512 in its encoding.
enum class Encoding { vex, evex };

// |s| <= chunk * 255 * 128 < 2^31.
template <class Set, Encoding encoding>
struct VnniPieces : Pieces<Set> {
    static constexpr int digit_bits = 8;
    static_assert(most_edge_bits <= 3 * digit_bits);

    // Assembly, since the files that include this are compiled for AVX2 alone, so that nothing else
    // in them needs more; and GCC 12 copies the sums of a loop around the intrinsic.
    static __m256i dot_bytes(__m256i sum, __m256i digits, __m256i bytes) {
        if constexpr (encoding == Encoding::vex) {
            asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(digits), "x"(bytes));
        } else {
            asm("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(digits), "x"(bytes));
        }
        return sum;
    }
};

}  // namespace bignn::avx2
