// Way T's gather in AVX-512: sums of records.
//
// Weights are split into digits (three of 8 bits against byte records, or one if they have no more
// bits; two of 10 against 16-bit records), whose sums are kept apart and put together at the end of
// the row:
//     sum_e q_e v_e = s0 + 2^b s1 + 2^2b s2.
// |s| <= chunk * 4 * 255 * 128 < 2^31 for bytes; 16-bit records are flushed every 64 neighbours,
// 64 * 1023 * 32768 < 2^31.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

static_assert(most_edge_bits <= 20);

constexpr std::size_t flush16 = 64;

// s0 + 2^bits s1 + 2^(2 bits) s2 in 64 bits.
template <int bits>
static inline __m512i combine_digits(__m256i s0, __m256i s1, __m256i s2) {
    const __m512i high = _mm512_add_epi64(_mm512_slli_epi64(_mm512_cvtepi32_epi64(s2), bits),
                                          _mm512_cvtepi32_epi64(s1));
    return _mm512_add_epi64(_mm512_slli_epi64(high, bits), _mm512_cvtepi32_epi64(s0));
}

// Writes eight sums as floats: center * total + 2 * sum.
static inline void store_wide(const std::int32_t* center, std::int64_t total, __m512i sum,
                              float* sums) {
    const __m512i centers =
        _mm512_cvtepi32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(center)));
    const __m512i centered = _mm512_mullo_epi64(centers, _mm512_set1_epi64(total));
    _mm256_storeu_ps(sums,
                     _mm512_cvtepi64_ps(_mm512_add_epi64(centered, _mm512_slli_epi64(sum, 1))));
}

static inline void prefetch4(const std::byte* const* rows, std::size_t e, std::size_t at) {
    prefetch(rows, e, at), prefetch(rows, e + 1, at);
    prefetch(rows, e + 2, at), prefetch(rows, e + 3, at);
}

// A digit of four weights, for every column.
static inline __m512i digit(const std::uint32_t* digits) {
    return _mm512_set1_epi32(static_cast<int>(*digits));
}

// Gathers byte records. Four neighbours' bytes of a column are put next to each other, a dword that
// vpdpbusd multiplies by the four weights' digits. digits[4 g + d] holds digit d of the weights of
// neighbours 4 g ... 4 g + 3; where there is but one, digits[g] does.
template <bool far, bool is_one, class Sums>
static inline void gather8(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                           std::size_t offset, std::size_t stride, const Sums& sums) {
    alignas(64) std::uint32_t digits[chunk];
    const __m512i by_digit =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    for (std::size_t e = 0; e < count; e += 16) {
        const __m512i weights = _mm512_loadu_si512(q + e);
        if constexpr (is_one) {
            _mm_store_si128(reinterpret_cast<__m128i*>(digits + e / 4),
                            _mm512_cvtepi32_epi8(weights));
        } else {
            _mm512_store_si512(digits + e, _mm512_shuffle_epi8(weights, by_digit));
        }
    }
    const __m512i zero = _mm512_setzero_si512();
    if (stride == 16) {
        const __m512i transpose = _mm512_add_epi8(
            _mm512_broadcast_i32x4(
                _mm_setr_epi8(0, 16, 32, 48, 1, 17, 33, 49, 2, 18, 34, 50, 3, 19, 35, 51)),
            _mm512_set_epi32(0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c, 0x08080808, 0x08080808,
                             0x08080808, 0x08080808, 0x04040404, 0x04040404, 0x04040404, 0x04040404,
                             0, 0, 0, 0));
        __m512i s0 = zero, s1 = zero, s2 = zero;
        for (std::size_t e = 0; e < count; e += 4) {
            const auto load = [&](std::size_t n) {
                return reinterpret_cast<const __m128i*>(rows[e + n] + offset);
            };
            if (far) prefetch4(rows, e, offset);
            __m512i four = _mm512_castsi128_si512(_mm_loadu_si128(load(0)));
            four = _mm512_inserti32x4(four, _mm_loadu_si128(load(1)), 1);
            four = _mm512_inserti32x4(four, _mm_loadu_si128(load(2)), 2);
            four = _mm512_inserti32x4(four, _mm_loadu_si128(load(3)), 3);
            const __m512i x = _mm512_permutexvar_epi8(transpose, four);
            s0 = dot_bytes(s0, digit(digits + (is_one ? e / 4 : e)), x);
            if constexpr (is_one) continue;
            s1 = dot_bytes(s1, digit(digits + e + 1), x);
            s2 = dot_bytes(s2, digit(digits + e + 2), x);
        }
        sums.template take<8>(0, s0, s1, s2);
        return;
    }
    for (std::size_t at = 0; at < stride; at += 64) {
        const std::size_t line = offset + at;
        __m512i a0 = zero, a1 = zero, a2 = zero, b0 = zero, b1 = zero, b2 = zero;
        __m512i c0 = zero, c1 = zero, c2 = zero, d0 = zero, d1 = zero, d2 = zero;
        for (std::size_t e = 0; e < count; e += 4) {
            if (far) prefetch4(rows, e, line);
            const __m512i r0 = _mm512_loadu_si512(rows[e] + line);
            const __m512i r1 = _mm512_loadu_si512(rows[e + 1] + line);
            const __m512i r2 = _mm512_loadu_si512(rows[e + 2] + line);
            const __m512i r3 = _mm512_loadu_si512(rows[e + 3] + line);
            const __m512i low01 = _mm512_unpacklo_epi8(r0, r1);
            const __m512i high01 = _mm512_unpackhi_epi8(r0, r1);
            const __m512i low23 = _mm512_unpacklo_epi8(r2, r3);
            const __m512i high23 = _mm512_unpackhi_epi8(r2, r3);
            const __m512i a = _mm512_unpacklo_epi16(low01, low23);
            const __m512i b = _mm512_unpackhi_epi16(low01, low23);
            const __m512i c = _mm512_unpacklo_epi16(high01, high23);
            const __m512i d = _mm512_unpackhi_epi16(high01, high23);
            const __m512i q0 = digit(digits + (is_one ? e / 4 : e));
            a0 = dot_bytes(a0, q0, a);
            b0 = dot_bytes(b0, q0, b);
            c0 = dot_bytes(c0, q0, c);
            d0 = dot_bytes(d0, q0, d);
            if constexpr (is_one) continue;
            const __m512i q1 = digit(digits + e + 1);
            const __m512i q2 = digit(digits + e + 2);
            a1 = dot_bytes(a1, q1, a);
            b1 = dot_bytes(b1, q1, b);
            c1 = dot_bytes(c1, q1, c);
            d1 = dot_bytes(d1, q1, d);
            a2 = dot_bytes(a2, q2, a);
            b2 = dot_bytes(b2, q2, b);
            c2 = dot_bytes(c2, q2, c);
            d2 = dot_bytes(d2, q2, d);
        }
        sums.template take<8>(at, a0, a1, a2);
        sums.template take<8>(at + 16, b0, b1, b2);
        sums.template take<8>(at + 32, c0, c1, c2);
        sums.template take<8>(at + 48, d0, d1, d2);
    }
}

template <class Sums>
static inline void gather8(const Records& records, const std::byte* const* rows,
                           const std::uint32_t* q, std::size_t count, const Sums& sums) {
    const bool is_one = records.edge_bits <= 8;
    if (records.far) {
        is_one ? gather8<true, true>(rows, q, count, records.offset, records.stride, sums)
               : gather8<true, false>(rows, q, count, records.offset, records.stride, sums);
    } else {
        is_one ? gather8<false, true>(rows, q, count, records.offset, records.stride, sums)
               : gather8<false, false>(rows, q, count, records.offset, records.stride, sums);
    }
}

// Gathers 16-bit records: two neighbours' values of a column form a dword for vpdpwssd.
template <class Sums>
static inline void gather16(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                            std::size_t offset, std::size_t stride, const Sums& sums) {
    alignas(64) std::uint16_t low[flush16], high[flush16];
    for (std::size_t e = 0; e < count; e += 16) {
        const __m512i weights = _mm512_loadu_si512(q + e);
        _mm256_store_si256(
            reinterpret_cast<__m256i*>(low + e),
            _mm512_cvtepi32_epi16(_mm512_and_si512(weights, _mm512_set1_epi32(1023))));
        _mm256_store_si256(reinterpret_cast<__m256i*>(high + e),
                           _mm512_cvtepi32_epi16(_mm512_srli_epi32(weights, 10)));
    }
    const auto pair = [](const std::uint16_t* digits) {
        std::uint32_t both;
        __builtin_memcpy(&both, digits, sizeof both);
        return both;
    };
    const __m512i zero = _mm512_setzero_si512();
    for (std::size_t at = 0; at < stride; at += 64) {
        const std::size_t line = offset + at;
        __m512i a0 = zero, a1 = zero, b0 = zero, b1 = zero;
        for (std::size_t e = 0; e < count; e += 2) {
            prefetch(rows, e, line), prefetch(rows, e + 1, line);
            const __m512i r0 = _mm512_loadu_si512(rows[e] + line);
            const __m512i r1 = _mm512_loadu_si512(rows[e + 1] + line);
            const __m512i a = _mm512_unpacklo_epi16(r0, r1);
            const __m512i b = _mm512_unpackhi_epi16(r0, r1);
            const __m512i q0 = _mm512_set1_epi32(static_cast<int>(pair(low + e)));
            const __m512i q1 = _mm512_set1_epi32(static_cast<int>(pair(high + e)));
            a0 = dot_shorts(a0, q0, a);
            b0 = dot_shorts(b0, q0, b);
            a1 = dot_shorts(a1, q1, a);
            b1 = dot_shorts(b1, q1, b);
        }
        sums.template take<10>(at / 2, a0, a1, zero);
        sums.template take<10>(at / 2 + 16, b0, b1, zero);
    }
}

template <class Base>
struct RecordPieces : Base {
    static void add_records(const Records& records, const std::byte* const* rows,
                            const std::uint32_t* q, std::size_t count, std::int64_t* acc) {
        const MoreSums more{acc};
        if (records.bytes_per_column == 1) {
            gather8(records, rows, q, count, more);
        } else if (records.bytes_per_column == 2) {
            for (std::size_t e = 0; e < count; e += flush16) {
                gather16(rows + e, q + e, count - e < flush16 ? count - e : flush16, records.offset,
                         records.stride, more);
            }
        } else {
            Base::add_records(records, rows, q, count, acc);
        }
    }

    static void finish_records(const Records& records, std::size_t num_outputs, std::uint32_t total,
                               const std::int64_t* acc, float* sums) {
        for (std::size_t c = 0; c < num_outputs; c += 8) {
            store_wide(records.center + c, total, _mm512_loadu_si512(acc + c), sums + c);
        }
    }

    static void sum_records(const Records& records, std::size_t num_outputs,
                            const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                            std::uint32_t total, std::int64_t* acc, float* sums) {
        if (records.bytes_per_column == 1) {
            const auto bound = (static_cast<std::uint64_t>(records.max_center) + 256) * total;
            if (bound < std::uint64_t{1} << 31) {
                gather8(records, rows, q, count,
                        NarrowSums{records.center, sums, static_cast<std::int32_t>(total)});
            } else {
                gather8(records, rows, q, count, WideSums{records.center, sums, total});
            }
        } else if (records.bytes_per_column == 2 && count <= flush16) {
            gather16(rows, q, count, records.offset, records.stride,
                     WideSums{records.center, sums, total});
        } else {
            Base::sum_records(records, num_outputs, rows, q, count, total, acc, sums);
        }
    }

    // The usual case, records of bytes that are near and weights of one digit, in one function: few
    // neighbours take less time than calls and choices do.
    [[gnu::flatten]] static void sum_few_records(const Records& records, std::size_t num_outputs,
                                                 const std::byte* const* rows,
                                                 const std::int64_t* offsets,
                                                 const std::uint32_t* q,
                                                 const std::uint32_t* totals, std::int64_t* acc,
                                                 float* sums, std::size_t sums_stride) {
        if (records.far || records.bytes_per_column != 1 || records.edge_bits > 8 ||
            records.max_center > most_few_center) {
            Base::sum_few_records(records, num_outputs, rows, offsets, q, totals, acc, sums,
                                  sums_stride);
            return;
        }
        for (std::size_t r = 0; r < tile_rows; ++r) {
            const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
            gather8<false, true>(
                rows, q + r * few, count, records.offset, records.stride,
                NarrowSums{records.center, sums, static_cast<std::int32_t>(totals[r])});
            rows += count;
            sums += sums_stride;
        }
    }

   private:
    // Few weights of a byte, times this and 256, fit 32 bits.
    static constexpr std::int32_t most_few_center = 1 << 18;
    static_assert(few * 255 * ((std::size_t{1} << 18) + 256) < std::size_t{1} << 31);

    // NarrowSums, WideSums and MoreSums take the sums of 16 columns from c on. NarrowSums writes
    // floats, where everything fits 32 bits.
    struct NarrowSums {
        const std::int32_t* center;
        float* sums;
        std::int32_t total;

        template <int bits>
        void take(std::size_t c, __m512i s0, __m512i s1, __m512i s2) const {
            const __m512i high = _mm512_add_epi32(_mm512_slli_epi32(s2, bits), s1);
            const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, bits), s0);
            const __m512i centered =
                _mm512_mullo_epi32(_mm512_loadu_si512(center + c), _mm512_set1_epi32(total));
            const __m512i twice = _mm512_add_epi32(centered, _mm512_slli_epi32(sum, 1));
            _mm512_storeu_ps(sums + c, _mm512_cvtepi32_ps(twice));
        }
    };

    // Writes floats in general.
    struct WideSums {
        const std::int32_t* center;
        float* sums;
        std::int64_t total;

        template <int bits>
        void take(std::size_t c, __m512i s0, __m512i s1, __m512i s2) const {
            store_wide(center + c, total,
                       combine_digits<bits>(_mm512_castsi512_si256(s0), _mm512_castsi512_si256(s1),
                                            _mm512_castsi512_si256(s2)),
                       sums + c);
            store_wide(center + c + 8, total,
                       combine_digits<bits>(_mm512_extracti64x4_epi64(s0, 1),
                                            _mm512_extracti64x4_epi64(s1, 1),
                                            _mm512_extracti64x4_epi64(s2, 1)),
                       sums + c + 8);
        }
    };

    // Adds to what earlier chunks of a long row summed up.
    struct MoreSums {
        std::int64_t* acc;

        template <int bits>
        void take(std::size_t c, __m512i s0, __m512i s1, __m512i s2) const {
            const __m512i low = combine_digits<bits>(
                _mm512_castsi512_si256(s0), _mm512_castsi512_si256(s1), _mm512_castsi512_si256(s2));
            const __m512i high = combine_digits<bits>(_mm512_extracti64x4_epi64(s0, 1),
                                                      _mm512_extracti64x4_epi64(s1, 1),
                                                      _mm512_extracti64x4_epi64(s2, 1));
            _mm512_storeu_si512(acc + c, _mm512_add_epi64(_mm512_loadu_si512(acc + c), low));
            _mm512_storeu_si512(acc + c + 8,
                                _mm512_add_epi64(_mm512_loadu_si512(acc + c + 8), high));
        }
    };
};

}  // namespace bignn::avx512
