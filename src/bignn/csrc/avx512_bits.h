// Way G's first half in AVX-512: sums of bits.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

// --- Gather of bits ----------------------------------------------------------------------------

// Each instruction set compiles its own: nothing here may be linked from outside.
namespace {

// Sums in lanes of 32 bits, sixteen to a piece.
struct IntLanes {
    static constexpr int pieces_per_word = 4;
    using Mask = __mmask16;

    static __m512i weight(const std::uint32_t* q) {
        return _mm512_set1_epi32(static_cast<int>(*q));
    }
    static __m512i add(__m512i sum, Mask mask, __m512i weight) {
        return _mm512_mask_add_epi32(sum, mask, sum, weight);
    }
    // Writes 2 sum - total, or adds it to what is there.
    static void store(__m512i sum, __m512i total, bool first, std::int32_t* u) {
        sum = _mm512_sub_epi32(_mm512_add_epi32(sum, sum), total);
        if (!first) sum = _mm512_add_epi32(sum, _mm512_loadu_si512(u));
        _mm512_storeu_si512(u, sum);
    }
};

// The same in 16 bits, 32 to a piece, where the sum of the weights fits.
struct ShortLanes {
    static constexpr int pieces_per_word = 2;
    static constexpr std::uint32_t largest_total = (1 << 14) - 1;
    using Mask = __mmask32;

    static __m512i weight(const std::uint32_t* q) {
        return _mm512_set1_epi16(static_cast<short>(*q));
    }
    static __m512i add(__m512i sum, Mask mask, __m512i weight) {
        return _mm512_mask_add_epi16(sum, mask, sum, weight);
    }
    static void store(__m512i sum, __m512i total, bool first, std::int32_t* u) {
        const auto half_of_it = [&](__m256i shorts, std::int32_t* to) {
            IntLanes::store(_mm512_cvtepi16_epi32(shorts), total, first, to);
        };
        half_of_it(_mm512_castsi512_si256(sum), u);
        half_of_it(_mm512_extracti64x4_epi64(sum, 1), u + 16);
    }
};

}  // namespace

// Adds the weight to the lanes whose bits, those of a piece, are 1.
template <class Lanes>
static inline __m512i add_where(__m512i sum, const std::byte* bits, std::size_t piece,
                                __m512i weight) {
    typename Lanes::Mask mask;
    __builtin_memcpy(&mask, bits + sizeof mask * piece, sizeof mask);
    return Lanes::add(sum, mask, weight);
}

// Adds up to sixteen pieces of every neighbour: the bits are the masks of the additions.
template <class Lanes, int pieces>
static inline void add_pieces(const std::byte* const* rows, const std::uint32_t* q,
                              std::size_t count, std::size_t offset, std::uint32_t total,
                              bool first, std::int32_t* u) {
    __m512i s0 = _mm512_setzero_si512();
    __m512i s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0, s8 = s0, s9 = s0,
            s10 = s0, s11 = s0, s12 = s0, s13 = s0, s14 = s0, s15 = s0;
    for (std::size_t e = 0; e < count; ++e) {
        prefetch(rows, e, offset);
        const std::byte* bits = rows[e] + offset;
        const __m512i weight = Lanes::weight(q + e);
        const auto add = [&](int piece, __m512i& sum) {
            if (piece < pieces) sum = add_where<Lanes>(sum, bits, piece, weight);
        };
        add(0, s0), add(1, s1), add(2, s2), add(3, s3), add(4, s4), add(5, s5), add(6, s6);
        add(7, s7), add(8, s8), add(9, s9), add(10, s10), add(11, s11), add(12, s12);
        add(13, s13), add(14, s14), add(15, s15);
    }
    const __m512i totals = _mm512_set1_epi32(static_cast<int>(total));
    const auto store = [&](int piece, __m512i sum) {
        constexpr int columns = 64 / Lanes::pieces_per_word;
        if (piece < pieces) Lanes::store(sum, totals, first, u + columns * piece);
    };
    store(0, s0), store(1, s1), store(2, s2), store(3, s3), store(4, s4), store(5, s5);
    store(6, s6), store(7, s7), store(8, s8), store(9, s9), store(10, s10), store(11, s11);
    store(12, s12), store(13, s13), store(14, s14), store(15, s15);
}

// Adds all words of neighbours, as many at a time as there are registers for.
template <class Lanes>
static inline void add_words(const std::byte* const* rows, const std::uint32_t* q,
                             std::size_t count, std::size_t num_words, std::uint32_t total,
                             bool first, std::int32_t* u) {
    constexpr std::size_t most = 16 / Lanes::pieces_per_word;
    const auto add = [&](auto words, std::size_t w) {
        add_pieces<Lanes, decltype(words)::value * Lanes::pieces_per_word>(
            rows, q, count, 8 * w, total, first, u + 64 * w);
    };
    std::size_t w = 0;
    for (; w + most <= num_words; w += most) add(Number<most>{}, w);
    const auto rest = [&](auto words) {
        if (decltype(words)::value < most && num_words - w == decltype(words)::value) add(words, w);
    };
    rest(Number<1>{}), rest(Number<2>{}), rest(Number<3>{});
    if constexpr (most > 4) {
        rest(Number<4>{}), rest(Number<5>{}), rest(Number<6>{}), rest(Number<7>{});
    }
}

// --- Gather of many neighbours' bits -----------------------------------------------------------
//
// Sixteen neighbours are added at a time, by lookup. Four weights have 16 sums of subsets; four
// such groups fill a 64-byte table per byte of the sums (two planes of them where all weights
// together are below 2^16, else three: 4 q < 2^22), and the sixteen bits of a column are four
// places in it. vpermb looks up 16 columns, vpdpbusd adds up a column's four. That and the
// transposition of the bits take fewer instructions than the additions above.

constexpr std::size_t unit = 16;  // neighbours at a time
constexpr std::size_t many = 32;  // neighbours from which on it pays; also in runtime/planner.py
static_assert(most_edge_bits + 2 <= 24);
constexpr std::size_t block_units = 8;  // units whose places are made at once: 16 KB of a slab
constexpr std::size_t slab_words = 8;   // words of columns in a slab

// Makes the tables of sixteen weights. Entry i of group g, at byte 4 i + g, is the sum of the
// weights 4 g + m for which bit m of i is set.
template <int planes>
static inline void make_subset_sums(const std::uint32_t* q, std::byte* tables) {
    const auto subsets = [&](std::size_t g) {
        const auto weight = [&](std::size_t m) {
            return _mm512_set1_epi32(static_cast<int>(q[4 * g + m]));
        };
        __m512i sum = _mm512_maskz_mov_epi32(0xaaaa, weight(0));
        sum = _mm512_mask_add_epi32(sum, 0xcccc, sum, weight(1));
        sum = _mm512_mask_add_epi32(sum, 0xf0f0, sum, weight(2));
        return _mm512_mask_add_epi32(sum, 0xff00, sum, weight(3));
    };
    const __m512i t0 = subsets(0), t1 = subsets(1), t2 = subsets(2), t3 = subsets(3);
    const __m512i even = _mm512_set1_epi32(0x00ff00ff), lower = _mm512_set1_epi32(0x0000ffff);
    const auto select = [](__m512i mask, __m512i a, __m512i b) {
        return _mm512_ternarylogic_epi32(mask, a, b, 0xca);
    };
    const __m512i low02 = select(lower, t0, _mm512_slli_epi32(t2, 16));
    const __m512i low13 = select(lower, t1, _mm512_slli_epi32(t3, 16));
    _mm512_store_si512(tables, select(even, low02, _mm512_slli_epi32(low13, 8)));
    _mm512_store_si512(tables + 64, select(even, _mm512_srli_epi32(low02, 8), low13));
    if constexpr (planes > 2) {
        const __m512i high02 = select(lower, _mm512_srli_epi32(t0, 16), t2);
        const __m512i high13 = select(lower, _mm512_srli_epi32(t1, 16), t3);
        _mm512_store_si512(tables + 128, select(even, high02, _mm512_slli_epi32(high13, 8)));
    }
}

// Loads 16 bytes of each of four neighbours' bits (8 if not whole).
template <bool whole>
static inline __m512i four_rows(const std::byte* const* rows, std::size_t offset) {
    const auto load = [&](std::size_t n) {
        const auto* from = reinterpret_cast<const __m128i*>(rows[n] + offset);
        return whole ? _mm_loadu_si128(from) : _mm_loadl_epi64(from);
    };
    __m512i four = _mm512_castsi128_si512(load(0));
    four = _mm512_inserti32x4(four, load(1), 1);
    four = _mm512_inserti32x4(four, load(2), 2);
    return _mm512_inserti32x4(four, load(3), 3);
}

// Writes the places of 64 columns, a dword per column, from a byte per column and group. Columns
// come in an order that natural_order turns back.
static inline void store_places(__m512i g0, __m512i g1, __m512i g2, __m512i g3, std::byte* places) {
    const __m512i low01 = _mm512_unpacklo_epi8(g0, g1), high01 = _mm512_unpackhi_epi8(g0, g1);
    const __m512i low23 = _mm512_unpacklo_epi8(g2, g3), high23 = _mm512_unpackhi_epi8(g2, g3);
    _mm512_store_si512(places, _mm512_unpacklo_epi16(low01, low23));
    _mm512_store_si512(places + 64, _mm512_unpackhi_epi16(low01, low23));
    _mm512_store_si512(places + 128, _mm512_unpacklo_epi16(high01, high23));
    _mm512_store_si512(places + 192, _mm512_unpackhi_epi16(high01, high23));
}

// Makes the places of two words (one, if not whole) of sixteen neighbours. A product in GF(2) of a
// matrix of 8 rows with the unit vectors is its transpose: neighbour m of a group becomes bit m + 2
// of each of 8 columns; the lowest two bits are the number of the group, a constant that is added.
template <bool whole>
static inline void make_places(const std::byte* const* rows, std::size_t offset,
                               std::byte* places) {
    constexpr __mmask64 used = 0x3c3c3c3c3c3c3c3c;
    // Byte r of quadword b comes from byte b of neighbour 5 - r (for the other half, byte b + 8).
    alignas(64) static constexpr std::uint8_t bytes[64] = {
        0, 0, 48, 32, 16, 0, 0, 0, 0, 0, 49, 33, 17, 1, 0, 0,  //
        0, 0, 50, 34, 18, 2, 0, 0, 0, 0, 51, 35, 19, 3, 0, 0,  //
        0, 0, 52, 36, 20, 4, 0, 0, 0, 0, 53, 37, 21, 5, 0, 0,  //
        0, 0, 54, 38, 22, 6, 0, 0, 0, 0, 55, 39, 23, 7, 0, 0};
    const __m512i order = _mm512_load_si512(bytes);
    const __m512i units = _mm512_set1_epi64(static_cast<long long>(0x8040201008040201));
    const __m512i r0 = four_rows<whole>(rows, offset), r1 = four_rows<whole>(rows + 4, offset);
    const __m512i r2 = four_rows<whole>(rows + 8, offset);
    const __m512i r3 = four_rows<whole>(rows + 12, offset);
    const auto store = [&](__m512i from, std::byte* to) {
        const auto rows_of = [&](__m512i four) {
            return _mm512_maskz_permutexvar_epi8(used, from, four);
        };
        store_places(_mm512_gf2p8affine_epi64_epi8(units, rows_of(r0), 0),
                     _mm512_gf2p8affine_epi64_epi8(units, rows_of(r1), 1),
                     _mm512_gf2p8affine_epi64_epi8(units, rows_of(r2), 2),
                     _mm512_gf2p8affine_epi64_epi8(units, rows_of(r3), 3), to);
    };
    store(order, places);
    if (whole) store(_mm512_add_epi8(order, _mm512_set1_epi8(8)), places + 256);
}

// Puts the quarters of vectors a, b, c, d side by side: from store_places' order to the columns'.
static inline void natural_order(__m512i& a, __m512i& b, __m512i& c, __m512i& d) {
    const __m512i ab_low = _mm512_shuffle_i32x4(a, b, 0x44);
    const __m512i ab_high = _mm512_shuffle_i32x4(a, b, 0xee);
    const __m512i cd_low = _mm512_shuffle_i32x4(c, d, 0x44);
    const __m512i cd_high = _mm512_shuffle_i32x4(c, d, 0xee);
    a = _mm512_shuffle_i32x4(ab_low, cd_low, 0x88);
    b = _mm512_shuffle_i32x4(ab_low, cd_low, 0xdd);
    c = _mm512_shuffle_i32x4(ab_high, cd_high, 0x88);
    d = _mm512_shuffle_i32x4(ab_high, cd_high, 0xdd);
}

// Looks up 64 columns: adds to u twice the sums of the weights whose bit is set, and `start` where
// it is given. If `first`, u starts from 0.
template <int planes>
static inline void look_up_sums(const std::byte* tables, const std::byte* places,
                                std::size_t num_units, std::size_t places_stride,
                                const __m512i* start, bool first, std::int32_t* u) {
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    __m512i a0 = zero, b0 = zero, c0 = zero, d0 = zero;
    __m512i a1 = zero, b1 = zero, c1 = zero, d1 = zero;
    __m512i a2 = zero, b2 = zero, c2 = zero, d2 = zero;
    for (std::size_t n = 0; n < num_units; ++n) {
        const __m512i a = _mm512_load_si512(places), b = _mm512_load_si512(places + 64);
        const __m512i c = _mm512_load_si512(places + 128), d = _mm512_load_si512(places + 192);
        const __m512i t0 = _mm512_load_si512(tables), t1 = _mm512_load_si512(tables + 64);
        a0 = dot_bytes(a0, _mm512_permutexvar_epi8(a, t0), ones);
        b0 = dot_bytes(b0, _mm512_permutexvar_epi8(b, t0), ones);
        c0 = dot_bytes(c0, _mm512_permutexvar_epi8(c, t0), ones);
        d0 = dot_bytes(d0, _mm512_permutexvar_epi8(d, t0), ones);
        a1 = dot_bytes(a1, _mm512_permutexvar_epi8(a, t1), ones);
        b1 = dot_bytes(b1, _mm512_permutexvar_epi8(b, t1), ones);
        c1 = dot_bytes(c1, _mm512_permutexvar_epi8(c, t1), ones);
        d1 = dot_bytes(d1, _mm512_permutexvar_epi8(d, t1), ones);
        if constexpr (planes > 2) {
            const __m512i t2 = _mm512_load_si512(tables + 128);
            a2 = dot_bytes(a2, _mm512_permutexvar_epi8(a, t2), ones);
            b2 = dot_bytes(b2, _mm512_permutexvar_epi8(b, t2), ones);
            c2 = dot_bytes(c2, _mm512_permutexvar_epi8(c, t2), ones);
            d2 = dot_bytes(d2, _mm512_permutexvar_epi8(d, t2), ones);
        }
        tables += planes * 64;
        places += places_stride;
    }
    const auto twice = [](__m512i s0, __m512i s1, __m512i s2) {
        const __m512i high = _mm512_add_epi32(_mm512_slli_epi32(s2, 8), s1);
        return _mm512_add_epi32(_mm512_slli_epi32(high, 9), _mm512_slli_epi32(s0, 1));
    };
    __m512i a = twice(a0, a1, a2), b = twice(b0, b1, b2);
    __m512i c = twice(c0, c1, c2), d = twice(d0, d1, d2);
    natural_order(a, b, c, d);
    const auto store = [&](__m512i sum, std::int32_t* to) {
        if (start) sum = _mm512_add_epi32(sum, *start);
        if (!first) sum = _mm512_add_epi32(sum, _mm512_loadu_si512(to));
        _mm512_storeu_si512(to, sum);
    };
    store(a, u), store(b, u + 16), store(c, u + 32), store(d, u + 48);
}

// Adds many neighbours. Up to the next whole unit, pointers must be readable and weights 0.
template <int planes>
static inline void add_many(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                            std::size_t num_words, __m512i minus_total, bool first,
                            std::int32_t* u) {
    alignas(64) std::byte tables[block_units * planes * 64];
    alignas(64) std::byte places[block_units * slab_words * 256];
    const std::size_t num_units = (count + unit - 1) / unit;
    for (std::size_t n = 0; n < num_units; n += block_units) {
        const std::size_t some = num_units - n < block_units ? num_units - n : block_units;
        for (std::size_t m = 0; m < some; ++m) {
            make_subset_sums<planes>(q + (n + m) * unit, tables + m * planes * 64);
        }
        for (std::size_t w = 0; w < num_words; w += slab_words) {
            const std::size_t words = num_words - w < slab_words ? num_words - w : slab_words;
            const std::byte* const* from = rows + n * unit;
            for (std::size_t e = 0; e < some * unit; ++e) prefetch(from, e, 8 * w);
            const auto make = [&](auto whole, std::size_t v) {
                for (std::size_t m = 0; m < some; ++m) {
                    make_places<decltype(whole)::value == 1>(from + m * unit, 8 * (w + v),
                                                             places + (m * slab_words + v) * 256);
                }
            };
            for (std::size_t v = 0; v + 2 <= words; v += 2) make(Number<1>{}, v);
            if (words % 2) make(Number<0>{}, words - 1);
            for (std::size_t v = 0; v < words; ++v) {
                look_up_sums<planes>(tables, places + 256 * v, some, slab_words * 256,
                                     n == 0 ? &minus_total : nullptr, first && n == 0,
                                     u + 64 * (w + v));
            }
        }
    }
}

template <class Base>
struct BitPieces : Base {
    using typename Base::Isa;

    static void add_bits(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                         std::uint32_t total, bool first, std::size_t num_inputs, std::int32_t* u) {
        const std::size_t num_words = words_per_row(num_inputs);
        if (count >= many) {
            const __m512i minus_total = _mm512_set1_epi32(-static_cast<int>(total));
            total < 1 << 16 ? add_many<2>(rows, q, count, num_words, minus_total, first, u)
                            : add_many<3>(rows, q, count, num_words, minus_total, first, u);
        } else {
            total <= ShortLanes::largest_total
                ? add_words<ShortLanes>(rows, q, count, num_words, total, first, u)
                : add_words<IntLanes>(rows, q, count, num_words, total, first, u);
        }
        // The product reads whole groups of five inputs: those past the last must be 0.
        for (std::size_t k = num_inputs; k < Isa::u_stride(num_inputs); ++k) u[k] = 0;
    }
};

}  // namespace bignn::avx512
