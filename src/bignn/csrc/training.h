// Training on bits: entries of a binary matrix are dropped at random, the rest is multiplied with
// B, and the gradient comes back. Text of each instruction set's file, like plain.h; the file says
// before what its vectors are:
//
//     floats, lanes               a vector of so many floats
//     broadcast(x)                x in every lane
//     multiply_add(a, b, c)       a b + c
//     masked_counts, to_floats    if BIGNN_HAS_MASKED_BITS; see below for what they do

// A bit of the result is 1 with probability keep / 2^keep_bits, independently of the others: the
// digits of the probability, from the lowest that is not 0, or a random bit in (digit 1) or and it
// in (digit 0). Random words are a hash of their number (SplitMix64), so that any rows can be drawn
// on any thread.
inline std::uint64_t random_word(std::uint64_t seed, std::uint64_t number) {
    std::uint64_t z = seed + (number + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

inline void draw_masks(std::uint64_t seed, std::uint32_t keep, const word* among,
                       std::size_t begin, std::size_t end, word* masks) {
    int lowest = 0;  // keep_bits when everything is kept
    while (!(keep >> lowest & 1)) ++lowest;
    // A digit at a time over a stretch of words: loops that the compiler can vectorise.
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

#ifndef BIGNN_HAS_MASKED_BITS
// 64 bits as floats: 1 or -1, and 0 where the mask is 0.
inline void to_floats(word bits, word mask, float* f) {
    for (std::size_t k = 0; k < word_bits; ++k) {
        const float sign = bits >> k & 1 ? 1.0f : -1.0f;
        f[k] = mask >> k & 1 ? sign : 0.0f;
    }
}

// counts[c] = popcount(mask & (row ^ column c)) for the 16 columns of a panel.
inline void masked_counts(const word* row, const word* mask, const half* panel,
                          std::size_t num_words, std::int32_t* counts) {
    for (std::size_t c = 0; c < panel_width; ++c) counts[c] = 0;
    for (std::size_t w = 0; w < 2 * num_words; ++w, panel += panel_width) {
        const auto bits = static_cast<half>(row[w / 2] >> (w % 2 * 32));
        const auto kept = static_cast<half>(mask[w / 2] >> (w % 2 * 32));
        for (std::size_t c = 0; c < panel_width; ++c) {
            counts[c] += __builtin_popcount(kept & (bits ^ panel[c]));
        }
    }
}
#endif

inline void masked_rows(const word* rows, const word* masks, const half* panels,
                        std::size_t begin, std::size_t end, std::size_t num_columns,
                        std::size_t num_bits, float* out) {
    const std::size_t num_words = words_per_row(num_bits);
    for (std::size_t i = begin; i < end; ++i) {
        const word* mask = masks + i * num_words;
        std::int32_t kept = 0;
        for (std::size_t w = 0; w < num_words; ++w) kept += __builtin_popcountll(mask[w]);
        for (std::size_t first = 0; first < num_columns; first += panel_width) {
            std::int32_t counts[panel_width];
            masked_counts(rows + i * num_words, mask, panels + first * 2 * num_words, num_words,
                          counts);
            const std::size_t count =
                num_columns - first < panel_width ? num_columns - first : panel_width;
            for (std::size_t c = 0; c < count; ++c) {
                out[i * num_columns + first + c] = static_cast<float>(kept - 2 * counts[c]);
            }
        }
    }
}

// --- The gradient for B ------------------------------------------------------------------------
//
// out[j][k] = sum over the rows i that keep k of g_ij F_ik: a float product whose second factor is
// made from bits as it goes, so that only some rows of it exist at a time, in the first cache.
// (Looking up subset sums of four rows by their bits takes a quarter of the additions, and as much
// time: its stores get in the way of its loads.)

constexpr std::size_t rows_at_once = 128;

inline floats load(const float* from) {
    floats values;
    __builtin_memcpy(&values, from, sizeof values);
    return values;
}

inline void store(float* to, floats values) { __builtin_memcpy(to, &values, sizeof values); }

// Four vectors of one column j: its sums over the rows of g[row][j] f[row][k].
struct ColumnSums {
    floats v0, v1, v2, v3;

    explicit ColumnSums(const float* acc)
        : v0(load(acc)),
          v1(load(acc + lanes)),
          v2(load(acc + 2 * lanes)),
          v3(load(acc + 3 * lanes)) {}

    void add(float g, floats f0, floats f1, floats f2, floats f3) {
        const floats weight = broadcast(g);
        v0 = multiply_add(weight, f0, v0);
        v1 = multiply_add(weight, f1, v1);
        v2 = multiply_add(weight, f2, v2);
        v3 = multiply_add(weight, f3, v3);
    }

    void put(float* acc) const {
        store(acc, v0), store(acc + lanes, v1), store(acc + 2 * lanes, v2);
        store(acc + 3 * lanes, v3);
    }
};

// acc[j][k] += sum over the rows of g[row][j] f[row][k], for four columns j or one, and 64 k.
template <int columns>
inline void add_products(const float* f, std::size_t num_rows, const float* g,
                         std::size_t g_stride, float* acc) {
    constexpr std::size_t b_at = (columns > 1) * word_bits, c_at = 2 * b_at, d_at = 3 * b_at;
    for (std::size_t k = 0; k < word_bits; k += 4 * lanes) {
        float* at = acc + k;
        ColumnSums a(at), b(at + b_at), c(at + c_at), d(at + d_at);
        for (std::size_t row = 0; row < num_rows; ++row) {
            const float* from = f + row * word_bits + k;
            const floats f0 = load(from), f1 = load(from + lanes), f2 = load(from + 2 * lanes),
                         f3 = load(from + 3 * lanes);
            const float* weights = g + row * g_stride;
            a.add(weights[0], f0, f1, f2, f3);
            if constexpr (columns > 1) {
                b.add(weights[1], f0, f1, f2, f3);
                c.add(weights[2], f0, f1, f2, f3);
                d.add(weights[3], f0, f1, f2, f3);
            }
        }
        a.put(at);
        if constexpr (columns > 1) {
            b.put(at + b_at);
            c.put(at + c_at);
            d.put(at + d_at);
        }
    }
}

inline void masked_gradient(const word* rows, const word* masks, std::size_t num_rows,
                            std::size_t num_bits, const float* g, std::size_t num_columns,
                            std::size_t begin, std::size_t end, float* scratch, float* out) {
    const std::size_t num_words = words_per_row(num_bits);
    alignas(64) float f[rows_at_once * word_bits];
    for (std::size_t w = begin; w < end; ++w) {
        for (std::size_t k = 0; k < num_columns * word_bits; ++k) scratch[k] = 0;
        for (std::size_t first = 0; first < num_rows; first += rows_at_once) {
            const std::size_t count =
                num_rows - first < rows_at_once ? num_rows - first : rows_at_once;
            for (std::size_t row = 0; row < count; ++row) {
                const std::size_t at = (first + row) * num_words + w;
                to_floats(rows[at], masks[at], f + row * word_bits);
            }
            const float* some = g + first * num_columns;
            std::size_t j = 0;
            for (; j + 4 <= num_columns; j += 4) {
                add_products<4>(f, count, some + j, num_columns, scratch + j * word_bits);
            }
            for (; j < num_columns; ++j) {
                add_products<1>(f, count, some + j, num_columns, scratch + j * word_bits);
            }
        }
        const std::size_t k0 = w * word_bits;
        const std::size_t valid = num_bits - k0 < word_bits ? num_bits - k0 : word_bits;
        for (std::size_t j = 0; j < num_columns; ++j) {
            for (std::size_t k = 0; k < valid; ++k) {
                out[j * num_bits + k0 + k] = scratch[j * word_bits + k];
            }
        }
    }
}

inline void keep_masked(const float* x, const word* masks, std::size_t begin, std::size_t end,
                        std::size_t num_bits, float* out) {
    const std::size_t num_words = words_per_row(num_bits);
    for (std::size_t i = begin; i < end; ++i) {
        for (std::size_t k = 0; k < num_bits; ++k) {
            const word mask = masks[i * num_words + k / word_bits];
            out[i * num_bits + k] = mask >> k % word_bits & 1 ? x[i * num_bits + k] : 0.0f;
        }
    }
}
