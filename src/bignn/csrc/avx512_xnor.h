// XNOR products into integers and records, and records of sparse bits, in AVX-512.
#pragma once

#include "avx512_vectors.h"

namespace bignn::avx512 {

// Adds to sum how many bits of a row's half word differ from each of 16 columns'.
static inline __m512i count_differing(__m512i sum, const half_of_word* bits, __m512i columns) {
    const __m512i broadcast = _mm512_set1_epi32(static_cast<int>(*bits));
    return _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_xor_si512(broadcast, columns)));
}

// Counts differing bits of four rows against one panel at a time: a panel's half words are loaded
// once for the four, and the four chains of dependent adds hide the popcount's latency. `store`
// takes the results. The function is not inlined, and rows are addressed by steps from one pointer:
// otherwise pointers do not fit the registers, and moving them costs the loop a seventh of its
// speed.
template <class Store>
__attribute__((noinline)) static void count_rows(const word* a, std::size_t num_rows,
                                                 const half* panels, std::size_t num_panels,
                                                 std::size_t num_words, Store& store) {
    const std::size_t num_halves = 2 * num_words;
    const auto* row = reinterpret_cast<const half_of_word*>(a);
    std::size_t i = 0;
    for (; i + 4 <= num_rows; i += 4, row += 4 * num_halves) {
        const half* panel = panels;
        for (std::size_t p = 0; p < num_panels; ++p) {
            __m512i sum0 = _mm512_setzero_si512();
            __m512i sum1 = sum0;
            __m512i sum2 = sum0;
            __m512i sum3 = sum0;
            const half_of_word* end = row + num_halves;
            for (const half_of_word* at = row; at != end; ++at, panel += panel_width) {
                const __m512i columns = _mm512_loadu_si512(panel);
                sum0 = count_differing(sum0, at, columns);
                sum1 = count_differing(sum1, at + num_halves, columns);
                sum2 = count_differing(sum2, at + 2 * num_halves, columns);
                sum3 = count_differing(sum3, at + 3 * num_halves, columns);
            }
            store.begin(p);
            store.take(i, sum0);
            store.take(i + 1, sum1);
            store.take(i + 2, sum2);
            store.take(i + 3, sum3);
        }
    }
    for (; i < num_rows; ++i, row += num_halves) {
        const half* panel = panels;
        for (std::size_t p = 0; p < num_panels; ++p) {
            __m512i sum = _mm512_setzero_si512();
            for (std::size_t w = 0; w < num_halves; ++w, panel += panel_width) {
                sum = count_differing(sum, row + w, _mm512_loadu_si512(panel));
            }
            store.begin(p);
            store.take(i, sum);
        }
    }
}

// Counts, for each of 64 columns, the inputs whose word has its bit. The addition is assembly,
// since GCC 12 copies the sum around the intrinsic.
[[gnu::always_inline]] static inline __m512i count_positive(const std::int32_t* inputs,
                                                            std::size_t count, const word* words,
                                                            std::size_t step) {
    const __m512i one = _mm512_set1_epi8(1);
    const auto add = [&](__m512i& sum, std::size_t e) __attribute__((always_inline)) {
        const auto* at =
            words + static_cast<std::size_t>(static_cast<std::uint32_t>(inputs[e])) * step;
        __mmask64 mask;
        asm("kmovq %2, %1\n\tvpaddb %3, %0, %0 %{%1%}"
            : "+v"(sum), "=&Yk"(mask)
            : "m"(*at), "v"(one));
    };
    __m512i even = _mm512_setzero_si512(), odd = even;
    std::size_t e = 0;
    for (; e + 2 <= count; e += 2) add(even, e), add(odd, e + 1);
    if (e < count) add(even, e);
    return _mm512_add_epi8(even, odd);
}

template <class Base>
struct XnorPieces : Base {
    static void xnor_rows(const word* a, const half* panels, std::size_t begin, std::size_t end,
                          std::size_t num_columns, std::size_t num_bits, std::int32_t* out) {
        const std::size_t num_words = words_per_row(num_bits);
        StoreDots store(out + begin * num_columns, num_columns, num_bits);
        count_rows(a + begin * num_words, end - begin, panels,
                   (num_columns + panel_width - 1) / panel_width, num_words, store);
    }

    static void add_own_rows(const word* rows, std::size_t num_rows, std::size_t num_inputs,
                             const Own& own, const float* factors, const float* row_scale,
                             const float* scale, std::size_t num_outputs, float* sums,
                             std::size_t sums_stride) {
        StoreOwn store(own, factors, row_scale, scale, num_outputs, num_inputs, sums, sums_stride);
        count_rows(rows, num_rows, own.panels, (num_outputs + panel_width - 1) / panel_width,
                   words_per_row(num_inputs), store);
    }

    static bool make_records(const word* rows, std::size_t num_rows, const Panels& panels,
                             std::byte* records) {
        if (panels.bytes_per_column == 1) {
            return make_records_of<1>(rows, num_rows, panels, records);
        }
        if (panels.bytes_per_column == 2) {
            return make_records_of<2>(rows, num_rows, panels, records);
        }
        return Base::make_records(rows, num_rows, panels, records);
    }

    // Adds 64 columns at a time in bytes. 126 inputs cannot overflow a byte, and are counted by
    // bits, an eighth of the table's bytes: v = 2 positive - count. Longer rows are added up in 16
    // bits after every 126 inputs.
    static bool sparse_record(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                              std::byte* record) {
        if (table.positive && count <= 126) {
            const std::size_t lines = table.stride / 64;
            for (std::size_t line = 0; line < lines; ++line) {
                const word* positive = table.positive + line;
                const __m512i sum = lines == 1 ? count_positive(inputs, count, positive, 1)
                                               : count_positive(inputs, count, positive, lines);
                _mm512_storeu_si512(record + 64 * line,
                                    _mm512_sub_epi8(_mm512_add_epi8(sum, sum),
                                                    _mm512_set1_epi8(static_cast<char>(count))));
            }
            return true;
        }
        if (table.bytes_per_column != 1 || table.stride % 64 != 0 || count >= 32767) {
            return Base::sparse_record(inputs, count, table, record);
        }
        bool fits = true;
        for (std::size_t at = 0; at < table.stride; at += 64) {
            const std::int8_t* signs = table.signs + at;
            const auto row = [&](std::size_t e) {
                return signs + static_cast<std::size_t>(inputs[e]) * table.stride;
            };
            __m512i low = _mm512_setzero_si512();  // columns 0..31 of the 64, in 16 bits
            __m512i high = low;
            __m512i even = low;
            __m512i odd = low;
            for (std::size_t e = 0; e < count;) {
                const std::size_t stop = e + 126 < count ? e + 126 : count;
                even = _mm512_setzero_si512();
                odd = even;
                for (; e + 2 <= stop; e += 2) {
                    even = _mm512_add_epi8(even, _mm512_loadu_si512(row(e)));
                    odd = _mm512_add_epi8(odd, _mm512_loadu_si512(row(e + 1)));
                }
                if (e < stop) even = _mm512_add_epi8(even, _mm512_loadu_si512(row(e++)));
                even = _mm512_add_epi8(even, odd);
                if (count <= 126) break;
                low = _mm512_add_epi16(low, _mm512_cvtepi8_epi16(_mm512_castsi512_si256(even)));
                high = _mm512_add_epi16(high,
                                        _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(even, 1)));
            }
            if (count > 126) {
                even = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(low)),
                                          _mm512_cvtepi16_epi8(high), 1);
                const __m512i low_again = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(even));
                const __m512i high_again = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(even, 1));
                fits = fits && _mm512_cmpneq_epi16_mask(low, low_again) == 0 &&
                       _mm512_cmpneq_epi16_mask(high, high_again) == 0;
            }
            _mm512_storeu_si512(record + at, even);
        }
        return fits;
    }

   private:
    // Writes dots as integers.
    class StoreDots {
       public:
        StoreDots(std::int32_t* out, std::size_t num_columns, std::size_t num_bits)
            : out_(out), num_columns_(num_columns), num_bits_(static_cast<int>(num_bits)) {}

        void begin(std::size_t panel) {
            column_ = panel * panel_width;
            valid_ = first_lanes(num_columns_ - column_);
        }

        void take(std::size_t row, __m512i differing) {
            const __m512i dots =
                _mm512_sub_epi32(_mm512_set1_epi32(num_bits_), _mm512_slli_epi32(differing, 1));
            _mm512_mask_storeu_epi32(out_ + row * num_columns_ + column_, valid_, dots);
        }

       private:
        std::int32_t* out_;
        std::size_t num_columns_;
        int num_bits_;
        std::size_t column_ = 0;
        __mmask16 valid_ = 0;
    };

    // Adds a panel's dots to rows' sums, while they are in registers.
    class StoreOwn {
       public:
        StoreOwn(const Own& own, const float* factors, const float* row_scale, const float* scale,
                 std::size_t num_columns, std::size_t num_bits, float* sums, std::size_t stride)
            : own_(own),
              factors_(factors),
              row_scale_(row_scale),
              scale_(scale),
              sums_(sums),
              num_columns_(num_columns),
              stride_(stride),
              bits_(_mm512_set1_epi32(static_cast<int>(num_bits))) {}

        void begin(std::size_t panel) {
            column_ = panel * panel_width;
            valid_ = first_lanes(num_columns_ - column_);
            own_scales_ = _mm512_maskz_loadu_ps(valid_, own_.scale + column_);
            scales_ = _mm512_maskz_loadu_ps(valid_, scale_ + column_);
        }

        void take(std::size_t row, __m512i differing) {
            const __m512 dots =
                _mm512_cvtepi32_ps(_mm512_sub_epi32(bits_, _mm512_slli_epi32(differing, 1)));
            const __m512 own =
                _mm512_mul_ps(_mm512_mul_ps(dots, _mm512_set1_ps(factors_[row])), own_scales_);
            // Rows of sums are padded: whole registers may be read and written.
            float* sums = sums_ + row * stride_ + column_;
            const __m512 others = _mm512_mul_ps(
                _mm512_mul_ps(_mm512_loadu_ps(sums), _mm512_set1_ps(row_scale_[row])), scales_);
            _mm512_storeu_ps(sums, _mm512_add_ps(others, own));
        }

       private:
        const Own& own_;
        const float *factors_, *row_scale_, *scale_;
        float* sums_;
        std::size_t num_columns_, stride_, column_ = 0;
        __mmask16 valid_ = 0;
        __m512i bits_;
        __m512 own_scales_ = _mm512_setzero_ps(), scales_ = _mm512_setzero_ps();
    };

    // Writes records of one or two bytes per column. `high_` collects the bits of v - lowest, to
    // see whether there are any that a record has no room for.
    template <std::size_t bytes_per_column>
    class StoreRecords {
       public:
        StoreRecords(const Panels& panels, std::byte* records)
            : panels_(panels), records_(records) {}

        void begin(std::size_t panel) {
            position_ = panel * panel_width;
            base_ = _mm512_loadu_si512(panels_.base + position_);
            valid_ = panels_.valid[panel];
        }

        void take(std::size_t row, __m512i differing) {
            const __m512i v = _mm512_sub_epi32(base_, differing);
            const __m512i lowest = _mm512_set1_epi32(bytes_per_column == 1 ? 128 : 32768);
            high_ = _mm512_mask_or_epi32(high_, valid_, high_, _mm512_add_epi32(v, lowest));
            std::byte* to = records_ + row * panels_.stride + position_ * bytes_per_column;
            if (bytes_per_column == 1) {
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(v));
            } else {
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(v));
            }
        }

        bool fits() const {
            const __m512i room = _mm512_set1_epi32(bytes_per_column == 1 ? ~0xff : ~0xffff);
            return _mm512_test_epi32_mask(high_, room) == 0;
        }

       private:
        const Panels& panels_;
        std::byte* records_;
        std::size_t position_ = 0;
        __m512i base_ = _mm512_setzero_si512();
        __mmask16 valid_ = 0;
        __m512i high_ = _mm512_setzero_si512();
    };

    template <std::size_t bytes_per_column>
    static bool make_records_of(const word* rows, std::size_t num_rows, const Panels& panels,
                                std::byte* records) {
        StoreRecords<bytes_per_column> store(panels, records);
        count_rows(rows, num_rows, panels.halves, panels.stride / bytes_per_column / panel_width,
                   words_per_row(panels.num_bits), store);
        return store.fits();
    }
};

}  // namespace bignn::avx512
