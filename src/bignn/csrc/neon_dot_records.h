// Way T's gather in NEON with the dot-product extension.
#pragma once

#include "neon_records.h"

namespace bignn::neon {

// Four neighbours' bytes of a column stand next to each other in a dword, and sdot multiplies them
// by the four weights' digits and adds them up. Bytes are signed, so a digit has 7 bits:
//     |s| <= chunk * 127 * 128 < 2^31.
template <class Base>
struct DotRecordPieces : Base {
    using typename Base::Isa;

    static constexpr int dot_bits = 7;
    static_assert(most_edge_bits <= 3 * dot_bits);
    // digits[p][g]: digit p of the weights of neighbours 4 g ... 4 g + 3, a byte each.
    using Digits = std::uint32_t[chunk / 4 + 4];

    template <int planes>
    static void make_digits(const std::uint32_t* q, std::size_t count, Digits* digits) {
        const uint32x4_t mask = vdupq_n_u32((1u << dot_bits) - 1);
        for (std::size_t e = 0; e < count; e += 16) {
            for (int p = 0; p < planes; ++p) {
                const auto four = [&](std::size_t n) {
                    const uint32x4_t digit =
                        vshlq_u32(vld1q_u32(q + e + 4 * n), vdupq_n_s32(-dot_bits * p));
                    return vmovn_u32(vandq_u32(digit, mask));
                };
                const uint16x8_t low = vcombine_u16(four(0), four(1));
                const uint16x8_t high = vcombine_u16(four(2), four(3));
                const uint8x16_t bytes = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
                vst1q_u32(digits[p] + e / 4, vreinterpretq_u32_u8(bytes));
            }
        }
    }

    // 16 bytes of four neighbours: registers hold, a dword per column, four columns each.
    static void interleave(const std::byte* const* rows, std::size_t at, int8x16_t (&quads)[4]) {
        const int8x16_t r0 = load_bytes(rows[0] + at), r1 = load_bytes(rows[1] + at);
        const int8x16_t r2 = load_bytes(rows[2] + at), r3 = load_bytes(rows[3] + at);
        const auto shorts = [](int8x16_t v) { return vreinterpretq_s16_s8(v); };
        const int16x8_t low01 = shorts(vzip1q_s8(r0, r1)), high01 = shorts(vzip2q_s8(r0, r1));
        const int16x8_t low23 = shorts(vzip1q_s8(r2, r3)), high23 = shorts(vzip2q_s8(r2, r3));
        quads[0] = vreinterpretq_s8_s16(vzip1q_s16(low01, low23));
        quads[1] = vreinterpretq_s8_s16(vzip2q_s16(low01, low23));
        quads[2] = vreinterpretq_s8_s16(vzip1q_s16(high01, high23));
        quads[3] = vreinterpretq_s8_s16(vzip2q_s16(high01, high23));
    }

    // `some` of the lanes, from `first` on, as many as have their sums in registers.
    template <int planes, std::size_t lanes, std::size_t some, class Sums>
    static void gather_dots(const std::byte* const* rows, const Digits* digits, std::size_t count,
                            std::size_t at, bool far, std::size_t first, std::size_t column,
                            const Sums& sums) {
        int32x4_t s[some][4][planes];
        for (std::size_t n = 0; n < some; ++n) {
            for (std::size_t m = 0; m < 4; ++m) {
                for (int p = 0; p < planes; ++p) s[n][m][p] = vdupq_n_s32(0);
            }
        }
        for (std::size_t e = 0; e < count; e += 4) {
            if (far) Base::prefetch(rows, e, 4, at);
            int8x16_t q[planes];
            for (int p = 0; p < planes; ++p) {
                q[p] = vreinterpretq_s8_u32(vdupq_n_u32(digits[p][e / 4]));
            }
            for (std::size_t n = 0; n < some; ++n) {
                int8x16_t quads[4];
                interleave(rows + e, at + 16 * (first + n), quads);
                for (std::size_t m = 0; m < 4; ++m) {
                    for (int p = 0; p < planes; ++p) {
                        s[n][m][p] = vdotq_s32(s[n][m][p], quads[m], q[p]);
                    }
                }
            }
        }
        for (std::size_t n = 0; n < some; ++n) {
            for (std::size_t m = 0; m < 4; ++m) {
                sums.template take<dot_bits, planes>(column + column_of(lanes, first + n, m),
                                                     s[n][m]);
            }
        }
    }

    template <int planes, class Sums>
    static void gather_planes(const Records& records, const std::byte* const* rows,
                              const std::uint32_t* q, std::size_t count, const Sums& sums) {
        alignas(16) Digits digits[planes];
        make_digits<planes>(q, count, digits);
        Base::each_line(records, [&](auto lanes, std::size_t at, std::size_t column) {
            constexpr std::size_t all = decltype(lanes)::value;
            constexpr std::size_t most = planes == 1 ? 4 : 3 - planes + 1;
            constexpr std::size_t some = all < most ? all : most;
            for (std::size_t n = 0; n < all; n += some) {
                gather_dots<planes, all, some>(rows, digits, count, at, records.far && n == 0, n,
                                               column, sums);
            }
        });
    }

    template <class Sums>
    static void gather_bytes(const Records& records, const std::byte* const* rows,
                             const std::uint32_t* q, std::size_t count, const Sums& sums) {
        if (records.edge_bits <= dot_bits) {
            gather_planes<1>(records, rows, q, count, sums);
        } else if (records.edge_bits <= 2 * dot_bits) {
            gather_planes<2>(records, rows, q, count, sums);
        } else {
            gather_planes<3>(records, rows, q, count, sums);
        }
    }
};

}  // namespace bignn::neon
