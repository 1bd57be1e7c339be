// Training on bits: entries of a binary matrix are dropped at random, the rest is multiplied with
// B, and the gradient comes back.
#pragma once

#include "isa.h"
#include "random.h"

namespace bignn {

// See isa.h for what Isa is.
template <class Isa>
struct Training {
    // Draws bits that are 1 with probability keep / 2^keep_bits, independently of each other. Of
    // the probability's binary digits, from the lowest that is not 0 upwards, each combines the
    // result with a random bit: digit 1 by OR, digit 0 by AND.
    static void draw_masks(std::uint64_t seed, std::uint32_t keep, const word* among,
                           std::size_t begin, std::size_t end, word* masks) {
        int lowest = 0;  // keep_bits when everything is kept
        while (!(keep >> lowest & 1)) ++lowest;
        // One digit at a time over a stretch of words: the compiler vectorises such loops.
        constexpr std::size_t stretch = 64;
        for (std::size_t at = begin; at < end; at += stretch) {
            const std::size_t count = end - at < stretch ? end - at : stretch;
            word kept[stretch];
            for (std::size_t i = 0; i < stretch; ++i) kept[i] = keep >> keep_bits ? ~word{0} : 0;
            for (int digit = lowest; digit < keep_bits; ++digit) {
                const word any = keep >> digit & 1 ? ~word{0} : word{0};
                const std::uint64_t first = at * keep_bits + static_cast<std::uint64_t>(digit);
                for (std::size_t i = 0; i < stretch; ++i) {
                    const word draw = random_word(seed, first + i * keep_bits);
                    kept[i] = (kept[i] & draw) | (any & (kept[i] | draw));
                }
            }
            for (std::size_t i = 0; i < count; ++i) masks[at + i] = kept[i] & among[at + i];
        }
    }

    static void masked_rows(const word* rows, const word* masks, const half* panels,
                            std::size_t begin, std::size_t end, std::size_t num_columns,
                            std::size_t num_bits, float* out) {
        const std::size_t num_words = words_per_row(num_bits);
        for (std::size_t i = begin; i < end; ++i) {
            const word* mask = masks + i * num_words;
            std::int32_t kept = 0;
            for (std::size_t w = 0; w < num_words; ++w) kept += __builtin_popcountll(mask[w]);
            for (std::size_t first = 0; first < num_columns; first += panel_width) {
                std::int32_t counts[panel_width];
                Isa::masked_counts(rows + i * num_words, mask, panels + first * 2 * num_words,
                                   num_words, counts);
                const std::size_t count =
                    num_columns - first < panel_width ? num_columns - first : panel_width;
                for (std::size_t c = 0; c < count; ++c) {
                    out[i * num_columns + first + c] = static_cast<float>(kept - 2 * counts[c]);
                }
            }
        }
    }

    // --- The gradient of B ---------------------------------------------------------------------
    //
    // out[j][k] = sum over the rows i that keep k of g_ij F_ik, which is 2 (the sum where F is +1)
    // less the sum of all that are kept. Sums over sets of rows are looked up: four rows of g have
    // 16 sums of subsets, eight such groups are 32 rows, whose tables fit the first cache, and the
    // 32 bits of a column k are eight places in them. The sums of a column stay in registers
    // meanwhile. That takes a quarter of the additions of a float product, and no stores.

    static constexpr std::size_t lanes = Isa::lanes;
    using floats = typename Isa::floats;
    static constexpr std::size_t block_rows = 32;
    static constexpr std::size_t columns_at_once = 4 * lanes;  // of g
    static_assert(columns_at_once * word_bits <= gradient_floats_per_word);

    static floats load(const float* from) {
        floats values;
        __builtin_memcpy(&values, from, sizeof values);
        return values;
    }

    static void store(float* to, floats values) { __builtin_memcpy(to, &values, sizeof values); }

    // Sums in four vectors.
    struct Sums {
        floats v0 = Isa::broadcast(0), v1 = v0, v2 = v0, v3 = v0;

        void add(const float* from) {
            v0 += load(from), v1 += load(from + lanes);
            v2 += load(from + 2 * lanes), v3 += load(from + 3 * lanes);
        }
    };

    // tables[group][i]: the sum of the rows of g, out of four, whose bit in i is set.
    static void make_tables(const float* g, std::size_t num_rows, std::size_t num_columns,
                            std::size_t first_column, float* tables) {
        const std::size_t some = num_columns - first_column;
        const std::size_t taken = some < columns_at_once ? some : columns_at_once;
        for (std::size_t group = 0; group < block_rows / 4; ++group) {
            float* table = tables + group * 16 * columns_at_once;
            for (std::size_t c = 0; c < columns_at_once; ++c) table[c] = 0;
            for (std::size_t m = 0; m < 4; ++m) {
                float row[columns_at_once] = {};
                if (4 * group + m < num_rows) {
                    const float* from = g + (4 * group + m) * num_columns + first_column;
                    for (std::size_t c = 0; c < taken; ++c) row[c] = from[c];
                }
                const std::size_t half_of_it = std::size_t{1} << m;
                for (std::size_t i = 0; i < half_of_it; ++i) {
                    const float* before = table + i * columns_at_once;
                    float* after = table + (half_of_it + i) * columns_at_once;
                    for (std::size_t c = 0; c < columns_at_once; ++c) after[c] = before[c] + row[c];
                }
            }
        }
    }

    // Transposes bits: bit i of word k becomes bit k of word i, in each half of 32 words.
    static void transpose(word* words) {
        const auto swap = [&](auto distance, word lower) {
            constexpr std::size_t d = decltype(distance)::value;
            for (std::size_t first = 0; first < block_rows; first += 2 * d) {
                for (std::size_t k = first; k < first + d; ++k) {
                    const word differing = ((words[k] >> d) ^ words[k + d]) & lower;
                    words[k + d] ^= differing;
                    words[k] ^= differing << d;
                }
            }
        };
        swap(Number<16>{}, 0x0000ffff0000ffff);
        swap(Number<8>{}, 0x00ff00ff00ff00ff);
        swap(Number<4>{}, 0x0f0f0f0f0f0f0f0f);
        swap(Number<2>{}, 0x3333333333333333);
        swap(Number<1>{}, 0x5555555555555555);
    }

    // acc += 2 * (sum of the positive rows) - (sum of the kept rows). Bit i stands for row i of 32.
    static void add_rows(const float* tables, std::uint32_t kept, std::uint32_t positive,
                         float* acc) {
        constexpr std::size_t groups = block_rows / 4;
        const auto place = [&](std::uint32_t bits, std::size_t n) {
            return tables + (16 * n + (bits >> 4 * n & 15)) * columns_at_once;
        };
        Sums all, some;
        for (std::size_t n = 0; n < groups; ++n) all.add(place(kept, n));
        if (__builtin_popcount(positive) > 4) {
            for (std::size_t n = 0; n < groups; ++n) some.add(place(positive, n));
        } else {  // in bags of words, few groups have any
            while (positive) {
                const auto n = static_cast<std::size_t>(__builtin_ctz(positive)) / 4;
                some.add(place(positive, n));
                positive &= ~(std::uint32_t{15} << 4 * n);
            }
        }
        const floats two = Isa::broadcast(2);
        store(acc, load(acc) + (two * some.v0 - all.v0));
        store(acc + lanes, load(acc + lanes) + (two * some.v1 - all.v1));
        store(acc + 2 * lanes, load(acc + 2 * lanes) + (two * some.v2 - all.v2));
        store(acc + 3 * lanes, load(acc + 3 * lanes) + (two * some.v3 - all.v3));
    }

    static void masked_gradient(const word* rows, const word* masks, std::size_t num_rows,
                                std::size_t num_bits, const float* g, std::size_t num_columns,
                                std::size_t begin, std::size_t end, float* acc, float* out) {
        const std::size_t num_words = words_per_row(num_bits);
        alignas(64) float tables[block_rows / 4 * 16 * columns_at_once];
        for (std::size_t column = 0; column < num_columns; column += columns_at_once) {
            for (std::size_t k = 0; k < (end - begin) * word_bits * columns_at_once; ++k)
                acc[k] = 0;
            for (std::size_t first = 0; first < num_rows; first += block_rows) {
                const std::size_t count =
                    num_rows - first < block_rows ? num_rows - first : block_rows;
                make_tables(g + first * num_columns, count, num_columns, column, tables);
                for (std::size_t w = begin; w < end; ++w) {
                    word kept[block_rows] = {}, positive[block_rows] = {};
                    for (std::size_t i = 0; i < count; ++i) {
                        const std::size_t at = (first + i) * num_words + w;
                        kept[i] = masks[at];
                        positive[i] = masks[at] & rows[at];
                    }
                    transpose(kept);
                    transpose(positive);
                    float* to = acc + (w - begin) * word_bits * columns_at_once;
                    for (std::size_t k = 0; k < block_rows; ++k) {
                        add_rows(tables, static_cast<std::uint32_t>(kept[k]),
                                 static_cast<std::uint32_t>(positive[k]), to + k * columns_at_once);
                        add_rows(tables, static_cast<std::uint32_t>(kept[k] >> 32),
                                 static_cast<std::uint32_t>(positive[k] >> 32),
                                 to + (block_rows + k) * columns_at_once);
                    }
                }
            }
            const std::size_t last = end * word_bits < num_bits ? end * word_bits : num_bits;
            const std::size_t some = num_columns - column;
            for (std::size_t c = 0; c < (some < columns_at_once ? some : columns_at_once); ++c) {
                for (std::size_t k = begin * word_bits; k < last; ++k) {
                    out[(column + c) * num_bits + k] =
                        acc[(k - begin * word_bits) * columns_at_once + c];
                }
            }
        }
    }

    static void keep_masked(const float* x, const word* masks, std::size_t begin, std::size_t end,
                            std::size_t num_bits, float* out) {
        const std::size_t num_words = words_per_row(num_bits);
        for (std::size_t i = begin; i < end; ++i) {
            Isa::keep_row(x + i * num_bits, masks + i * num_words, num_bits, out + i * num_bits);
        }
    }
};

}  // namespace bignn
