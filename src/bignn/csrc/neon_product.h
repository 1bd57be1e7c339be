// Way G's second half in NEON: the product after the gather of bits, by lookup.
//
// u . B is twice the sum of |u| where the signs agree, less the sum of all |u|. For four inputs
// there are 16 such sums, one per choice of B's signs: a table of 16 bytes per byte of them, made
// once per row, and tbl looks it up for 16 outputs.
//
// B in memory: for every 16 outputs and every eight inputs (in the order of neon_bits.h) there are
// 16 bytes, one per output, whose two halves are places in the tables of the first and the last
// four inputs.
#pragma once

#include "neon_bits.h"

namespace bignn::neon {

template <class Base>
struct ProductPieces : Base {
    using typename Base::Isa;

    static std::size_t product_bytes(std::size_t num_inputs, std::size_t num_outputs) {
        return (num_outputs + 15) / 16 * 16 * (padded_inputs(num_inputs) / 8);
    }

    static void make_product(const word* b, std::size_t num_inputs, std::size_t num_outputs,
                             std::byte* product) {
        const std::size_t num_words = words_per_row(num_inputs);
        const std::size_t size = product_bytes(num_inputs, num_outputs);
        auto* places = reinterpret_cast<std::uint8_t*>(product);
        for (std::size_t n = 0; n < size; ++n) places[n] = 0;
        const std::size_t eights = padded_inputs(num_inputs) / 8;
        for (std::size_t c = 0; c < num_outputs; ++c) {
            for (std::size_t k = 0; k < num_inputs; ++k) {
                const std::size_t place = place_of(k);
                const word bit = b[c * num_words + k / word_bits] >> (k % word_bits) & 1;
                places[(c / 16 * eights + place / 8) * 16 + c % 16] |=
                    static_cast<std::uint8_t>(bit << place % 8);
            }
        }
    }

    static std::size_t multiply_scratch_bytes(std::size_t num_inputs, std::size_t) {
        return tile_rows * most_planes * 4 * padded_inputs(num_inputs);
    }

    static void multiply(std::int32_t* u, std::size_t num_rows, std::size_t num_inputs,
                         std::size_t num_outputs, const std::byte* product, std::byte* scratch,
                         float* sums, std::size_t sums_stride) {
        const Product all{reinterpret_cast<const std::uint8_t*>(product), num_inputs, num_outputs,
                          sums, sums_stride};
        std::uint64_t totals[tile_rows];
        std::uint32_t largest = 0;
        for (std::size_t r = 0; r < num_rows; ++r) {
            const std::uint32_t some =
                add_up(u + r * u_stride_of(num_inputs), num_inputs, totals[r]);
            largest = some > largest ? some : largest;
        }
        const std::uint64_t range = std::uint64_t{4} * largest;  // of a table's numbers
        auto* tables = reinterpret_cast<std::uint8_t*>(scratch);
        if (range < 1 << 16) {
            multiply_planes<2>(u, totals, num_rows, all, tables);
        } else if (range < 1 << 24) {
            multiply_planes<3>(u, totals, num_rows, all, tables);
        } else if (range < std::uint64_t{1} << 32) {
            multiply_planes<4>(u, totals, num_rows, all, tables);
        } else {
            multiply_huge(u, num_rows, all);
        }
    }

   private:
    static constexpr std::size_t most_planes = 4;

    struct Product {
        const std::uint8_t* places;
        std::size_t num_inputs, num_outputs;
        float* sums;
        std::size_t stride;  // of the sums
    };

    static constexpr std::size_t u_stride_of(std::size_t num_inputs) {
        return Isa::u_stride(num_inputs);
    }

    // The largest |u| of a row, and their sum.
    static std::uint32_t add_up(const std::int32_t* u, std::size_t num_inputs,
                                std::uint64_t& total) {
        uint32x4_t largest = vdupq_n_u32(0);
        uint64x2_t sum = vdupq_n_u64(0);
        for (std::size_t k = 0; k < padded_inputs(num_inputs); k += 4) {
            const uint32x4_t values = vreinterpretq_u32_s32(vabsq_s32(vld1q_s32(u + k)));
            largest = vmaxq_u32(largest, values);
            sum = vpadalq_u32(sum, values);
        }
        total = vaddvq_u64(sum);
        return vmaxvq_u32(largest);
    }

    // tables[four inputs][row][plane]
    template <int planes>
    static void make_tables(const std::int32_t* u, std::size_t num_inputs, std::size_t row,
                            std::uint8_t* tables) {
        for (std::size_t k = 0; k < padded_inputs(num_inputs); k += 4) {
            // The sum of |u| where B is -1, to which each +1 adds its u.
            std::uint32_t values[4], base = 0;
            for (std::size_t m = 0; m < 4; ++m) {
                values[m] = static_cast<std::uint32_t>(u[k + m]);
                if (u[k + m] < 0) base -= values[m];
            }
            make_subset_sums<planes>(values, base, tables + (k / 4 * tile_rows + row) * planes * 16,
                                     16);
        }
    }

    template <int planes>
    static void multiply_planes(const std::int32_t* u, const std::uint64_t* totals,
                                std::size_t num_rows, const Product& product,
                                std::uint8_t* tables) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            make_tables<planes>(u + r * u_stride_of(product.num_inputs), product.num_inputs, r,
                                tables);
        }
        constexpr std::size_t at_once = planes == 2 ? 4 : 2;  // rows whose sums are in registers
        std::size_t r = 0;
        for (; r + at_once <= num_rows; r += at_once) {
            multiply_rows<planes, at_once>(tables, totals, r, product);
        }
        for (; r < num_rows; ++r) multiply_rows<planes, 1>(tables, totals, r, product);
    }

    // Bytes are added in 16 bits, two per eight inputs: so many times eight inputs at most.
    static constexpr std::size_t most_eights = 128;

    template <int planes, std::size_t rows>
    static void multiply_rows(const std::uint8_t* tables, const std::uint64_t* totals,
                              std::size_t first, const Product& product) {
        const std::size_t eights = padded_inputs(product.num_inputs) / 8;
        for (std::size_t c = 0; c < product.num_outputs; c += 16) {
            const std::uint8_t* places = product.places + c * eights;
            if (eights <= most_eights) {
                uint16x8_t s[rows][planes][2];
                look_up<planes, rows>(tables, places, first, 0, eights, s);
                for (std::size_t r = 0; r < rows; ++r) {
                    std::uint32_t counts[planes][16];
                    for (int p = 0; p < planes; ++p) store_wide(s[r][p], counts[p], true);
                    finish<planes>(counts, totals[first + r], first + r, c, product);
                }
                continue;
            }
            std::uint32_t counts[rows][planes][16];
            for (std::size_t at = 0; at < eights; at += most_eights) {
                const std::size_t stop = at + most_eights < eights ? at + most_eights : eights;
                uint16x8_t s[rows][planes][2];
                look_up<planes, rows>(tables, places, first, at, stop, s);
                for (std::size_t r = 0; r < rows; ++r) {
                    for (int p = 0; p < planes; ++p) store_wide(s[r][p], counts[r][p], at == 0);
                }
            }
            for (std::size_t r = 0; r < rows; ++r) {
                finish<planes>(counts[r], totals[first + r], first + r, c, product);
            }
        }
    }

    // s = the bytes of 16 outputs added up over inputs 8 begin to 8 end.
    template <int planes, std::size_t rows>
    static void look_up(const std::uint8_t* tables, const std::uint8_t* places, std::size_t first,
                        std::size_t begin, std::size_t end, uint16x8_t (&s)[rows][planes][2]) {
        for (std::size_t r = 0; r < rows; ++r) {
            for (int p = 0; p < planes; ++p) s[r][p][0] = s[r][p][1] = vdupq_n_u16(0);
        }
        for (std::size_t n = begin; n < end; ++n) {
            const uint8x16_t both = vld1q_u8(places + 16 * n);
            const uint8x16_t low = vandq_u8(both, vdupq_n_u8(15)), high = vshrq_n_u8(both, 4);
            const std::uint8_t* at = tables + (2 * n * tile_rows + first) * planes * 16;
            for (std::size_t r = 0; r < rows; ++r) {
                for (int p = 0; p < planes; ++p) {
                    const std::uint8_t* table =
                        at + (r * planes + static_cast<std::size_t>(p)) * 16;
                    const uint8x16_t x = vqtbl1q_u8(vld1q_u8(table), low);
                    const uint8x16_t y =
                        vqtbl1q_u8(vld1q_u8(table + tile_rows * planes * 16), high);
                    s[r][p][0] = vaddw_u8(vaddw_u8(s[r][p][0], vget_low_u8(x)), vget_low_u8(y));
                    s[r][p][1] = vaddw_high_u8(vaddw_high_u8(s[r][p][1], x), y);
                }
            }
        }
    }

    static void store_wide(const uint16x8_t (&s)[2], std::uint32_t* to, bool is_first) {
        for (std::size_t n = 0; n < 2; ++n) {
            const auto store = [&](std::uint32_t* at, uint32x4_t values) {
                vst1q_u32(at, is_first ? values : vaddq_u32(values, vld1q_u32(at)));
            };
            store(to + 8 * n, vmovl_u16(vget_low_u16(s[n])));
            store(to + 8 * n + 4, vmovl_high_u16(s[n]));
        }
    }

    // Puts the bytes' sums of 16 outputs together, and rounds once.
    template <int planes>
    static void finish(const std::uint32_t (*counts)[16], std::uint64_t total, std::size_t row,
                       std::size_t column, const Product& product) {
        float* sums = product.sums + row * product.stride + column;
        if (total < std::uint64_t{1} << 31) {
            for (std::size_t c = 0; c < 16; c += 4) {
                uint32x4_t sum = vld1q_u32(counts[planes - 1] + c);
                for (int p = planes - 2; p >= 0; --p) {
                    sum = vaddq_u32(vshlq_n_u32(sum, 8), vld1q_u32(counts[p] + c));
                }
                const uint32x4_t all = vdupq_n_u32(static_cast<std::uint32_t>(total));
                const uint32x4_t dot = vsubq_u32(vshlq_n_u32(sum, 1), all);
                vst1q_f32(sums + c, vcvtq_f32_s32(vreinterpretq_s32_u32(dot)));
            }
            return;
        }
        for (std::size_t c = 0; c < 16; ++c) {
            std::uint64_t sum = 0;
            for (int p = 0; p < planes; ++p) sum += std::uint64_t{counts[p][c]} << (8 * p);
            sums[c] = static_cast<float>(static_cast<std::int64_t>(2 * sum - total));
        }
    }

    // Rows of thousands of like neighbours, whose tables would take five bytes.
    static void multiply_huge(const std::int32_t* u, std::size_t num_rows, const Product& product) {
        const std::size_t padded = padded_inputs(product.num_inputs);
        for (std::size_t r = 0; r < num_rows; ++r) {
            const std::int32_t* row = u + r * u_stride_of(product.num_inputs);
            for (std::size_t c = 0; c < product.num_outputs; ++c) {
                const std::uint8_t* places = product.places + c / 16 * 2 * padded + c % 16;
                std::int64_t sum = 0;
                for (std::size_t k = 0; k < padded; ++k) {
                    const bool is_positive = places[k / 8 * 16] >> k % 8 & 1;
                    sum += is_positive ? row[k] : -static_cast<std::int64_t>(row[k]);
                }
                product.sums[r * product.stride + c] = static_cast<float>(sum);
            }
        }
    }
};

}  // namespace bignn::neon
