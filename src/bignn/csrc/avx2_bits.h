// Way G's first half in AVX2: sums of bits.
//
// Four neighbours are added at a time, by lookup. Four weights have 16 sums of subsets, and the
// four bits of a column are the place of the sum that it adds. Transposing the bits of four
// neighbours to such places takes 24 instructions per 256 columns, since it needs no more than two
// exchanges of bits within bytes; vpshufb looks up 32 columns.
//
// u therefore has an order of its own, which the product shares: position_of_input.
#pragma once

#include "avx2_vectors.h"

namespace bignn::avx2 {

// Rows of u are made of blocks of 256 inputs, of which the last may have 128.
static constexpr std::size_t padded_inputs(std::size_t num_inputs) {
    return (num_inputs + 127) / 128 * 128;
}

// An eighth of the block that an input or a position belongs to.
static constexpr std::size_t eighth_of_block(std::size_t input, std::size_t num_inputs) {
    return padded_inputs(num_inputs) - input / 256 * 256 < 256 ? 16 : 32;
}

// Input 8 j + s of a block comes j-th in its eighth s.
static constexpr std::size_t position_of_input(std::size_t input, std::size_t num_inputs) {
    const std::size_t eighth = eighth_of_block(input, num_inputs);
    return input / 256 * 256 + input % 8 * eighth + input % 256 / 8;
}

static constexpr std::size_t input_at_position(std::size_t position, std::size_t num_inputs) {
    const std::size_t eighth = eighth_of_block(position, num_inputs), at = position % 256;
    return position / 256 * 256 + at % eighth * 8 + at / eighth;
}

// A weight's digits have 10 bits, so that the sums of 64 neighbours' digits fit 16 bits.
constexpr int weight_digit_bits = 10;
constexpr std::size_t neighbours_at_once = 64;
constexpr std::size_t groups_at_once = neighbours_at_once / 4;
static_assert(most_edge_bits <= 2 * weight_digit_bits);
static_assert((neighbours_at_once << weight_digit_bits) - neighbours_at_once < 1 << 16);

// Where the two bytes of digit m come from, in entry n: from dword m if bit m of n is set, else 0.
struct SubsetBytes {
    std::int8_t of_digit[4][32];
};

static constexpr SubsetBytes subset_bytes() {
    SubsetBytes bytes{};
    for (int m = 0; m < 4; ++m) {
        for (int n = 0; n < 32; ++n) {
            const bool is_in = (n / 2 >> m & 1) != 0;
            bytes.of_digit[m][n] = static_cast<std::int8_t>(is_in ? 4 * m + n % 2 : -1);
        }
    }
    return bytes;
}

// The sums of the 16 subsets of four digits, which both halves hold as dwords: the low bytes of
// all sums, then the high ones.
static inline __m256i subset_sums(__m256i digits) {
    alignas(32) static constexpr SubsetBytes bytes = subset_bytes();
    const auto part = [&](int m) { return _mm256_shuffle_epi8(digits, load(bytes.of_digit[m])); };
    const __m256i sums =
        _mm256_add_epi16(_mm256_add_epi16(part(0), part(1)), _mm256_add_epi16(part(2), part(3)));
    return _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(sums, _mm256_set1_epi16(255)),
                            _mm256_srli_epi16(sums, 8)),
        0xd8);
}

// Exchanges the bits of a at `mask << distance` with those of b at `mask`.
template <int distance>
static inline void exchange(__m256i& a, __m256i& b, __m256i mask) {
    const __m256i differing =
        _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(a, distance), b), mask);
    b = _mm256_xor_si256(b, differing);
    a = _mm256_xor_si256(a, _mm256_slli_epi16(differing, distance));
}

// Writes the places of four neighbours' columns. Byte j of register s has those of columns 8 j + s
// (the low nibble) and 8 j + s + 4 (the high one).
static inline void store_places(__m256i a, __m256i b, __m256i c, __m256i d, std::byte* places) {
    const __m256i ones = _mm256_set1_epi8(0x55), twos = _mm256_set1_epi8(0x33);
    exchange<1>(a, b, ones), exchange<1>(c, d, ones);
    exchange<2>(a, c, twos), exchange<2>(b, d, twos);
    store(places, a), store(places + 32, b), store(places + 64, c), store(places + 96, d);
}

template <class Base>
struct BitPieces : Base {
    using typename Base::Isa;

    static constexpr std::size_t u_stride(std::size_t num_inputs) {
        return padded_inputs(num_inputs);
    }

    static void add_bits(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                         std::uint32_t total, bool first, std::size_t num_inputs, std::int32_t* u) {
        const std::size_t num_words = words_per_row(num_inputs);
        std::size_t n = 0;
        do {  // at least once: a row without neighbours is 0
            const std::size_t left = count - n;
            const std::size_t some = left < neighbours_at_once ? left : neighbours_at_once;
            const __m256i start = _mm256_set1_epi32(n == 0 ? -static_cast<int>(total) : 0);
            std::uint32_t bits = 0;
            for (std::size_t e = 0; e < some; ++e) bits |= q[n + e];
            if (bits >> weight_digit_bits) {
                add_some<2>(rows + n, q + n, some, num_words, start, first && n == 0, u);
            } else {
                add_some<1>(rows + n, q + n, some, num_words, start, first && n == 0, u);
            }
            n += neighbours_at_once;
        } while (n < count);
        // Past the last input, the product reads zeros.
        for (std::size_t k = num_inputs; k < padded_inputs(num_inputs); ++k) {
            u[position_of_input(k, num_inputs)] = 0;
        }
    }

   private:
    // Where the sums of a digit go, as 16 bits: of 32 columns j, unpacking leaves 0-7 and 16-23 in
    // `even`, the others in `odd`.
    struct Sums {
        __m256i even = _mm256_setzero_si256(), odd = even;

        void add(__m256i places, __m256i low, __m256i high) {
            const __m256i lows = _mm256_shuffle_epi8(low, places);
            const __m256i highs = _mm256_shuffle_epi8(high, places);
            add_shorts(even, _mm256_unpacklo_epi8(lows, highs));
            add_shorts(odd, _mm256_unpackhi_epi8(lows, highs));
        }
    };

    // Adds up to neighbours_at_once neighbours. Up to the next multiple of 8, pointers must be
    // readable and weights 0.
    template <int digits>
    static void add_some(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                         std::size_t num_words, __m256i start, bool first, std::int32_t* u) {
        alignas(32) std::byte tables[groups_at_once * digits * 32];
        const std::size_t num_groups = (count + 7) / 8 * 2;
        for (std::size_t g = 0; g < num_groups; ++g) {
            const __m256i weights = broadcast_half(q + 4 * g);
            if constexpr (digits == 1) {
                store(tables + g * 32, subset_sums(weights));
            } else {
                const __m256i low = _mm256_set1_epi32((1 << weight_digit_bits) - 1);
                store(tables + g * 64, subset_sums(_mm256_and_si256(weights, low)));
                store(tables + g * 64 + 32,
                      subset_sums(_mm256_srli_epi32(weights, weight_digit_bits)));
            }
        }
        const std::size_t used_groups = (count + 3) / 4;
        std::size_t w = 0;
        for (; w + 4 <= num_words; w += 4) {
            add_wide<digits, 4>(rows, used_groups, tables, 8 * w, start, first, u + 64 * w);
        }
        if (num_words - w == 3) {
            add_wide<digits, 3>(rows, used_groups, tables, 8 * w, start, first, u + 64 * w);
        } else if (num_words - w == 2) {
            add_narrow<digits, 2>(rows, num_groups, tables, 8 * w, start, first, u + 64 * w);
        } else if (num_words - w == 1) {
            add_narrow<digits, 1>(rows, num_groups, tables, 8 * w, start, first, u + 64 * w);
        }
    }

    // A block of 256 columns: 32 bytes of every neighbour (24 if it has three words left).
    template <int digits, int words>
    static void add_wide(const std::byte* const* rows, std::size_t num_groups,
                         const std::byte* tables, std::size_t offset, __m256i start, bool first,
                         std::int32_t* u) {
        alignas(32) std::byte places[groups_at_once * 128];
        for (std::size_t g = 0; g < num_groups; ++g) {
            const auto row = [&](std::size_t n) {
                const std::byte* from = rows[4 * g + n] + offset;
                _mm_prefetch(reinterpret_cast<const char*>(rows[4 * g + n + ahead] + offset),
                             _MM_HINT_T0);
                if constexpr (words == 4) return load(from);
                return _mm256_maskload_epi64(reinterpret_cast<const long long*>(from),
                                             _mm256_setr_epi64x(-1, -1, -1, 0));
            };
            store_places(row(0), row(1), row(2), row(3), places + g * 128);
        }
        const __m256i nibble = _mm256_set1_epi8(15);
        for (std::size_t s = 0; s < 4; ++s) {
            Sums low0, high0, low1, high1;  // of both nibbles; of a second digit
            for (std::size_t g = 0; g < num_groups; ++g) {
                const __m256i both = load(places + g * 128 + s * 32);
                const __m256i low = _mm256_and_si256(both, nibble);
                const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
                const std::byte* table = tables + g * digits * 32;
                const __m256i lows = broadcast_half(table), highs = broadcast_half(table + 16);
                low0.add(low, lows, highs), high0.add(high, lows, highs);
                if constexpr (digits == 2) {
                    const __m256i more_lows = broadcast_half(table + 32);
                    const __m256i more_highs = broadcast_half(table + 48);
                    low1.add(low, more_lows, more_highs), high1.add(high, more_lows, more_highs);
                }
            }
            const auto take = [&](const Sums& sums, const Sums& more, std::int32_t* to) {
                take_sums<digits>(low_half(sums.even), low_half(more.even), start, first, to);
                take_sums<digits>(low_half(sums.odd), low_half(more.odd), start, first, to + 8);
                take_sums<digits>(high_half(sums.even), high_half(more.even), start, first,
                                  to + 16);
                take_sums<digits>(high_half(sums.odd), high_half(more.odd), start, first, to + 24);
            };
            take(low0, low1, u + s * 32);
            take(high0, high1, u + (s + 4) * 32);
        }
    }

    // A block of 128 columns: 16 bytes of every neighbour (8 if it has one word left). The halves
    // of a register hold eight neighbours, four each.
    template <int digits, int words>
    static void add_narrow(const std::byte* const* rows, std::size_t num_groups,
                           const std::byte* tables, std::size_t offset, __m256i start, bool first,
                           std::int32_t* u) {
        alignas(32) std::byte places[groups_at_once / 2 * 128];
        for (std::size_t g = 0; g < num_groups; g += 2) {
            const auto half_row = [&](std::size_t n) {
                const auto* from = reinterpret_cast<const __m128i*>(rows[4 * g + n] + offset);
                _mm_prefetch(reinterpret_cast<const char*>(rows[4 * g + n + ahead] + offset),
                             _MM_HINT_T0);
                return words == 2 ? _mm_loadu_si128(from) : _mm_loadl_epi64(from);
            };
            const auto row = [&](std::size_t n) {
                return _mm256_inserti128_si256(_mm256_castsi128_si256(half_row(n)), half_row(n + 4),
                                               1);
            };
            store_places(row(0), row(1), row(2), row(3), places + g * 64);
        }
        const __m256i nibble = _mm256_set1_epi8(15);
        for (std::size_t s = 0; s < 4; ++s) {
            Sums low0, high0, low1, high1;
            for (std::size_t g = 0; g < num_groups; g += 2) {
                const __m256i both = load(places + g * 64 + s * 32);
                const __m256i low = _mm256_and_si256(both, nibble);
                const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble);
                for (int d = 0; d < digits; ++d) {
                    const std::byte* table =
                        tables + (g * digits + static_cast<std::size_t>(d)) * 32;
                    const __m256i here = load(table), there = load(table + digits * 32);
                    const __m256i lows = _mm256_permute2x128_si256(here, there, 0x20);
                    const __m256i highs = _mm256_permute2x128_si256(here, there, 0x31);
                    (d ? low1 : low0).add(low, lows, highs);
                    (d ? high1 : high0).add(high, lows, highs);
                }
            }
            const auto both = [](__m256i sums) {
                return _mm_add_epi16(low_half(sums), high_half(sums));
            };
            const auto take = [&](const Sums& sums, const Sums& more, std::int32_t* to) {
                take_sums<digits>(both(sums.even), both(more.even), start, first, to);
                take_sums<digits>(both(sums.odd), both(more.odd), start, first, to + 8);
            };
            take(low0, low1, u + s * 16);
            take(high0, high1, u + (s + 4) * 16);
        }
    }

    static __m128i low_half(__m256i v) { return _mm256_castsi256_si128(v); }
    static __m128i high_half(__m256i v) { return _mm256_extracti128_si256(v, 1); }

    // Adds twice the sums of eight columns, and `start`, to u; if `first`, u starts from 0.
    template <int digits>
    static void take_sums(__m128i sums, __m128i more, __m256i start, bool first, std::int32_t* u) {
        __m256i sum = _mm256_cvtepu16_epi32(sums);
        if constexpr (digits == 2) {
            sum = _mm256_add_epi32(
                sum, _mm256_slli_epi32(_mm256_cvtepu16_epi32(more), weight_digit_bits));
        }
        sum = _mm256_add_epi32(_mm256_add_epi32(sum, sum), start);
        store(u, first ? sum : _mm256_add_epi32(sum, load(u)));
    }
};

}  // namespace bignn::avx2
