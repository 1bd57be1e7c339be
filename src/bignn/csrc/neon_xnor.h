// Products of bits in NEON: cnt counts the bits of 16 bytes.
#pragma once

#include "neon_vectors.h"

namespace bignn::neon {

template <class Base>
struct XnorPieces : Base {
    using typename Base::Isa;

    // A byte's count is at most 8, so 31 of them add up within a byte.
    static constexpr std::size_t flush_every = 31;

    // Counts of `rows` rows against a panel's 16 columns, four columns per register.
    template <std::size_t rows>
    struct Counts {
        uint32x4_t columns[rows][4];

        // combine(r, w, four) are the bits to count: of row r, its half word w and four columns'.
        template <class Combine>
        Counts(const half* panel, std::size_t num_words, Combine combine) {
            for (std::size_t r = 0; r < rows; ++r) {
                for (std::size_t n = 0; n < 4; ++n) columns[r][n] = vdupq_n_u32(0);
            }
            const std::size_t num_halves = 2 * num_words;
            for (std::size_t w = 0; w < num_halves;) {
                const std::size_t stop =
                    w + flush_every < num_halves ? w + flush_every : num_halves;
                uint8x16_t bytes[rows][4];
                for (std::size_t r = 0; r < rows; ++r) {
                    for (std::size_t n = 0; n < 4; ++n) bytes[r][n] = vdupq_n_u8(0);
                }
                for (; w < stop; ++w) {
                    for (std::size_t n = 0; n < 4; ++n) {
                        const uint32x4_t four = vld1q_u32(panel + w * panel_width + 4 * n);
                        for (std::size_t r = 0; r < rows; ++r) {
                            const uint32x4_t bits = combine(r, w, four);
                            bytes[r][n] =
                                vaddq_u8(bytes[r][n], vcntq_u8(vreinterpretq_u8_u32(bits)));
                        }
                    }
                }
                for (std::size_t r = 0; r < rows; ++r) {
                    for (std::size_t n = 0; n < 4; ++n) {
                        columns[r][n] = vpadalq_u16(columns[r][n], vpaddlq_u8(bytes[r][n]));
                    }
                }
            }
        }
    };

    // A half word of a row of words, in all lanes.
    static uint32x4_t broadcast_half(const word* row, std::size_t w) {
        return vdupq_n_u32(reinterpret_cast<const half_of_word*>(row)[w]);
    }

    template <std::size_t rows>
    static Counts<rows> count_rows(const word* first, const half* panel, std::size_t num_words) {
        return Counts<rows>(panel, num_words, [=](std::size_t r, std::size_t w, uint32x4_t four) {
            return veorq_u32(broadcast_half(first + r * num_words, w), four);
        });
    }

    static void store_counts(const Counts<1>& counts, std::int32_t* to) {
        for (std::size_t n = 0; n < 4; ++n) {
            vst1q_s32(to + 4 * n, vreinterpretq_s32_u32(counts.columns[0][n]));
        }
    }

    static void count_differing(const word* row, const half* panel, std::size_t num_words,
                                std::int32_t* differing) {
        store_counts(count_rows<1>(row, panel, num_words), differing);
    }

    // Four rows at a time share what is loaded of the columns.
    static void xnor_rows(const word* a, const half* panels, std::size_t begin, std::size_t end,
                          std::size_t num_columns, std::size_t num_bits, std::int32_t* out) {
        std::size_t i = begin;
        for (; i + 4 <= end; i += 4) xnor_some<4>(a, panels, i, num_columns, num_bits, out);
        for (; i < end; ++i) xnor_some<1>(a, panels, i, num_columns, num_bits, out);
    }

    template <std::size_t rows>
    static void xnor_some(const word* a, const half* panels, std::size_t first,
                          std::size_t num_columns, std::size_t num_bits, std::int32_t* out) {
        const std::size_t num_words = words_per_row(num_bits);
        const int32x4_t inputs = vdupq_n_s32(static_cast<std::int32_t>(num_bits));
        for (std::size_t j = 0; j < num_columns; j += panel_width) {
            const Counts<rows> counts =
                count_rows<rows>(a + first * num_words, panels + j * 2 * num_words, num_words);
            for (std::size_t r = 0; r < rows; ++r) {
                std::int32_t dots[panel_width];
                for (std::size_t n = 0; n < 4; ++n) {
                    const int32x4_t differing = vreinterpretq_s32_u32(counts.columns[r][n]);
                    vst1q_s32(dots + 4 * n, vmlsq_n_s32(inputs, differing, 2));
                }
                const std::size_t count =
                    num_columns - j < panel_width ? num_columns - j : panel_width;
                std::int32_t* to = out + (first + r) * num_columns + j;
                for (std::size_t lane = 0; lane < count; ++lane) to[lane] = dots[lane];
            }
        }
    }

    static void add_own_rows(const word* rows, std::size_t num_rows, std::size_t num_inputs,
                             const Own& own, const float* factors, const float* row_scale,
                             const float* scale, std::size_t num_outputs, float* sums,
                             std::size_t sums_stride) {
        const auto add = [&](auto some, std::size_t first) {
            constexpr std::size_t count = decltype(some)::value;
            add_some_own<count>(rows + first * words_per_row(num_inputs), num_inputs, own,
                                factors + first, row_scale + first, scale, num_outputs,
                                sums + first * sums_stride, sums_stride);
        };
        std::size_t r = 0;
        for (; r + 4 <= num_rows; r += 4) add(Number<4>{}, r);
        for (; r < num_rows; ++r) add(Number<1>{}, r);
    }

    template <std::size_t rows>
    static void add_some_own(const word* first, std::size_t num_inputs, const Own& own,
                             const float* factors, const float* row_scale, const float* scale,
                             std::size_t num_outputs, float* sums, std::size_t sums_stride) {
        const std::size_t num_words = words_per_row(num_inputs);
        const int32x4_t inputs = vdupq_n_s32(static_cast<std::int32_t>(num_inputs));
        for (std::size_t j = 0; j < num_outputs; j += panel_width) {
            const Counts<rows> counts =
                count_rows<rows>(first, own.panels + j * 2 * num_words, num_words);
            for (std::size_t n = 0; n < 4 && j + 4 * n < num_outputs; ++n) {
                const std::size_t c = j + 4 * n, left = num_outputs - c;
                const float32x4_t scales = load_first(scale + c, left);
                const float32x4_t own_scales = load_first(own.scale + c, left);
                for (std::size_t r = 0; r < rows; ++r) {
                    float* at = sums + r * sums_stride + c;
                    const int32x4_t differing = vreinterpretq_s32_u32(counts.columns[r][n]);
                    const float32x4_t dots = vcvtq_f32_s32(vmlsq_n_s32(inputs, differing, 2));
                    const float32x4_t mine = vmulq_f32(vmulq_n_f32(dots, factors[r]), own_scales);
                    const float32x4_t others =
                        vmulq_f32(vmulq_n_f32(load_first(at, left), row_scale[r]), scales);
                    store_first(at, left, vaddq_f32(others, mine));
                }
            }
        }
    }

    // v = base - differing of 16 columns as signed bytes, or as two bytes each; false if one does
    // not fit.
    static bool store_values(const uint32x4_t (&differing)[4], const std::int32_t* base,
                             std::uint16_t valid, bool in_bytes, std::byte* record) {
        const auto four = [&](std::size_t n) {
            return vmovn_s32(
                vsubq_s32(vld1q_s32(base + 4 * n), vreinterpretq_s32_u32(differing[n])));
        };
        const int16x8_t low = vcombine_s16(four(0), four(1)), high = vcombine_s16(four(2), four(3));
        auto* to = reinterpret_cast<std::int8_t*>(record);
        if (!in_bytes) {
            vst1q_s8(to, vreinterpretq_s8_s16(low)), vst1q_s8(to + 16, vreinterpretq_s8_s16(high));
            return true;
        }
        const int8x16_t bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
        vst1q_s8(to, bytes);
        // What was cut off differs from its byte.
        const uint8x8_t same_low = vmovn_u16(vceqq_s16(vmovl_s8(vget_low_s8(bytes)), low));
        const uint8x8_t same_high = vmovn_u16(vceqq_s16(vmovl_high_s8(bytes), high));
        const uint8x16_t same = vcombine_u8(same_low, same_high);
        if (vminvq_u8(same) == 255) return true;
        std::uint8_t fits[panel_width];
        vst1q_u8(fits, same);
        for (std::size_t lane = 0; lane < panel_width; ++lane) {
            if ((valid >> lane & 1) && !fits[lane]) return false;
        }
        return true;
    }

    template <std::size_t count>
    static bool make_some_records(const word* rows, const Panels& panels, std::byte* records) {
        const std::size_t num_words = words_per_row(panels.num_bits);
        const std::size_t panel_bytes = panel_width * panels.bytes_per_column;
        bool fits = true;
        for (std::size_t p = 0; p < panels.stride / panel_bytes; ++p) {
            const Counts<count> counts =
                count_rows<count>(rows, panels.halves + p * panel_width * 2 * num_words, num_words);
            for (std::size_t r = 0; r < count; ++r) {
                fits &= store_values(counts.columns[r], panels.base + p * panel_width,
                                     panels.valid[p], panels.bytes_per_column == 1,
                                     records + r * panels.stride + p * panel_bytes);
            }
        }
        return fits;
    }

    static bool make_records(const word* rows, std::size_t num_rows, const Panels& panels,
                             std::byte* records) {
        // Values are cut off at 16 bits before they are compared.
        if (panels.bytes_per_column > 2 || panels.num_bits >= 32000) {
            return Base::make_records(rows, num_rows, panels, records);
        }
        const std::size_t num_words = words_per_row(panels.num_bits);
        bool fits = true;
        std::size_t i = 0;
        for (; i + 4 <= num_rows; i += 4) {
            fits &= make_some_records<4>(rows + i * num_words, panels, records + i * panels.stride);
        }
        for (; i < num_rows; ++i) {
            fits &= make_some_records<1>(rows + i * num_words, panels, records + i * panels.stride);
        }
        return fits;
    }

    // Adds up the signs of `lanes` times 16 columns, from position `at` on. 127 of them fit a byte.
    template <std::size_t lanes>
    static void add_signs(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                          std::size_t at, int8x16_t (&sums)[lanes]) {
        const std::size_t num_positions = table.stride / table.bytes_per_column;
        for (std::size_t n = 0; n < lanes; ++n) sums[n] = vdupq_n_s8(0);
        for (std::size_t e = 0; e < count; ++e) {
            const std::int8_t* signs =
                table.signs + static_cast<std::size_t>(inputs[e]) * num_positions + at;
            for (std::size_t n = 0; n < lanes; ++n) {
                sums[n] = vaddq_s8(sums[n], vld1q_s8(signs + 16 * n));
            }
        }
    }

    template <std::size_t lanes>
    static void few_signs(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                          std::size_t at, std::byte* record) {
        int8x16_t sums[lanes];
        add_signs(inputs, count, table, at, sums);
        for (std::size_t n = 0; n < lanes; ++n) {
            vst1q_s8(reinterpret_cast<std::int8_t*>(record + at) + 16 * n, sums[n]);
        }
    }

    // Adds up the signs of 16 columns in 16 bits; false if they do not fit the record's bytes.
    static bool many_signs(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                           std::size_t at, std::byte* record) {
        int16x8_t low = vdupq_n_s16(0), high = low;
        for (std::size_t e = 0; e < count; e += 127) {
            int8x16_t some[1];
            add_signs(inputs + e, count - e < 127 ? count - e : 127, table, at, some);
            low = vaddw_s8(low, vget_low_s8(some[0]));
            high = vaddw_high_s8(high, some[0]);
        }
        auto* to = reinterpret_cast<std::int8_t*>(record + table.bytes_per_column * at);
        if (table.bytes_per_column == 2) {
            vst1q_s8(to, vreinterpretq_s8_s16(low)), vst1q_s8(to + 16, vreinterpretq_s8_s16(high));
            return true;
        }
        const int8x16_t bytes = vcombine_s8(vmovn_s16(low), vmovn_s16(high));
        vst1q_s8(to, bytes);
        const uint16x8_t same = vandq_u16(vceqq_s16(vmovl_s8(vget_low_s8(bytes)), low),
                                          vceqq_s16(vmovl_high_s8(bytes), high));
        return vminvq_u16(same) != 0;
    }

    static bool sparse_record(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                              std::byte* record) {
        if (table.bytes_per_column > 2 || count > 32767) {
            return Base::sparse_record(inputs, count, table, record);
        }
        std::size_t at = 0;
        if (table.bytes_per_column == 1 && count <= 127) {
            for (; at + 64 <= table.stride; at += 64) {
                few_signs<4>(inputs, count, table, at, record);
            }
            for (; at < table.stride; at += 16) few_signs<1>(inputs, count, table, at, record);
            return true;
        }
        bool fits = true;
        for (; at < table.stride / table.bytes_per_column; at += 16) {
            fits &= many_signs(inputs, count, table, at, record);
        }
        return fits;
    }
};

}  // namespace bignn::neon
