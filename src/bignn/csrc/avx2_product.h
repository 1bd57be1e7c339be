// Way G's second half in AVX2: the product after the gather of bits, by lookup.
//
// Four inputs of a row have 16 sums u0 +- u1 +- u2 +- u3, half of them the negatives of the others:
// 8 numbers of 16 bits, computed once per row and looked up once per output. Two such groups fill
// the 16 bytes of a table for one byte of the numbers: vpshufb looks 32 of them up (16 outputs, two
// groups), vpmaddubsw adds the two with their signs. That is 128 products by three instructions,
// per byte.
//
// Numbers beyond 16 bits have digits of 14 bits, -2^13 to 2^13 - 1, which are multiplied one after
// the other. The higher byte of a number is made unsigned by adding 128; the sum of signs of each
// output makes up for it.
//
// B in memory: for every 16 outputs and every table there are 32 bytes, each with a place in the
// table (4 bits), a bit that is always set, and a sign; the sums of signs of all outputs follow.
#pragma once

#include "avx2_bits.h"

namespace bignn::avx2 {

// The order of groups: 64 positions of u hold 16 of them, group g has the positions g, 16 + g,
// 32 + g and 48 + g. Groups g and g + 1 share a table.
constexpr std::size_t tables_per_64 = 8;
static constexpr std::size_t first_group_of_table(std::size_t table) {
    return table % 2 * 8 + table / 2 * 2;
}

constexpr int number_digit_bits = 14;
constexpr std::uint64_t digit_end = std::uint64_t{1} << (number_digit_bits - 1);
// Two bytes with signs are at most 510, so that 64 such pairs add up in 16 bits.
constexpr std::size_t tables_at_once = 64;
constexpr std::size_t table_bytes = 2 * 16;  // of one row

template <class Base>
struct ProductPieces : Base {
    using typename Base::Isa;

    static constexpr std::size_t num_tables(std::size_t num_inputs) {
        return padded_inputs(num_inputs) / 64 * tables_per_64;
    }

    static std::size_t product_bytes(std::size_t num_inputs, std::size_t num_outputs) {
        return (num_outputs + 15) / 16 * (num_tables(num_inputs) * 32 + 64);
    }

    static void make_product(const word* b, std::size_t num_inputs, std::size_t num_outputs,
                             std::byte* product) {
        const std::size_t num_words = words_per_row(num_inputs);
        const std::size_t blocks = (num_outputs + 15) / 16, tables = num_tables(num_inputs);
        auto* sign_sums = reinterpret_cast<std::int32_t*>(product + blocks * tables * 32);
        for (std::size_t c = 0; c < 16 * blocks; ++c) {
            sign_sums[c] = 0;
            for (std::size_t t = 0; t < tables; ++t) {
                for (std::size_t n = 0; n < 2; ++n) {
                    const std::size_t group = first_group_of_table(t % tables_per_64) + n;
                    const auto positive = [&](std::size_t m) {
                        const std::size_t k =
                            input_at_position(t / tables_per_64 * 64 + 16 * m + group, num_inputs);
                        return c < num_outputs && k < num_inputs &&
                               (b[c * num_words + k / word_bits] >> (k % word_bits) & 1) != 0;
                    };
                    // u0's sign is the group's; the others count relative to it.
                    const bool first = positive(0);
                    std::size_t place = 8 * n + 32 + (first ? 0 : 64);
                    for (std::size_t m = 1; m < 4; ++m) {
                        if (positive(m) == first) place |= std::size_t{1} << (m - 1);
                    }
                    product[(c / 16 * tables + t) * 32 + c % 16 * 2 + n] =
                        static_cast<std::byte>(place);
                    sign_sums[c] += first ? 1 : -1;
                }
            }
        }
    }

    static std::size_t multiply_scratch_bytes(std::size_t num_inputs, std::size_t num_outputs) {
        return num_tables(num_inputs) * tile_rows * table_bytes +
               8 * tile_rows * ((num_outputs + 63) / 64 * 64);
    }

    static void multiply(std::int32_t* u, std::size_t num_rows, std::size_t num_inputs,
                         std::size_t num_outputs, const std::byte* product, std::byte* scratch,
                         float* sums, std::size_t sums_stride) {
        const std::size_t stride = Isa::u_stride(num_inputs);
        for (std::size_t k = num_rows * stride; k < tile_rows * stride; ++k) u[k] = 0;
        std::uint64_t largest = largest_of(u, tile_rows * stride);
        const std::size_t tables = num_tables(num_inputs);
        Products products{
            .fits_32_bits = num_inputs * largest < std::uint64_t{1} << 31,
            .is_first = true,
            .is_last = false,
            .shift = 0,
            .acc = reinterpret_cast<std::int64_t*>(scratch + tables * tile_rows * table_bytes),
            .sums = sums,
            .stride = sums_stride};
        for (;; products.shift += number_digit_bits) {
            const bool is_last = largest < digit_end;
            for (std::size_t r = 0; r < tile_rows; ++r) {
                is_last ? make_tables<true>(u + r * stride, stride, scratch + r * table_bytes)
                        : make_tables<false>(u + r * stride, stride, scratch + r * table_bytes);
            }
            for (std::size_t t = 0; t < tables; t += tables_at_once) {
                const std::size_t end = t + tables_at_once < tables ? t + tables_at_once : tables;
                products.is_last = is_last && end == tables;
                const bool is_only = products.is_first && products.is_last && products.fits_32_bits;
                const Tables part{scratch, tables, t, end};
                is_only ? multiply_part<true>(part, num_outputs, product, products)
                        : multiply_part<false>(part, num_outputs, product, products);
                products.is_first = false;
            }
            if (is_last) return;
            largest = (largest + digit_end) >> number_digit_bits;
        }
    }

   private:
    // The largest |u| of a tile.
    static std::uint32_t largest_of(const std::int32_t* u, std::size_t count) {
        __m256i largest = _mm256_setzero_si256();
        for (std::size_t k = 0; k < count; k += 8) {
            largest = _mm256_max_epu32(largest, _mm256_abs_epi32(load(u + k)));
        }
        const __m128i four =
            _mm_max_epu32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
        const __m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
        return static_cast<std::uint32_t>(
            _mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1))));
    }

    // The lowest digits of 16 numbers; unless they are the last, u keeps what is above them.
    template <bool is_last>
    static __m256i take_digits(std::int32_t* u) {
        const auto take = [](std::int32_t* from) {
            const __m256i all = load(from);
            if constexpr (is_last) return all;
            const __m256i half = _mm256_and_si256(_mm256_srli_epi32(all, number_digit_bits - 1),
                                                  _mm256_set1_epi32(1));
            store(from, _mm256_add_epi32(_mm256_srai_epi32(all, number_digit_bits), half));
            return _mm256_srai_epi32(_mm256_slli_epi32(all, 32 - number_digit_bits),
                                     32 - number_digit_bits);
        };
        const __m256i low = take(u), high = take(u + 8);
        return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    }

    // Makes the tables of one row, of one digit. A table has 16 low bytes, then 16 high ones; those
    // of the tile's rows follow each other.
    template <bool is_last>
    static void make_tables(std::int32_t* u, std::size_t count, std::byte* tables) {
        for (std::size_t k = 0; k < count; k += 64) {
            const __m256i u0 = _mm256_xor_si256(take_digits<is_last>(u + k),
                                                _mm256_set1_epi16(static_cast<short>(0x8000)));
            const __m256i u1 = take_digits<is_last>(u + k + 16);
            const __m256i u2 = take_digits<is_last>(u + k + 32);
            const __m256i u3 = take_digits<is_last>(u + k + 48);
            const __m256i minus = _mm256_sub_epi16(u0, u1), plus = _mm256_add_epi16(u0, u1);
            const __m256i sum = _mm256_add_epi16(u2, u3), difference = _mm256_sub_epi16(u2, u3);
            // Bit m of an entry's number: whether u_(m + 1) is added.
            const __m256i e0 = _mm256_sub_epi16(minus, sum), e1 = _mm256_sub_epi16(plus, sum);
            const __m256i e2 = _mm256_add_epi16(minus, difference);
            const __m256i e3 = _mm256_add_epi16(plus, difference);
            const __m256i e4 = _mm256_sub_epi16(minus, difference);
            const __m256i e5 = _mm256_sub_epi16(plus, difference);
            const __m256i e6 = _mm256_add_epi16(minus, sum), e7 = _mm256_add_epi16(plus, sum);
            const __m256i low = _mm256_set1_epi16(255);
            const auto lows = [&](__m256i a, __m256i b) {
                return _mm256_or_si256(_mm256_and_si256(a, low), _mm256_slli_epi16(b, 8));
            };
            const auto highs = [&](__m256i a, __m256i b) {
                return _mm256_or_si256(_mm256_srli_epi16(a, 8), _mm256_andnot_si256(low, b));
            };
            store_plane(lows(e0, e1), lows(e2, e3), lows(e4, e5), lows(e6, e7), tables);
            store_plane(highs(e0, e1), highs(e2, e3), highs(e4, e5), highs(e6, e7), tables + 16);
            tables += tables_per_64 * tile_rows * table_bytes;
        }
    }

    // Writes one byte of eight entries of 16 groups, two groups to a table.
    static void store_plane(__m256i e01, __m256i e23, __m256i e45, __m256i e67, std::byte* to) {
        const auto store_two = [](__m256i both, std::byte* tables) {
            _mm_store_si128(reinterpret_cast<__m128i*>(tables), _mm256_castsi256_si128(both));
            _mm_store_si128(reinterpret_cast<__m128i*>(tables + tile_rows * table_bytes),
                            _mm256_extracti128_si256(both, 1));
        };
        const __m256i low0123 = _mm256_unpacklo_epi16(e01, e23);
        const __m256i low4567 = _mm256_unpacklo_epi16(e45, e67);
        const __m256i high0123 = _mm256_unpackhi_epi16(e01, e23);
        const __m256i high4567 = _mm256_unpackhi_epi16(e45, e67);
        constexpr std::size_t two = 2 * tile_rows * table_bytes;
        store_two(_mm256_unpacklo_epi32(low0123, low4567), to);
        store_two(_mm256_unpackhi_epi32(low0123, low4567), to + two);
        store_two(_mm256_unpacklo_epi32(high0123, high4567), to + 2 * two);
        store_two(_mm256_unpackhi_epi32(high0123, high4567), to + 3 * two);
    }

    // Takes the products of one digit with some inputs, and makes sums of all such parts.
    struct Products {
        bool fits_32_bits, is_first, is_last;
        int shift;
        std::int64_t* acc;  // where products that need more than 32 bits are added up
        float* sums;
        std::size_t stride;

        template <bool is_only>
        void take(std::size_t row, std::size_t column, __m256i product) const {
            const std::size_t at = row * stride + column;
            if constexpr (is_only) {
                _mm256_storeu_ps(sums + at, _mm256_cvtepi32_ps(product));
                return;
            }
            if (fits_32_bits) {
                // Until the last part, sums are kept as integers in their place.
                product = _mm256_sll_epi32(product, _mm_cvtsi32_si128(shift));
                if (!is_first) product = _mm256_add_epi32(product, load(sums + at));
                if (is_last) product = _mm256_castps_si256(_mm256_cvtepi32_ps(product));
                store(sums + at, product);
                return;
            }
            alignas(32) std::int32_t products[8];
            store(products, product);
            for (std::size_t c = 0; c < 8; ++c) {
                const std::int64_t scaled = std::int64_t{products[c]} * (std::int64_t{1} << shift);
                acc[at + c] = is_first ? scaled : acc[at + c] + scaled;
                if (is_last) sums[at + c] = static_cast<float>(acc[at + c]);
            }
        }
    };

    // The sums of low and of high bytes of 16 outputs.
    struct Planes {
        __m256i low = _mm256_setzero_si256(), high = low;

        void add(const std::byte* table, __m256i places, __m256i signs) {
            const auto look_up = [&](const std::byte* from) {
                return _mm256_maddubs_epi16(_mm256_shuffle_epi8(broadcast_half(from), places),
                                            signs);
            };
            add_shorts(low, look_up(table));
            add_shorts(high, look_up(table + 16));
        }

        // low + 256 high of the first and of the last eight outputs.
        __m256i first() const {
            return joined(_mm256_castsi256_si128(low), _mm256_castsi256_si128(high));
        }
        __m256i last() const {
            return joined(_mm256_extracti128_si256(low, 1), _mm256_extracti128_si256(high, 1));
        }

       private:
        static __m256i joined(__m128i lows, __m128i highs) {
            return _mm256_add_epi32(_mm256_cvtepi16_epi32(lows),
                                    _mm256_slli_epi32(_mm256_cvtepi16_epi32(highs), 8));
        }
    };

    // Tables [begin, end) of `count`, of which there is one for each of the tile's rows.
    struct Tables {
        const std::byte* bytes;
        std::size_t count, begin, end;
    };

    // Multiplies four rows at once. Where there are fewer, the missing rows of u are zeros, and
    // their sums are not read. Digits times signs of 2^16 inputs stay below 2^31.
    template <bool is_only>
    static void multiply_part(const Tables& tables, std::size_t num_outputs,
                              const std::byte* product, const Products& products) {
        static_assert(most_inputs_of_bits * digit_end < std::uint64_t{1} << 31);
        const std::size_t blocks = (num_outputs + 15) / 16;
        const auto* sign_sums =
            reinterpret_cast<const std::int32_t*>(product + blocks * tables.count * 32);
        for (std::size_t block = 0; block < blocks; ++block) {
            const std::byte* line = product + (block * tables.count + tables.begin) * 32;
            const std::byte* table = tables.bytes + tables.begin * tile_rows * table_bytes;
            Planes a, b, c, d;
            for (std::size_t t = tables.begin; t < tables.end; ++t) {
                const __m256i places = load(line);
                const __m256i signs =
                    _mm256_sign_epi8(_mm256_set1_epi8(1), _mm256_add_epi8(places, places));
                a.add(table, places, signs);
                b.add(table + table_bytes, places, signs);
                c.add(table + 2 * table_bytes, places, signs);
                d.add(table + 3 * table_bytes, places, signs);
                line += 32;
                table += tile_rows * table_bytes;
            }
            // Each high byte was 128 too large, which is made up for once.
            const auto excess = [&](std::size_t n) {
                const std::int32_t* from = sign_sums + 16 * block + n;
                return tables.begin == 0 ? _mm256_slli_epi32(load(from), 15)
                                         : _mm256_setzero_si256();
            };
            const __m256i first = excess(0), last = excess(8);
            const auto take = [&](std::size_t r, const Planes& planes) {
                products.template take<is_only>(r, 16 * block,
                                                _mm256_sub_epi32(planes.first(), first));
                products.template take<is_only>(r, 16 * block + 8,
                                                _mm256_sub_epi32(planes.last(), last));
            };
            take(0, a), take(1, b), take(2, c), take(3, d);
        }
    }
};

}  // namespace bignn::avx2
