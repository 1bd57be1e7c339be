// Way T's gather in AVX2: sums of records.
#pragma once

#include "avx2_vectors.h"

namespace bignn::avx2 {

// Four neighbours' bytes of a column stand next to each other in a dword, which is multiplied by
// the four weights' digits and added up. A digit has 7 bits: vpmaddubsw adds two products of a
// digit and a signed byte in 16 bits, and 2 * 127 * 128 < 2^15. Weights of 7 bits have one digit,
// others three, whose sums are kept apart and put together at the end of the row:
//     sum_e q_e v_e = s0 + 2^7 s1 + 2^14 s2.
// |s| <= chunk * 127 * 128 < 2^31. (With vpdpbusd a digit has 8 bits: avx2_vnni.h.)
//
// Of 16-bit records, two neighbours' values of a column form a dword for vpmaddwd. Weights of 10
// bits have one digit, others two, and sums are taken every 64 neighbours: 64 * 1023 * 2^15 < 2^31.
constexpr int short_digit_bits = 10;
constexpr std::size_t flush16 = 64;
static_assert(most_edge_bits <= 2 * short_digit_bits);

template <class Base>
struct RecordPieces : Base {
    using typename Base::Isa;

    static constexpr int digit_bits = 7;
    static_assert(most_edge_bits <= 3 * digit_bits);

    // sum + four digits times four signed bytes, per 32 bits.
    static __m256i dot_bytes(__m256i sum, __m256i digits, __m256i bytes) {
        const __m256i pairs = _mm256_maddubs_epi16(digits, bytes);
        add_ints(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
        return sum;
    }

    // NarrowSums and WideSums take the sums of 8 columns from c on, of one digit or of several.
    // NarrowSums writes floats, where everything fits 32 bits.
    struct NarrowSums {
        const std::int32_t* center;
        float* sums;
        std::int32_t total;

        void take(std::size_t c, __m256i sum) const {
            const __m256i centered = _mm256_mullo_epi32(load(center + c), _mm256_set1_epi32(total));
            const __m256i twice = _mm256_add_epi32(centered, _mm256_slli_epi32(sum, 1));
            _mm256_storeu_ps(sums + c, _mm256_cvtepi32_ps(twice));
        }
        template <int bits>
        void take(std::size_t c, __m256i s0, __m256i s1) const {
            take(c, _mm256_add_epi32(_mm256_slli_epi32(s1, bits), s0));
        }
        template <int bits>
        void take(std::size_t c, __m256i s0, __m256i s1, __m256i s2) const {
            take<bits>(c, s0, _mm256_add_epi32(_mm256_slli_epi32(s2, bits), s1));
        }
    };

    // Takes sums in 64 bits, and adds them to what earlier chunks of a long row summed up, or
    // writes floats.
    struct WideSums {
        std::int64_t* acc;  // null: floats are written
        const std::int32_t* center;
        float* sums;
        std::int32_t total;

        void take(std::size_t c, __m256i sum) const { put(c, low(sum), high(sum)); }
        template <int bits>
        void take(std::size_t c, __m256i s0, __m256i s1) const {
            put(c, joined<bits>(low(s0), low(s1)), joined<bits>(high(s0), high(s1)));
        }
        template <int bits>
        void take(std::size_t c, __m256i s0, __m256i s1, __m256i s2) const {
            put(c, joined<bits>(low(s0), joined<bits>(low(s1), low(s2))),
                joined<bits>(high(s0), joined<bits>(high(s1), high(s2))));
        }

       private:
        static __m256i low(__m256i s) { return _mm256_cvtepi32_epi64(_mm256_castsi256_si128(s)); }
        static __m256i high(__m256i s) {
            return _mm256_cvtepi32_epi64(_mm256_extracti128_si256(s, 1));
        }
        template <int bits>
        static __m256i joined(__m256i s0, __m256i s1) {
            return _mm256_add_epi64(_mm256_slli_epi64(s1, bits), s0);
        }
        void put(std::size_t c, __m256i first, __m256i last) const {
            if (acc) {
                store(acc + c, _mm256_add_epi64(load(acc + c), first));
                store(acc + c + 4, _mm256_add_epi64(load(acc + c + 4), last));
            } else {
                store_wide(center + c, total, first, sums + c);
                store_wide(center + c + 4, total, last, sums + c + 4);
            }
        }
    };

    // Writes four sums as floats: center * total + 2 * sum, of less than 51 bits. Added to the bits
    // of 1.5 * 2^52, it is the fraction of a double: exact, so that it is rounded once.
    static void store_wide(const std::int32_t* center, std::int32_t total, __m256i sum,
                           float* sums) {
        const __m256i centers =
            _mm256_cvtepi32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(center)));
        const __m256i centered = _mm256_mul_epi32(centers, _mm256_set1_epi64x(total));
        const __m256i whole = _mm256_add_epi64(centered, _mm256_slli_epi64(sum, 1));
        const __m256d offset = _mm256_set1_pd(0x1.8p52);
        const __m256i bits = _mm256_add_epi64(whole, _mm256_castpd_si256(offset));
        _mm_storeu_ps(sums, _mm256_cvtpd_ps(_mm256_sub_pd(_mm256_castsi256_pd(bits), offset)));
    }

    // The largest |sum| of a row.
    static std::uint64_t largest_sum(const Records& records, std::uint32_t total) {
        return (static_cast<std::uint64_t>(records.max_center) +
                (std::uint64_t{1} << (8 * records.bytes_per_column))) *
               total;
    }

    static void prefetch4(const std::byte* const* rows, std::size_t e, std::size_t at) {
        for (std::size_t n = 0; n < 4; ++n) {
            _mm_prefetch(reinterpret_cast<const char*>(rows[e + ahead + n] + at), _MM_HINT_T0);
        }
    }

    // digits[d][g]: digit d of the weights of neighbours 4 g ... 4 g + 3, a byte each.
    template <int planes>
    static void make_digits(const std::uint32_t* q, std::size_t count,
                            std::uint32_t (*digits)[chunk / 4 + 4]) {
        const __m256i first_bytes =
            _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8,
                             12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
        for (std::size_t e = 0; e < count; e += 8) {
            __m256i weights = load(q + e);
            for (int d = 0; d < planes; ++d) {
                const __m256i digit =
                    planes == 1
                        ? weights
                        : _mm256_and_si256(weights, _mm256_set1_epi32((1 << Isa::digit_bits) - 1));
                const __m256i packed = _mm256_shuffle_epi8(digit, first_bytes);
                digits[d][e / 4] = static_cast<std::uint32_t>(_mm256_cvtsi256_si32(packed));
                digits[d][e / 4 + 1] = static_cast<std::uint32_t>(
                    _mm_cvtsi128_si32(_mm256_extracti128_si256(packed, 1)));
                weights = _mm256_srli_epi32(weights, Isa::digit_bits);
            }
        }
    }

    static __m256i broadcast(std::uint32_t four) {
        return _mm256_set1_epi32(static_cast<int>(four));
    }

    // Half a line, 32 bytes, of four neighbours: registers a to d hold, a dword per column, the
    // columns 0-7, 16-23, 32-39 and 48-55 of the line (of the second half: 8 more). See
    // record_column.
    struct Four {
        __m256i a, b, c, d;

        Four(const std::byte* const* rows, std::size_t at) {
            const __m256i r0 = load(rows[0] + at), r1 = load(rows[1] + at);
            const __m256i r2 = load(rows[2] + at), r3 = load(rows[3] + at);
            const __m256i low01 = _mm256_unpacklo_epi8(r0, r1);
            const __m256i high01 = _mm256_unpackhi_epi8(r0, r1);
            const __m256i low23 = _mm256_unpacklo_epi8(r2, r3);
            const __m256i high23 = _mm256_unpackhi_epi8(r2, r3);
            a = _mm256_unpacklo_epi16(low01, low23);
            b = _mm256_unpackhi_epi16(low01, low23);
            c = _mm256_unpacklo_epi16(high01, high23);
            d = _mm256_unpackhi_epi16(high01, high23);
        }
    };

    // Records of up to 16 columns: eight neighbours at a time, four in each half of a register.
    template <int planes, class Sums>
    static void gather_narrow(const std::byte* const* rows,
                              const std::uint32_t (*digits)[chunk / 4 + 4], std::size_t count,
                              std::size_t offset, bool far, const Sums& sums) {
        __m256i s[planes][4] = {};
        for (std::size_t e = 0; e < count; e += 8) {
            if (far) prefetch4(rows, e, offset), prefetch4(rows, e + 4, offset);
            const auto both = [&](std::size_t n) {
                const auto half_of = [&](std::size_t m) {
                    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[e + m] + offset));
                };
                return _mm256_inserti128_si256(_mm256_castsi128_si256(half_of(n)), half_of(n + 4),
                                               1);
            };
            const __m256i r0 = both(0), r1 = both(1), r2 = both(2), r3 = both(3);
            const __m256i low01 = _mm256_unpacklo_epi8(r0, r1);
            const __m256i high01 = _mm256_unpackhi_epi8(r0, r1);
            const __m256i low23 = _mm256_unpacklo_epi8(r2, r3);
            const __m256i high23 = _mm256_unpackhi_epi8(r2, r3);
            const __m256i a = _mm256_unpacklo_epi16(low01, low23);
            const __m256i b = _mm256_unpackhi_epi16(low01, low23);
            const __m256i c = _mm256_unpacklo_epi16(high01, high23);
            const __m256i d = _mm256_unpackhi_epi16(high01, high23);
            for (int p = 0; p < planes; ++p) {
                const __m256i q = _mm256_blend_epi32(broadcast(digits[p][e / 4]),
                                                     broadcast(digits[p][e / 4 + 1]), 0xf0);
                s[p][0] = Isa::dot_bytes(s[p][0], q, a);
                s[p][1] = Isa::dot_bytes(s[p][1], q, b);
                s[p][2] = Isa::dot_bytes(s[p][2], q, c);
                s[p][3] = Isa::dot_bytes(s[p][3], q, d);
            }
        }
        // Columns 0-3 and 4-7 side by side, halves added.
        const auto joined = [&](int p, int n) {
            const __m256i x = s[p][n], y = s[p][n + 1];
            return _mm256_add_epi32(_mm256_permute2x128_si256(x, y, 0x20),
                                    _mm256_permute2x128_si256(x, y, 0x31));
        };
        for (int n = 0; n < 4; n += 2) {
            if constexpr (planes == 1) {
                sums.take(4 * static_cast<std::size_t>(n), joined(0, n));
            } else {
                sums.template take<Isa::digit_bits>(4 * static_cast<std::size_t>(n), joined(0, n),
                                                    joined(1, n), joined(2, n));
            }
        }
    }

    // One digit: a whole line of 64 columns at a time.
    template <bool far, class Sums>
    static void gather_line(const std::byte* const* rows, const std::uint32_t* digits,
                            std::size_t count, std::size_t line, std::size_t column,
                            const Sums& sums) {
        const __m256i zero = _mm256_setzero_si256();
        __m256i a0 = zero, b0 = zero, c0 = zero, d0 = zero;
        __m256i a1 = zero, b1 = zero, c1 = zero, d1 = zero;
        for (std::size_t e = 0; e < count; e += 4) {
            if (far) prefetch4(rows, e, line);
            const __m256i q = broadcast(digits[e / 4]);
            const Four first(rows + e, line);
            a0 = Isa::dot_bytes(a0, q, first.a);
            b0 = Isa::dot_bytes(b0, q, first.b);
            c0 = Isa::dot_bytes(c0, q, first.c);
            d0 = Isa::dot_bytes(d0, q, first.d);
            const Four second(rows + e, line + 32);
            a1 = Isa::dot_bytes(a1, q, second.a);
            b1 = Isa::dot_bytes(b1, q, second.b);
            c1 = Isa::dot_bytes(c1, q, second.c);
            d1 = Isa::dot_bytes(d1, q, second.d);
        }
        sums.take(column, a0), sums.take(column + 8, a1);
        sums.take(column + 16, b0), sums.take(column + 24, b1);
        sums.take(column + 32, c0), sums.take(column + 40, c1);
        sums.take(column + 48, d0), sums.take(column + 56, d1);
    }

    // Three digits: half a line at a time, two registers of it, so that all sums are in registers.
    template <class Sums>
    static void gather_digits(const std::byte* const* rows,
                              const std::uint32_t (*digits)[chunk / 4 + 4], std::size_t count,
                              std::size_t line, std::size_t column, const Sums& sums) {
        const __m256i zero = _mm256_setzero_si256();
        for (std::size_t part = 0; part < 4; ++part) {
            const std::size_t at = line + part / 2 * 32;
            __m256i x0 = zero, x1 = zero, x2 = zero, y0 = zero, y1 = zero, y2 = zero;
            for (std::size_t e = 0; e < count; e += 4) {
                const Four four(rows + e, at);
                const __m256i x = part % 2 ? four.c : four.a, y = part % 2 ? four.d : four.b;
                const __m256i q0 = broadcast(digits[0][e / 4]), q1 = broadcast(digits[1][e / 4]);
                const __m256i q2 = broadcast(digits[2][e / 4]);
                x0 = Isa::dot_bytes(x0, q0, x), y0 = Isa::dot_bytes(y0, q0, y);
                x1 = Isa::dot_bytes(x1, q1, x), y1 = Isa::dot_bytes(y1, q1, y);
                x2 = Isa::dot_bytes(x2, q2, x), y2 = Isa::dot_bytes(y2, q2, y);
            }
            const std::size_t c = column + part % 2 * 32 + part / 2 * 8;
            sums.template take<Isa::digit_bits>(c, x0, x1, x2);
            sums.template take<Isa::digit_bits>(c + 16, y0, y1, y2);
        }
    }

    template <class Sums>
    static void gather8(const Records& records, const std::byte* const* rows,
                        const std::uint32_t* q, std::size_t count, const Sums& sums) {
        alignas(32) std::uint32_t digits[3][chunk / 4 + 4];
        const bool is_one = records.edge_bits <= Isa::digit_bits;
        is_one ? make_digits<1>(q, count, digits) : make_digits<3>(q, count, digits);
        if (records.stride == 16) {
            is_one ? gather_narrow<1>(rows, digits, count, records.offset, records.far, sums)
                   : gather_narrow<3>(rows, digits, count, records.offset, records.far, sums);
            return;
        }
        for (std::size_t at = 0; at < records.stride; at += 64) {
            const std::size_t line = records.offset + at;
            if (!is_one) {
                gather_digits(rows, digits, count, line, at, sums);
            } else if (records.far) {
                gather_line<true>(rows, digits[0], count, line, at, sums);
            } else {
                gather_line<false>(rows, digits[0], count, line, at, sums);
            }
        }
    }

    // Gathers half a line of 16-bit records: columns 0-7 and 16-23 of the line (of the second half:
    // 8 more). pairs[d][g]: digit d of the weights of neighbours 2 g and 2 g + 1, 16 bits each.
    template <int digits, class Sums>
    static void gather_shorts(const std::byte* const* rows,
                              const std::uint32_t (*pairs)[flush16 / 2], std::size_t count,
                              std::size_t at, std::size_t column, const Sums& sums) {
        const __m256i zero = _mm256_setzero_si256();
        __m256i a0 = zero, a1 = zero, b0 = zero, b1 = zero;
        const auto dot = [](__m256i sum, __m256i weights, __m256i values) {
            return _mm256_add_epi32(sum, _mm256_madd_epi16(weights, values));
        };
        for (std::size_t e = 0; e < count; e += 2) {
            for (std::size_t n = 0; n < 2; ++n) {
                _mm_prefetch(reinterpret_cast<const char*>(rows[e + ahead + n] + at), _MM_HINT_T0);
            }
            const __m256i r0 = load(rows[e] + at), r1 = load(rows[e + 1] + at);
            const __m256i a = _mm256_unpacklo_epi16(r0, r1), b = _mm256_unpackhi_epi16(r0, r1);
            const __m256i q0 = broadcast(pairs[0][e / 2]);
            a0 = dot(a0, q0, a), b0 = dot(b0, q0, b);
            if constexpr (digits == 2) {
                const __m256i q1 = broadcast(pairs[1][e / 2]);
                a1 = dot(a1, q1, a), b1 = dot(b1, q1, b);
            }
        }
        if constexpr (digits == 1) {
            sums.take(column, a0), sums.take(column + 16, b0);
        } else {
            sums.template take<short_digit_bits>(column, a0, a1);
            sums.template take<short_digit_bits>(column + 16, b0, b1);
        }
    }

    // Gathers 16-bit records of at most flush16 neighbours.
    template <class Sums>
    static void gather16(const Records& records, const std::byte* const* rows,
                         const std::uint32_t* q, std::size_t count, const Sums& sums) {
        std::uint32_t pairs[2][flush16 / 2];
        constexpr std::uint32_t low = (1u << short_digit_bits) - 1;
        for (std::size_t e = 0; e < count; e += 2) {
            pairs[0][e / 2] = (q[e] & low) | (q[e + 1] & low) << 16;
            pairs[1][e / 2] = q[e] >> short_digit_bits | q[e + 1] >> short_digit_bits << 16;
        }
        for (std::size_t at = 0; at < records.stride; at += 32) {
            const std::size_t column = at / 64 * 32 + at % 64 / 4;
            if (records.edge_bits <= short_digit_bits) {
                gather_shorts<1>(rows, pairs, count, records.offset + at, column, sums);
            } else {
                gather_shorts<2>(rows, pairs, count, records.offset + at, column, sums);
            }
        }
    }

    static void add_records(const Records& records, const std::byte* const* rows,
                            const std::uint32_t* q, std::size_t count, std::int64_t* acc) {
        if (records.bytes_per_column == 1) {
            gather8(records, rows, q, count, WideSums{acc, nullptr, nullptr, 0});
        } else if (records.bytes_per_column == 2) {
            for (std::size_t e = 0; e < count; e += flush16) {
                gather16(records, rows + e, q + e, count - e < flush16 ? count - e : flush16,
                         WideSums{acc, nullptr, nullptr, 0});
            }
        } else {
            Base::add_records(records, rows, q, count, acc);
        }
    }

    // Sums of records stand in the order of columns; those of four bytes do anyway.
    static void finish_records(const Records& records, std::size_t num_outputs, std::uint32_t total,
                               const std::int64_t* acc, float* sums) {
        if (largest_sum(records, total) < std::uint64_t{1} << 51) {
            for (std::size_t c = 0; c < num_outputs; c += 4) {
                store_wide(records.center + c, static_cast<std::int32_t>(total), load(acc + c),
                           sums + c);
            }
            return;
        }
        Base::finish_columns(records, num_outputs, total, acc, sums);
    }

    static void sum_records(const Records& records, std::size_t num_outputs,
                            const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                            std::uint32_t total, std::int64_t* acc, float* sums) {
        const auto whole = static_cast<std::int32_t>(total);
        const std::uint64_t largest = largest_sum(records, total);
        const auto gather = [&](const auto& to) {
            records.bytes_per_column == 1 ? gather8(records, rows, q, count, to)
                                          : gather16(records, rows, q, count, to);
        };
        const bool in_one =
            records.bytes_per_column == 1 || (records.bytes_per_column == 2 && count <= flush16);
        if (in_one && largest < std::uint64_t{1} << 31) {
            gather(NarrowSums{records.center, sums, whole});
        } else if (in_one && largest < std::uint64_t{1} << 51) {
            gather(WideSums{nullptr, records.center, sums, whole});
        } else {
            Base::sum_records(records, num_outputs, rows, q, count, total, acc, sums);
        }
    }
};

}  // namespace bignn::avx2
