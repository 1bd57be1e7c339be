// Way G's second half in AVX-512: the product after the gather of bits, by lookup.
//
// Five inputs of a row have 32 sums u0 +- u1 +- ..., half of them the negatives of the others: 16
// numbers, computed once per row and looked up once per output. Four such groups fill the 64 bytes
// of a table for one byte of the numbers; vpermb looks 64 of them up (16 outputs, four groups),
// vpdpbusd adds the four with their signs. That is 320 products by two instructions, per byte.
//
// Group g takes inputs g, G + g, ... 4 G + g (G groups), so that tables are made from broadcasts.
// Bytes are unsigned but for the highest, which is made so by adding 128; the sums of the highest
// bytes start at -128 * (sum of signs) to make up for it.
//
// B in memory: for every 16 outputs and every four groups there are 64 bytes, each with a place in
// the table (6 bits, all that vpermb reads) and a sign (the highest bit); the sums of signs of all
// outputs follow.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

// How the inputs of a product are grouped.
constexpr std::size_t inputs_per_group = 5;

struct Groups {
    std::size_t quads;   // groups, in fours
    std::size_t groups;  // groups, with padding
    std::size_t blocks;  // outputs, in sixteens
};

static constexpr Groups groups_of(std::size_t num_inputs, std::size_t num_outputs) {
    const std::size_t quads = (num_inputs + 4 * inputs_per_group - 1) / (4 * inputs_per_group);
    return {.quads = quads, .groups = 4 * quads, .blocks = (num_outputs + 15) / 16};
}

// The even bytes of a and the odd bytes of b. Of two groups in a and two in b, the order within a
// table is then 0, 2, 1, 3.
static inline __m512i alternate_bytes(__m512i a, __m512i b) {
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0xff), a, b, 0xca);
}

// Writes the lower and the upper bytes of four groups' entries, two groups in each.
static inline void store_planes(__m512i of01, __m512i of23, std::byte* to) {
    _mm512_storeu_si512(to, alternate_bytes(of01, _mm512_slli_epi16(of23, 8)));
    _mm512_storeu_si512(to + 64, alternate_bytes(_mm512_srli_epi16(of01, 8), of23));
}

// The number of a group in its quad, to its place in the table.
constexpr std::size_t place_of_group[4] = {0, 2, 1, 3};

// Makes the tables of one row: table[quad][row][plane], 64 bytes each. Entry i of a quad's group is
// at byte 4 i + place_of_group: u0 of the group plus or minus the others, from an offset that makes
// it positive. `twice` and `base` are scratch.
template <int planes>
static inline void make_tables(const std::int32_t* u, const Groups& shape, std::size_t row,
                               std::int32_t* twice, std::int32_t* base, std::byte* tables) {
    const std::size_t groups = shape.groups;
    const auto offset = static_cast<int>(128u << (8 * (planes - 1)));
    for (std::size_t k = groups; k < inputs_per_group * groups; k += 16) {
        const __m512i values = _mm512_loadu_si512(u + k);
        _mm512_storeu_si512(twice + k, _mm512_add_epi32(values, values));
    }
    for (std::size_t g = 0; g < groups; g += 16) {
        __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(u + g), _mm512_set1_epi32(offset));
        sum = _mm512_sub_epi32(sum, _mm512_loadu_si512(u + groups + g));
        sum = _mm512_sub_epi32(sum, _mm512_loadu_si512(u + 2 * groups + g));
        sum = _mm512_sub_epi32(sum, _mm512_loadu_si512(u + 3 * groups + g));
        sum = _mm512_sub_epi32(sum, _mm512_loadu_si512(u + 4 * groups + g));
        _mm512_storeu_si512(base + g, sum);
    }
    const auto entries = [&](std::size_t g) {
        __m512i t = _mm512_set1_epi32(base[g]);
        t = _mm512_mask_add_epi32(t, 0xaaaa, t, _mm512_set1_epi32(twice[groups + g]));
        t = _mm512_mask_add_epi32(t, 0xcccc, t, _mm512_set1_epi32(twice[2 * groups + g]));
        t = _mm512_mask_add_epi32(t, 0xf0f0, t, _mm512_set1_epi32(twice[3 * groups + g]));
        return _mm512_mask_add_epi32(t, 0xff00, t, _mm512_set1_epi32(twice[4 * groups + g]));
    };
    const auto lower = [](__m512i a, __m512i b) {  // the lower halves of dwords, side by side
        return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_slli_epi32(b, 16));
    };
    const auto upper = [](__m512i a, __m512i b) {
        return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(a, 16), b);
    };
    for (std::size_t quad = 0; quad < shape.quads; ++quad) {
        const __m512i t0 = entries(4 * quad), t1 = entries(4 * quad + 1);
        const __m512i t2 = entries(4 * quad + 2), t3 = entries(4 * quad + 3);
        std::byte* to = tables + (quad * tile_rows + row) * planes * 64;
        store_planes(lower(t0, t1), lower(t2, t3), to);
        const __m512i high01 = upper(t0, t1), high23 = upper(t2, t3);
        _mm512_storeu_si512(to + 128, alternate_bytes(high01, _mm512_slli_epi16(high23, 8)));
        if constexpr (planes > 3) {
            _mm512_storeu_si512(to + 192, alternate_bytes(_mm512_srli_epi16(high01, 8), high23));
        }
    }
}

// The same where entries have two bytes: a register has the entries of two groups.
template <>
inline void make_tables<2>(const std::int32_t* u, const Groups& shape, std::size_t row,
                           std::int32_t* twice_of, std::int32_t* base_of, std::byte* tables) {
    const std::size_t groups = shape.groups;
    auto* twice = reinterpret_cast<std::int16_t*>(twice_of);
    auto* base = reinterpret_cast<std::int16_t*>(base_of);
    const auto shorts = [](std::int16_t* to, __m512i ints) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(ints));
    };
    for (std::size_t g = 0; g < groups; g += 16) {
        __m512i sum = _mm512_add_epi32(_mm512_loadu_si512(u + g), _mm512_set1_epi32(1 << 15));
        for (std::size_t m = 1; m < inputs_per_group; ++m) {
            const __m512i values = _mm512_loadu_si512(u + m * groups + g);
            sum = _mm512_sub_epi32(sum, values);
            // Rows of `twice` are longer than there are groups, so that none overwrites the next.
            shorts(twice + m * (groups + 16) + g, _mm512_add_epi32(values, values));
        }
        shorts(base + g, sum);
    }
    const auto pair = [](const std::int16_t* of_two_groups) {
        std::int32_t both;
        __builtin_memcpy(&both, of_two_groups, sizeof both);
        return _mm512_set1_epi32(both);
    };
    const auto entries = [&](std::size_t g) {
        const auto values = [&](std::size_t m) { return pair(twice + m * (groups + 16) + g); };
        __m512i t = pair(base + g);
        t = _mm512_mask_add_epi16(t, 0xcccccccc, t, values(1));
        t = _mm512_mask_add_epi16(t, 0xf0f0f0f0, t, values(2));
        t = _mm512_mask_add_epi16(t, 0xff00ff00, t, values(3));
        return _mm512_mask_add_epi16(t, 0xffff0000, t, values(4));
    };
    for (std::size_t quad = 0; quad < shape.quads; ++quad) {
        store_planes(entries(4 * quad), entries(4 * quad + 2),
                     tables + (quad * tile_rows + row) * 2 * 64);
    }
}

// The sign of each byte's place: -1 where the highest bit is set, 1 elsewhere. In GF(2), that bit
// is copied to all bits but the lowest, which is 1.
static inline __m512i signs_of(__m512i places) {
    const __m512i spread = _mm512_set1_epi64(0x0080808080808080);
    return _mm512_gf2p8affine_epi64_epi8(places, spread, 1);
}

// Adds the table's entries at these places, with their signs, to sum.
static inline __m512i look_up(__m512i sum, __m512i places, __m512i signs, const std::byte* table) {
    return dot_bytes(sum, _mm512_permutexvar_epi8(places, _mm512_loadu_si512(table)), signs);
}

template <class Base>
struct ProductPieces : Base {
    using typename Base::Isa;

    static constexpr std::size_t u_stride(std::size_t num_inputs) {
        const std::size_t grouped = inputs_per_group * groups_of(num_inputs, 0).groups;
        const std::size_t in_words = word_bits * words_per_row(num_inputs);
        return (grouped > in_words ? grouped : in_words) + 64;
    }

    static std::size_t product_bytes(std::size_t num_inputs, std::size_t num_outputs) {
        const Groups shape = groups_of(num_inputs, num_outputs);
        return shape.blocks * (shape.quads * 64 + 64);
    }

    static void make_product(const word* b, std::size_t num_inputs, std::size_t num_outputs,
                             std::byte* product) {
        const Groups shape = groups_of(num_inputs, num_outputs);
        const std::size_t num_words = words_per_row(num_inputs);
        const auto positive = [&](std::size_t c, std::size_t k) {
            return c < num_outputs && k < num_inputs &&
                   (b[c * num_words + k / word_bits] >> (k % word_bits) & 1) != 0;
        };
        auto* sign_sums =
            reinterpret_cast<std::int32_t*>(product + shape.blocks * shape.quads * 64);
        for (std::size_t c = 0; c < 16 * shape.blocks; ++c) {
            sign_sums[c] = 0;
            for (std::size_t g = 0; g < shape.groups; ++g) {
                // u0's sign is the group's; the others count relative to it.
                const bool first = positive(c, g);
                std::size_t entry = 0;
                for (std::size_t m = 1; m < inputs_per_group; ++m) {
                    if (positive(c, m * shape.groups + g) == first)
                        entry |= std::size_t{1} << (m - 1);
                }
                std::byte* line = product + ((c / 16) * shape.quads + g / 4) * 64;
                line[c % 16 * 4 + g % 4] =
                    static_cast<std::byte>(4 * entry + place_of_group[g % 4] + (first ? 0 : 128));
                sign_sums[c] += first ? 1 : -1;
            }
        }
    }

    static std::size_t multiply_scratch_bytes(std::size_t num_inputs, std::size_t num_outputs) {
        return table_bytes(num_inputs) + tile_rows * 8 * (num_outputs + 64) +
               tile_rows * 4 * Isa::u_stride(num_inputs);
    }

    static void multiply(std::int32_t* u, std::size_t num_rows, std::size_t num_inputs,
                         std::size_t num_outputs, const std::byte* product, std::byte* scratch,
                         float* sums, std::size_t sums_stride) {
        const std::size_t stride = Isa::u_stride(num_inputs);
        for (std::size_t k = num_rows * stride; k < tile_rows * stride; ++k) u[k] = 0;
        const std::uint64_t largest = largest_of(u, num_rows, num_inputs);
        const std::uint64_t range = 2 * inputs_per_group * largest;  // of a group's sums
        Products products{num_inputs * largest < std::uint64_t{1} << 31, 0, nullptr, sums,
                          sums_stride};
        const auto run = [&](auto planes) {
            multiply_planes<decltype(planes)::value>(u, num_inputs, num_outputs, product, scratch,
                                                     products);
        };
        if (range < 1 << 16) {
            run(Number<2>{});
        } else if (range < 1 << 24) {
            run(Number<3>{});
        } else if (range < std::uint64_t{1} << 32) {
            run(Number<4>{});
        } else {
            // Rows of thousands of like neighbours are too large for four bytes: u = 16 high + low.
            auto* acc = reinterpret_cast<std::int64_t*>(scratch + table_bytes(num_inputs));
            auto* low = reinterpret_cast<std::int32_t*>(acc + tile_rows * sums_stride);
            for (std::size_t c = 0; c < tile_rows * sums_stride; ++c) acc[c] = 0;
            for (std::size_t k = 0; k < tile_rows * stride; ++k) {
                low[k] = u[k] & 15;
                u[k] >>= 4;
            }
            products = {false, 4, acc, sums, sums_stride};
            run(Number<4>{});
            for (std::size_t k = 0; k < tile_rows * stride; ++k) u[k] = low[k];
            products.shift = 0;
            run(Number<2>{});
        }
    }

   private:
    static std::size_t table_bytes(std::size_t num_inputs) {
        const Groups shape = groups_of(num_inputs, 0);
        const std::size_t size =
            tile_rows * 4 * shape.quads * 64 + 4 * (Isa::u_stride(num_inputs) + shape.groups + 32);
        return (size + 63) / 64 * 64;
    }

    // The largest |u| of a tile.
    static std::uint32_t largest_of(const std::int32_t* u, std::size_t num_rows,
                                    std::size_t num_inputs) {
        __m512i largest = _mm512_setzero_si512();
        for (std::size_t r = 0; r < num_rows; ++r) {
            for (std::size_t k = 0; k < num_inputs; k += 16) {
                largest = _mm512_max_epu32(
                    largest,
                    _mm512_abs_epi32(_mm512_loadu_si512(u + r * Isa::u_stride(num_inputs) + k)));
            }
        }
        return _mm512_reduce_max_epu32(largest);
    }

    // Takes the planes of 16 products: sum = p0 + 2^8 p1 + 2^16 (p2 + 2^8 p3).
    struct Products {
        bool fits_32_bits;
        int shift;          // with acc, products are multiplied by 2^shift
        std::int64_t* acc;  // where products are added up; null when they are final
        float* sums;
        std::size_t stride;

        void take(std::size_t row, std::size_t column, __m512i p0, __m512i p1, __m512i p2,
                  __m512i p3) const {
            const std::size_t at = row * stride + column;
            // Bytes times signs of a fifth of the inputs: |p| < 2^6 inputs, so these two fit 32
            // bits up to most_inputs_of_bits.
            const __m512i low = _mm512_add_epi32(p0, _mm512_slli_epi32(p1, 8));
            const __m512i high = _mm512_add_epi32(p2, _mm512_slli_epi32(p3, 8));
            if (fits_32_bits) {
                const __m512i sum = _mm512_add_epi32(low, _mm512_slli_epi32(high, 16));
                _mm512_storeu_ps(sums + at, _mm512_cvtepi32_ps(sum));
                return;
            }
            take_half(at, _mm512_castsi512_si256(low), _mm512_castsi512_si256(high));
            take_half(at + 8, _mm512_extracti64x4_epi64(low, 1),
                      _mm512_extracti64x4_epi64(high, 1));
        }

        void take_half(std::size_t at, __m256i low, __m256i high) const {
            __m512i sum = _mm512_add_epi64(_mm512_cvtepi32_epi64(low),
                                           _mm512_slli_epi64(_mm512_cvtepi32_epi64(high), 16));
            if (acc) {
                sum = _mm512_sll_epi64(sum, _mm_cvtsi32_si128(shift));
                sum = _mm512_add_epi64(sum, _mm512_loadu_si512(acc + at));
                _mm512_storeu_si512(acc + at, sum);
            }
            _mm256_storeu_ps(sums + at, _mm512_cvtepi64_ps(sum));
        }
    };

    // Multiplies four rows at once. Where there are fewer, the missing rows of u are zeros, and
    // their sums are not read.
    template <int planes>
    static void multiply_planes(const std::int32_t* u, std::size_t num_inputs,
                                std::size_t num_outputs, const std::byte* product,
                                std::byte* scratch, const Products& products) {
        const Groups shape = groups_of(num_inputs, num_outputs);
        std::byte* tables = scratch;
        auto* twice = reinterpret_cast<std::int32_t*>(scratch + tile_rows * 4 * shape.quads * 64);
        std::int32_t* base = twice + Isa::u_stride(num_inputs);
        for (std::size_t r = 0; r < tile_rows; ++r) {
            make_tables<planes>(u + r * Isa::u_stride(num_inputs), shape, r, twice, base, tables);
        }
        const auto* sign_sums =
            reinterpret_cast<const std::int32_t*>(product + shape.blocks * shape.quads * 64);
        for (std::size_t block = 0; block < shape.blocks; ++block) {
            const __m512i zero = _mm512_setzero_si512();
            const __m512i top = _mm512_slli_epi32(
                _mm512_sub_epi32(zero, _mm512_loadu_si512(sign_sums + 16 * block)), 7);
            __m512i a0 = zero, b0 = zero, c0 = zero, d0 = zero;
            __m512i a1 = planes == 2 ? top : zero, b1 = a1, c1 = a1, d1 = a1;
            __m512i a2 = planes == 3 ? top : zero, b2 = a2, c2 = a2, d2 = a2;
            __m512i a3 = planes == 4 ? top : zero, b3 = a3, c3 = a3, d3 = a3;
            const std::byte* line = product + block * shape.quads * 64;
            const std::byte* table = tables;
            for (std::size_t quad = 0; quad < shape.quads; ++quad) {
                const __m512i places = _mm512_loadu_si512(line);
                const __m512i signs = signs_of(places);
                constexpr std::size_t row = planes * 64;
                a0 = look_up(a0, places, signs, table);
                b0 = look_up(b0, places, signs, table + row);
                c0 = look_up(c0, places, signs, table + 2 * row);
                d0 = look_up(d0, places, signs, table + 3 * row);
                a1 = look_up(a1, places, signs, table + 64);
                b1 = look_up(b1, places, signs, table + row + 64);
                c1 = look_up(c1, places, signs, table + 2 * row + 64);
                d1 = look_up(d1, places, signs, table + 3 * row + 64);
                if constexpr (planes > 2) {
                    a2 = look_up(a2, places, signs, table + 128);
                    b2 = look_up(b2, places, signs, table + row + 128);
                    c2 = look_up(c2, places, signs, table + 2 * row + 128);
                    d2 = look_up(d2, places, signs, table + 3 * row + 128);
                }
                if constexpr (planes > 3) {
                    a3 = look_up(a3, places, signs, table + 192);
                    b3 = look_up(b3, places, signs, table + row + 192);
                    c3 = look_up(c3, places, signs, table + 2 * row + 192);
                    d3 = look_up(d3, places, signs, table + 3 * row + 192);
                }
                line += 64;
                table += tile_rows * row;
            }
            products.take(0, 16 * block, a0, a1, a2, a3);
            products.take(1, 16 * block, b0, b1, b2, b3);
            products.take(2, 16 * block, c0, c1, c2, c3);
            products.take(3, 16 * block, d0, d1, d2, d3);
        }
    }
};

}  // namespace bignn::avx512
