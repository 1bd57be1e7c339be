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
                        const word both = row[r * num_words + w / 2];
                        const __m256i bits =
                            _mm256_set1_epi32(static_cast<int>(both >> (w % 2 * 32)));
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

    static bool make_records(const word* rows, std::size_t num_rows, const Panels& panels,
                             std::byte* records) {
        // Counts beyond 16 bits would be cut off before they are compared.
        if (panels.bytes_per_column != 1 || panels.num_bits >= 32000) {
            return Base::make_records(rows, num_rows, panels, records);
        }
        const std::size_t num_words = words_per_row(panels.num_bits);
        const std::size_t num_panels = panels.stride / panel_width;
        bool fits = true;
        std::size_t i = 0;
        for (; i + 2 <= num_rows; i += 2) {
            for (std::size_t p = 0; p < num_panels; ++p) {
                const Counts<2> counts(rows + i * num_words,
                                       panels.halves + p * panel_width * 2 * num_words, num_words);
                for (std::size_t r = 0; r < 2; ++r) {
                    fits &= store_bytes(counts.low[r], counts.high[r],
                                        panels.base + p * panel_width, panels.valid[p],
                                        records + (i + r) * panels.stride + p * panel_width);
                }
            }
        }
        for (; i < num_rows; ++i) {
            for (std::size_t p = 0; p < num_panels; ++p) {
                const Counts<1> counts(rows + i * num_words,
                                       panels.halves + p * panel_width * 2 * num_words, num_words);
                fits &= store_bytes(counts.low[0], counts.high[0], panels.base + p * panel_width,
                                    panels.valid[p], records + i * panels.stride + p * panel_width);
            }
        }
        return fits;
    }

    // Sparse bits: rows of signs added up, 32 columns at a time. 127 of them fit a byte.
    static bool sparse_record(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                              std::byte* record) {
        if (table.bytes_per_column != 1 || count > 127 || table.stride % 32 != 0) {
            return Base::sparse_record(inputs, count, table, record);
        }
        for (std::size_t at = 0; at < table.stride; at += 64) {
            const bool is_whole = at + 64 <= table.stride;
            __m256i low = _mm256_setzero_si256(), high = low;
            for (std::size_t e = 0; e < count; ++e) {
                const std::int8_t* signs =
                    table.signs + static_cast<std::size_t>(inputs[e]) * table.stride + at;
                low = _mm256_add_epi8(low, load(signs));
                if (is_whole) high = _mm256_add_epi8(high, load(signs + 32));
            }
            store(record + at, low);
            if (is_whole) store(record + at + 32, high);
        }
        return true;
    }
};

}  // namespace bignn::avx2
