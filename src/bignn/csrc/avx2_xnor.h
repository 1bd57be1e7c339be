// Products of bits in AVX2. There is no vector popcount, so bits are counted by table: vpshufb
// looks up the count of each nibble, and two multiplications by 1 add the four byte counts of a
// half word.
#pragma once

#include "avx2_vectors.h"

namespace bignn::avx2 {

// Byte-wise population counts. Each byte is at most 8, so 31 of them add up within a byte.
constexpr std::size_t flush_every = 31;

static inline __m256i count_bytes(__m256i v) {
    const __m256i nibble_count =
        _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,  //
                         0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4);
    const __m256i low = _mm256_set1_epi8(0x0f);
    return _mm256_add_epi8(
        _mm256_shuffle_epi8(nibble_count, _mm256_and_si256(v, low)),
        _mm256_shuffle_epi8(nibble_count, _mm256_and_si256(_mm256_srli_epi16(v, 4), low)));
}

// The byte counts of a half word added up, per 32 bits.
static inline __m256i add_bytes(__m256i sums, __m256i bytes) {
    const __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi8(1));
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Words are read by halves, for which the type must be allowed to alias them.
using half_of_word __attribute__((may_alias)) = half;

// Half a word of a row, eight times.
static inline __m256i broadcast_bits(const word* row, std::size_t which) {
    return _mm256_set1_epi32(static_cast<int>(reinterpret_cast<const half_of_word*>(row)[which]));
}

template <class Base>
struct XnorPieces : Base {
    using typename Base::Isa;

    // The differing bits of `rows` rows and a panel's 16 columns: 8 columns per register.
    template <std::size_t rows>
    struct Counts {
        __m256i low[rows], high[rows];

        Counts(const word* row, const half* panel, std::size_t num_words) {
            const __m256i zero = _mm256_setzero_si256();
            for (std::size_t r = 0; r < rows; ++r) low[r] = high[r] = zero;
            const std::size_t num_halves = 2 * num_words;
            for (std::size_t w = 0; w < num_halves;) {
                const std::size_t stop =
                    w + flush_every < num_halves ? w + flush_every : num_halves;
                __m256i low_bytes[rows], high_bytes[rows];
                for (std::size_t r = 0; r < rows; ++r) low_bytes[r] = high_bytes[r] = zero;
                for (; w < stop; ++w) {
                    const __m256i first = load(panel + w * panel_width);
                    const __m256i second = load(panel + w * panel_width + 8);
                    for (std::size_t r = 0; r < rows; ++r) {
                        const __m256i bits = broadcast_bits(row + r * num_words, w);
                        low_bytes[r] = _mm256_add_epi8(low_bytes[r],
                                                       count_bytes(_mm256_xor_si256(bits, first)));
                        high_bytes[r] = _mm256_add_epi8(
                            high_bytes[r], count_bytes(_mm256_xor_si256(bits, second)));
                    }
                }
                for (std::size_t r = 0; r < rows; ++r) {
                    low[r] = add_bytes(low[r], low_bytes[r]);
                    high[r] = add_bytes(high[r], high_bytes[r]);
                }
            }
        }
    };

    static void count_differing(const word* row, const half* panel, std::size_t num_words,
                                std::int32_t* differing) {
        const Counts<1> counts(row, panel, num_words);
        store(differing, counts.low[0]);
        store(differing + 8, counts.high[0]);
    }

    static void xnor_rows(const word* a, const half* panels, std::size_t begin, std::size_t end,
                          std::size_t num_columns, std::size_t num_bits, std::int32_t* out) {
        const std::size_t num_words = words_per_row(num_bits);
        const __m256i all = _mm256_set1_epi32(static_cast<int>(num_bits));
        const auto multiply = [&](auto rows_at_once, std::size_t i) {
            constexpr std::size_t some = decltype(rows_at_once)::value;
            for (std::size_t j = 0; j < num_columns; j += panel_width) {
                const Counts<some> counts(a + i * num_words, panels + j * 2 * num_words, num_words);
                // Masked stores are slow on many CPUs.
                const auto put = [&](std::size_t r, std::size_t c, __m256i differing) {
                    const __m256i dots = _mm256_sub_epi32(all, _mm256_slli_epi32(differing, 1));
                    std::int32_t* to = out + (i + r) * num_columns + c;
                    if (c + 8 <= num_columns) return store(to, dots);
                    alignas(32) std::int32_t some_dots[8];
                    store(some_dots, dots);
                    for (std::size_t n = 0; c + n < num_columns; ++n) to[n] = some_dots[n];
                };
                for (std::size_t r = 0; r < some; ++r) {
                    put(r, j, counts.low[r]);
                    put(r, j + 8, counts.high[r]);
                }
            }
        };
        std::size_t i = begin;
        for (; i + 4 <= end; i += 4) multiply(Number<4>{}, i);
        for (; i < end; ++i) multiply(Number<1>{}, i);
    }

    // v = base - differing of 16 columns as signed bytes; false if one does not fit.
    static bool store_bytes(__m256i low, __m256i high, const std::int32_t* base,
                            std::uint16_t valid, std::byte* record) {
        const __m256i v0 = _mm256_sub_epi32(load(base), low);
        const __m256i v1 = _mm256_sub_epi32(load(base + 8), high);
        const __m256i shorts = _mm256_permute4x64_epi64(_mm256_packs_epi32(v0, v1), 0xd8);
        const __m128i bytes =
            _mm_packs_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(record), bytes);
        // What was cut off differs from its byte.
        const __m256i back = _mm256_cvtepi8_epi16(bytes);
        const auto same =
            static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi16(back, shorts)));
        if (same == 0xffffffff) {
            // packs_epi32 cuts off at 16 bits already; counts stay far below.
            return true;
        }
        for (std::size_t lane = 0; lane < panel_width; ++lane) {
            if ((valid >> lane & 1) && !(same >> (2 * lane) & 1)) return false;
        }
        return true;
    }

    // The same as 16 bits, which hold every count that make_records takes.
    static void store_shorts(__m256i low, __m256i high, const std::int32_t* base,
                             std::byte* record) {
        const __m256i v0 = _mm256_sub_epi32(load(base), low);
        const __m256i v1 = _mm256_sub_epi32(load(base + 8), high);
        store(record, _mm256_permute4x64_epi64(_mm256_packs_epi32(v0, v1), 0xd8));
    }

    static bool make_records(const word* rows, std::size_t num_rows, const Panels& panels,
                             std::byte* records) {
        // Counts beyond 16 bits would be cut off before they are compared.
        const std::size_t bytes = panels.bytes_per_column;
        if (bytes == 4 || panels.num_bits >= 32000) {
            return Base::make_records(rows, num_rows, panels, records);
        }
        const std::size_t num_words = words_per_row(panels.num_bits);
        const std::size_t num_panels = panels.stride / bytes / panel_width;
        bool fits = true;
        const auto make = [&](auto rows_at_once, std::size_t i) {
            constexpr std::size_t some = decltype(rows_at_once)::value;
            for (std::size_t p = 0; p < num_panels; ++p) {
                const Counts<some> counts(rows + i * num_words,
                                          panels.halves + p * panel_width * 2 * num_words,
                                          num_words);
                const std::int32_t* base = panels.base + p * panel_width;
                for (std::size_t r = 0; r < some; ++r) {
                    std::byte* record = records + (i + r) * panels.stride + p * panel_width * bytes;
                    if (bytes == 1) {
                        fits &= store_bytes(counts.low[r], counts.high[r], base, panels.valid[p],
                                            record);
                    } else {
                        store_shorts(counts.low[r], counts.high[r], base, record);
                    }
                }
            }
        };
        std::size_t i = 0;
        for (; i + 4 <= num_rows; i += 4) make(Number<4>{}, i);
        for (; i < num_rows; ++i) make(Number<1>{}, i);
        return fits;
    }

    static void add_own_rows(const word* rows, std::size_t num_rows, std::size_t num_inputs,
                             const Own& own, const float* factors, const float* row_scale,
                             const float* scale, std::size_t num_outputs, float* sums,
                             std::size_t sums_stride) {
        const std::size_t num_words = words_per_row(num_inputs);
        const __m256i all = _mm256_set1_epi32(static_cast<int>(num_inputs));
        const auto add = [&](auto rows_at_once, std::size_t i) {
            constexpr std::size_t some = decltype(rows_at_once)::value;
            for (std::size_t j = 0; j < num_outputs; j += panel_width) {
                const Counts<some> counts(rows + i * num_words, own.panels + j * 2 * num_words,
                                          num_words);
                const auto put = [&](std::size_t r, std::size_t c, __m256i differing) {
                    const __m256i valid = first_lanes(c < num_outputs ? num_outputs - c : 0);
                    const __m256 dots =
                        _mm256_cvtepi32_ps(_mm256_sub_epi32(all, _mm256_slli_epi32(differing, 1)));
                    const __m256 part =
                        _mm256_mul_ps(_mm256_mul_ps(dots, _mm256_set1_ps(factors[i + r])),
                                      _mm256_maskload_ps(own.scale + c, valid));
                    // Rows of sums have room for whole panels.
                    float* sum = sums + (i + r) * sums_stride + c;
                    const __m256 scaled = _mm256_mul_ps(
                        _mm256_mul_ps(_mm256_loadu_ps(sum), _mm256_set1_ps(row_scale[i + r])),
                        _mm256_maskload_ps(scale + c, valid));
                    _mm256_storeu_ps(sum, _mm256_add_ps(scaled, part));
                };
                for (std::size_t r = 0; r < some; ++r) {
                    put(r, j, counts.low[r]);
                    put(r, j + 8, counts.high[r]);
                }
            }
        };
        std::size_t i = 0;
        for (; i + 4 <= num_rows; i += 4) add(Number<4>{}, i);
        for (; i < num_rows; ++i) add(Number<1>{}, i);
    }

    // Sparse bits: rows of signs added up, 64 columns at a time where there are as many. 127 signs
    // fit a byte, and 32767 two.
    static constexpr std::size_t signs_of_byte = 127, signs_of_short = 32767;

    template <std::size_t width>
    static void add_signs(const std::int32_t* inputs, std::size_t count, const std::int8_t* signs,
                          std::size_t step, __m256i& low, __m256i& high) {
        low = high = _mm256_setzero_si256();
        for (std::size_t e = 0; e < count; ++e) {
            const std::int8_t* from = signs + static_cast<std::size_t>(inputs[e]) * step;
            if constexpr (width == 16) {
                low = _mm256_add_epi8(low, broadcast_half(from));
            } else {
                low = _mm256_add_epi8(low, load(from));
            }
            if constexpr (width == 64) high = _mm256_add_epi8(high, load(from + 32));
        }
    }

    template <std::size_t width>
    static bool sum_signs(const std::int32_t* inputs, std::size_t count, const std::int8_t* signs,
                          std::size_t step, std::size_t bytes_per_column, std::byte* record) {
        __m256i low, high;
        if (bytes_per_column == 1 && count <= signs_of_byte) {
            add_signs<width>(inputs, count, signs, step, low, high);
            store_signs<width>(low, high, record);
            return true;
        }
        __m256i shorts[4] = {};
        for (std::size_t e = 0; e < count; e += signs_of_byte) {
            const std::size_t some = count - e < signs_of_byte ? count - e : signs_of_byte;
            add_signs<width>(inputs + e, some, signs, step, low, high);
            const auto widen = [](__m256i& sum, __m128i bytes) {
                sum = _mm256_add_epi16(sum, _mm256_cvtepi8_epi16(bytes));
            };
            widen(shorts[0], _mm256_castsi256_si128(low));
            widen(shorts[1], _mm256_extracti128_si256(low, 1));
            widen(shorts[2], _mm256_castsi256_si128(high));
            widen(shorts[3], _mm256_extracti128_si256(high, 1));
        }
        if (bytes_per_column == 2) {
            for (std::size_t n = 0; n < width / 16; ++n) store(record + 32 * n, shorts[n]);
            return true;
        }
        // What was cut off differs from its byte.
        const auto as_bytes = [](__m256i a, __m256i b) {
            return _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8);
        };
        low = as_bytes(shorts[0], shorts[1]), high = as_bytes(shorts[2], shorts[3]);
        store_signs<width>(low, high, record);
        const auto same = [](__m256i sum, __m128i bytes) {
            return _mm256_movemask_epi8(_mm256_cmpeq_epi16(sum, _mm256_cvtepi8_epi16(bytes))) == -1;
        };
        return same(shorts[0], _mm256_castsi256_si128(low)) &&
               same(shorts[1], _mm256_extracti128_si256(low, 1)) &&
               same(shorts[2], _mm256_castsi256_si128(high)) &&
               same(shorts[3], _mm256_extracti128_si256(high, 1));
    }

    template <std::size_t width>
    static void store_signs(__m256i low, __m256i high, std::byte* record) {
        if constexpr (width == 16) {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(record), _mm256_castsi256_si128(low));
        } else {
            store(record, low);
        }
        if constexpr (width == 64) store(record + 32, high);
    }

    static bool sparse_record(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                              std::byte* record) {
        const std::size_t bytes = table.bytes_per_column, step = table.stride / bytes;
        if (bytes == 4 || count > signs_of_short) {
            return Base::sparse_record(inputs, count, table, record);
        }
        bool fits = true;
        std::size_t at = 0;
        const auto sum = [&](auto columns) {
            constexpr std::size_t width = decltype(columns)::value;
            fits &=
                sum_signs<width>(inputs, count, table.signs + at, step, bytes, record + at * bytes);
            at += width;
        };
        while (at + 64 <= step) sum(Number<64>{});
        if (at + 32 <= step) sum(Number<32>{});
        if (at < step) sum(Number<16>{});  // parts of narrow heads have 16 columns
        return fits;
    }
};

}  // namespace bignn::avx2
