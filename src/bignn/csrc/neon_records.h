// Way T's gather in NEON: sums of records.
#pragma once

#include "neon_vectors.h"

namespace bignn::neon {

// A record's line of 64 bytes is four lanes of 16, its registers. A lane is quads of four columns,
// four of them (two in records of two bytes): quad m of lane n has columns 16 m + 4 n and on (see
// record_column). Records of up to 16 columns are one lane. So a register of sums has four columns,
// and that of quad m of lane n of `lanes` begins with this one:
static constexpr std::size_t column_of(std::size_t lanes, std::size_t lane, std::size_t quad) {
    return 4 * lanes * quad + 4 * lane;
}

template <class Base>
struct RecordPieces : Base {
    using typename Base::Isa;

    // Where the sums of four columns go: s[0] + 2^digit_bits s[1] + ... To floats, when all fits
    // in 32 bits:
    struct NarrowSums {
        const std::int32_t* center;
        float* sums;
        std::int32_t total;

        template <int digit_bits, int planes>
        void take(std::size_t c, const int32x4_t* s) const {
            int32x4_t sum = s[planes - 1];
            for (int p = planes - 2; p >= 0; --p) {
                sum = vaddq_s32(vshlq_n_s32(sum, digit_bits), s[p]);
            }
            const int32x4_t twice = vshlq_n_s32(sum, 1);
            vst1q_f32(sums + c, vcvtq_f32_s32(vmlaq_n_s32(twice, vld1q_s32(center + c), total)));
        }
    };

    // Onto what earlier chunks of a long row summed up:
    struct MoreSums {
        std::int64_t* acc;

        template <int digit_bits, int planes>
        void take(std::size_t c, const int32x4_t* s) const {
            int64x2_t low = vld1q_s64(acc + c), high = vld1q_s64(acc + c + 2);
            for (int p = 0; p < planes; ++p) {
                const int64x2_t by = vdupq_n_s64(digit_bits * p);
                low = vaddq_s64(low, vshlq_s64(vmovl_s32(vget_low_s32(s[p])), by));
                high = vaddq_s64(high, vshlq_s64(vmovl_high_s32(s[p]), by));
            }
            vst1q_s64(acc + c, low), vst1q_s64(acc + c + 2, high);
        }
    };

    static void prefetch(const std::byte* const* rows, std::size_t e, std::size_t count,
                         std::size_t at) {
        for (std::size_t n = 0; n < count; ++n) __builtin_prefetch(rows[e + ahead + n] + at);
    }

    // --- Weights of up to 7 bits ---------------------------------------------------------------
    //
    // A weight times a signed byte takes 14 bits and a sign, so the products of `at_once`
    // neighbours are added in 16 bits before they are added to 32: 2 of 7 bits, 4 of 6.

    static constexpr int small_bits = 7;

    template <std::size_t at_once, std::size_t lanes, class Sums>
    static void gather_small(const std::byte* const* rows, const std::int8_t* q, std::size_t count,
                             std::size_t at, bool far, std::size_t column, const Sums& sums) {
        int32x4_t s[lanes][4];
        for (std::size_t n = 0; n < lanes; ++n) {
            for (std::size_t m = 0; m < 4; ++m) s[n][m] = vdupq_n_s32(0);
        }
        for (std::size_t e = 0; e < count; e += at_once) {
            if (far) prefetch(rows, e, at_once, at);
            for (std::size_t n = 0; n < lanes; ++n) {
                int16x8_t low = vdupq_n_s16(0), high = low;
                for (std::size_t m = 0; m < at_once; ++m) {
                    const int8x16_t v = load_bytes(rows[e + m] + at + 16 * n);
                    const int8x16_t weight = vdupq_n_s8(q[e + m]);
                    low = vmlal_s8(low, vget_low_s8(v), vget_low_s8(weight));
                    high = vmlal_high_s8(high, v, weight);
                }
                s[n][0] = vaddw_s16(s[n][0], vget_low_s16(low));
                s[n][1] = vaddw_high_s16(s[n][1], low);
                s[n][2] = vaddw_s16(s[n][2], vget_low_s16(high));
                s[n][3] = vaddw_high_s16(s[n][3], high);
            }
        }
        for (std::size_t n = 0; n < lanes; ++n) {
            for (std::size_t m = 0; m < 4; ++m) {
                sums.template take<small_bits, 1>(column + column_of(lanes, n, m), &s[n][m]);
            }
        }
    }

    // --- Weights of more bits ------------------------------------------------------------------
    //
    // Bytes become 16 bits and are multiplied by digits of 15 bits, one or two:
    // |s| <= chunk (2^15 - 1) 2^7 < 2^31.

    static constexpr int digit_bits = 15;
    static_assert(most_edge_bits <= 2 * digit_bits && chunk <= 512);

    // `some` of the lanes, from `first` on, as many as have their sums in registers.
    template <int planes, std::size_t lanes, std::size_t some, class Sums>
    static void gather_wide(const std::byte* const* rows, const std::int16_t (*q)[chunk + 16],
                            std::size_t count, std::size_t at, bool far, std::size_t first,
                            std::size_t column, const Sums& sums) {
        int32x4_t s[some][4][planes];
        for (std::size_t n = 0; n < some; ++n) {
            for (std::size_t m = 0; m < 4; ++m) {
                for (int p = 0; p < planes; ++p) s[n][m][p] = vdupq_n_s32(0);
            }
        }
        for (std::size_t e = 0; e < count; ++e) {
            if (far) prefetch(rows, e, 1, at);
            for (std::size_t n = 0; n < some; ++n) {
                const int8x16_t v = load_bytes(rows[e] + at + 16 * (first + n));
                const int16x8_t low = vmovl_s8(vget_low_s8(v)), high = vmovl_high_s8(v);
                for (int p = 0; p < planes; ++p) {
                    const int16x8_t digit = vdupq_n_s16(q[p][e]);
                    s[n][0][p] = vmlal_s16(s[n][0][p], vget_low_s16(low), vget_low_s16(digit));
                    s[n][1][p] = vmlal_high_s16(s[n][1][p], low, digit);
                    s[n][2][p] = vmlal_s16(s[n][2][p], vget_low_s16(high), vget_low_s16(digit));
                    s[n][3][p] = vmlal_high_s16(s[n][3][p], high, digit);
                }
            }
        }
        for (std::size_t n = 0; n < some; ++n) {
            for (std::size_t m = 0; m < 4; ++m) {
                sums.template take<digit_bits, planes>(column + column_of(lanes, first + n, m),
                                                       s[n][m]);
            }
        }
    }

    // --- Byte records --------------------------------------------------------------------------

    // Calls gather(lanes, at, column) for each line of the records, or for their one lane.
    template <class Gather>
    static void each_line(const Records& records, Gather gather) {
        if (records.stride == 16) {
            gather(Number<1>{}, records.offset, 0);
            return;
        }
        for (std::size_t at = 0; at < records.stride; at += 64) {
            gather(Number<4>{}, records.offset + at, at);
        }
    }

    template <int planes, class Sums>
    static void gather_wide_bytes(const Records& records, const std::byte* const* rows,
                                  const std::uint32_t* q, std::size_t count, const Sums& sums) {
        alignas(16) std::int16_t digits[planes][chunk + 16];
        for (std::size_t e = 0; e < count; ++e) {
            for (int p = 0; p < planes; ++p) {
                digits[p][e] =
                    static_cast<std::int16_t>(q[e] >> (digit_bits * p) & ((1u << digit_bits) - 1));
            }
        }
        each_line(records, [&](auto lanes, std::size_t at, std::size_t column) {
            constexpr std::size_t all = decltype(lanes)::value;
            constexpr std::size_t some = all < 2 ? all : 2;
            for (std::size_t n = 0; n < all; n += some) {
                gather_wide<planes, all, some>(rows, digits, count, at, records.far && n == 0, n,
                                               column, sums);
            }
        });
    }

    // Past the last neighbour weights are 0, and pointers readable.
    template <class Sums>
    static void gather_bytes(const Records& records, const std::byte* const* rows,
                             const std::uint32_t* q, std::size_t count, const Sums& sums) {
        if (records.edge_bits > digit_bits) {
            gather_wide_bytes<2>(records, rows, q, count, sums);
            return;
        }
        if (records.edge_bits > small_bits) {
            gather_wide_bytes<1>(records, rows, q, count, sums);
            return;
        }
        alignas(16) std::int8_t bytes[chunk + 16];
        for (std::size_t e = 0; e < count; e += 16) {
            for (std::size_t n = 0; n < 16; ++n) bytes[e + n] = static_cast<std::int8_t>(q[e + n]);
        }
        each_line(records, [&](auto lanes, std::size_t at, std::size_t column) {
            constexpr std::size_t all = decltype(lanes)::value;
            const auto gather = [&](auto at_once) {
                gather_small<decltype(at_once)::value, all>(rows, bytes, count, at, records.far,
                                                            column, sums);
            };
            records.edge_bits == small_bits ? gather(Number<2>{}) : gather(Number<4>{});
        });
    }

    // --- Records of two bytes ------------------------------------------------------------------
    //
    // Digits of 7 bits: |s| <= chunk (2^7 - 1) 2^15 < 2^31.

    template <int planes, class Sums>
    static void gather_shorts(const Records& records, const std::byte* const* rows,
                              const std::uint32_t* q, std::size_t count, const Sums& sums) {
        alignas(16) std::int16_t digits[planes][chunk + 16];
        for (std::size_t e = 0; e < count; ++e) {
            for (int p = 0; p < planes; ++p) {
                digits[p][e] = static_cast<std::int16_t>(q[e] >> (small_bits * p) & 127);
            }
        }
        for (std::size_t at = 0; at < records.stride; at += 64) {
            int32x4_t s[4][2][planes];
            for (std::size_t n = 0; n < 4; ++n) {
                for (int p = 0; p < planes; ++p) s[n][0][p] = s[n][1][p] = vdupq_n_s32(0);
            }
            for (std::size_t e = 0; e < count; ++e) {
                if (records.far) prefetch(rows, e, 1, records.offset + at);
                const std::byte* line = rows[e] + records.offset + at;
                for (std::size_t n = 0; n < 4; ++n) {
                    const int16x8_t v = vreinterpretq_s16_s8(load_bytes(line + 16 * n));
                    for (int p = 0; p < planes; ++p) {
                        const int16x8_t digit = vdupq_n_s16(digits[p][e]);
                        s[n][0][p] = vmlal_s16(s[n][0][p], vget_low_s16(v), vget_low_s16(digit));
                        s[n][1][p] = vmlal_high_s16(s[n][1][p], v, digit);
                    }
                }
            }
            for (std::size_t n = 0; n < 4; ++n) {
                for (std::size_t m = 0; m < 2; ++m) {
                    sums.template take<small_bits, planes>(at / 2 + column_of(4, n, m), s[n][m]);
                }
            }
        }
    }

    // --- Records of any bytes ------------------------------------------------------------------

    // Gathers records of one byte or two.
    template <class Sums>
    static void gather_records(const Records& records, const std::byte* const* rows,
                               const std::uint32_t* q, std::size_t count, const Sums& sums) {
        if (records.bytes_per_column == 1) {
            Isa::gather_bytes(records, rows, q, count, sums);
        } else if (records.edge_bits <= small_bits) {
            gather_shorts<1>(records, rows, q, count, sums);
        } else if (records.edge_bits <= 2 * small_bits) {
            gather_shorts<2>(records, rows, q, count, sums);
        } else {
            gather_shorts<3>(records, rows, q, count, sums);
        }
    }

    static void add_records(const Records& records, const std::byte* const* rows,
                            const std::uint32_t* q, std::size_t count, std::int64_t* acc) {
        if (records.bytes_per_column <= 2) {
            gather_records(records, rows, q, count, MoreSums{acc});
        } else {
            Base::add_records(records, rows, q, count, acc);
        }
    }

    // Sums stand in the order of columns, which is that of positions in records of four bytes.
    static void finish_records(const Records& records, std::size_t num_outputs, std::uint32_t total,
                               const std::int64_t* acc, float* sums) {
        Base::finish_columns(records, num_outputs, total, acc, sums);
    }

    static void sum_records(const Records& records, std::size_t num_outputs,
                            const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                            std::uint32_t total, std::int64_t* acc, float* sums) {
        // 2 |v| is at most 2^8 in records of one byte, and 2^16 in those of two.
        const std::uint64_t most = std::uint64_t{1} << (8 * records.bytes_per_column);
        const auto bound = (static_cast<std::uint64_t>(records.max_center) + most) * total;
        if (records.bytes_per_column <= 2 && bound < std::uint64_t{1} << 31) {
            gather_records(records, rows, q, count,
                           NarrowSums{records.center, sums, static_cast<std::int32_t>(total)});
        } else {
            Base::sum_records(records, num_outputs, rows, q, count, total, acc, sums);
        }
    }
};

}  // namespace bignn::neon
