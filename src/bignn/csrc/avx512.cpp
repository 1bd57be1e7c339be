// AVX-512 as on Ice Lake and Zen 4 and later: VPOPCNTDQ counts the bits of eight words in one
// instruction, VNNI (vpdpbusd) multiplies and adds 64 bytes in one, VBMI (vpermb) looks 64 bytes up
// in one.
//
// Called after dispatch.cpp has asked the CPU. Sums are named variables throughout, since GCC 12
// spills arrays of them.
#include "kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace bignn {
namespace {

namespace plain {
#include "plain.h"
}

using plain::floor_log2;
using plain::power_of_two;
using plain::RowWeights;

template <int number>
struct Number {
    static constexpr int value = number;
};

inline __mmask16 first_lanes(std::size_t count) {
    return static_cast<__mmask16>(count >= 16 ? 0xffff : (1u << count) - 1);
}

void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits,
                            word* words) {
    const __m512 zero = _mm512_setzero_ps();
    for (std::size_t i = 0; i < num_rows; ++i) {
        for (std::size_t k = 0; k < num_bits; k += word_bits) {
            word packed = 0;
            for (std::size_t bit = 0; bit < word_bits && k + bit < num_bits; bit += 16) {
                const __mmask16 valid = first_lanes(num_bits - k - bit);
                const __m512 values = _mm512_maskz_loadu_ps(valid, x + k + bit);
                packed |= static_cast<word>(_mm512_mask_cmp_ps_mask(valid, values, zero,
                                                                    _CMP_GE_OQ))
                          << bit;
            }
            *words++ = packed;
        }
        x += num_bits;
    }
}

// --- XNOR products -----------------------------------------------------------------------------

// Words are read by halves, which only a type that may alias them is allowed to.
using half_of_word __attribute__((may_alias)) = half;

inline __m512i count_differing(__m512i sum, const half_of_word* bits, __m512i columns) {
    const __m512i broadcast = _mm512_set1_epi32(static_cast<int>(*bits));
    return _mm512_add_epi32(sum, _mm512_popcnt_epi32(_mm512_xor_si512(broadcast, columns)));
}

// Four rows against one panel: a panel's half words are loaded once for the four, and the four
// chains of dependent adds hide the popcount's latency. `store` takes the results. Not inlined, and
// rows addressed by steps from one pointer: otherwise pointers do not fit the registers, and moving
// them costs the loop a seventh of its speed.
template <class Store>
__attribute__((noinline)) void count_rows(const word* a, std::size_t num_rows, const half* panels,
                                          std::size_t num_panels, std::size_t num_words,
                                          Store& store) {
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

void xnor_rows(const word* a, const half* panels, std::size_t begin, std::size_t end,
               std::size_t num_columns, std::size_t num_bits, std::int32_t* out) {
    const std::size_t num_words = words_per_row(num_bits);
    StoreDots store(out + begin * num_columns, num_columns, num_bits);
    count_rows(a + begin * num_words, end - begin, panels,
               (num_columns + panel_width - 1) / panel_width, num_words, store);
}

// Records of one or two bytes per column. `high_` collects the bits of v - lowest that a record
// has no room for.
template <std::size_t width>
class StoreRecords {
   public:
    StoreRecords(const Panels& panels, std::byte* records) : panels_(panels), records_(records) {}

    void begin(std::size_t panel) {
        position_ = panel * panel_width;
        base_ = _mm512_loadu_si512(panels_.base + position_);
        valid_ = panels_.valid[panel];
    }

    void take(std::size_t row, __m512i differing) {
        const __m512i v = _mm512_sub_epi32(base_, differing);
        const __m512i lowest = _mm512_set1_epi32(width == 1 ? 128 : 32768);
        high_ = _mm512_mask_or_epi32(high_, valid_, high_, _mm512_add_epi32(v, lowest));
        std::byte* to = records_ + row * panels_.stride + position_ * width;
        if (width == 1) {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(v));
        } else {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi32_epi16(v));
        }
    }

    bool fits() const {
        const __m512i room = _mm512_set1_epi32(width == 1 ? ~0xff : ~0xffff);
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

template <std::size_t width>
inline bool make_records_of(const word* rows, std::size_t num_rows, const Panels& panels,
                            std::byte* records) {
    StoreRecords<width> store(panels, records);
    count_rows(rows, num_rows, panels.halves, panels.stride / width / panel_width,
               words_per_row(panels.num_bits), store);
    return store.fits();
}

inline bool make_records(const word* rows, std::size_t num_rows, const Panels& panels,
                                      std::byte* records) {
    if (panels.width == 1) return make_records_of<1>(rows, num_rows, panels, records);
    if (panels.width == 2) return make_records_of<2>(rows, num_rows, panels, records);
    return plain::make_records(rows, num_rows, panels, records);
}

// --- Sparse bits -------------------------------------------------------------------------------

// 64 columns at a time in bytes; 127 inputs cannot overflow one, so longer rows pass through
// 16 bits every 127 inputs.
inline bool sparse_record(const std::int32_t* inputs, std::size_t count,
                                       const SignTable& table, std::byte* record) {
    if (table.width != 1 || table.stride % 64 != 0 || count >= 32767) {
        return plain::sparse_record(inputs, count, table, record);
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
            high = _mm512_add_epi16(high, _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64(even, 1)));
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

// Of two operands, the minimum is the second where the first is not a number.
inline __m512 bounded(__m512 weights) {
    return _mm512_min_ps(weights, _mm512_set1_ps(largest_weight));
}

// --- Weights and places ------------------------------------------------------------------------

inline void weigh(const std::int32_t* ids, const float* weights, std::size_t count,
                  const float* factor, float* x) {
    for (std::size_t e = 0; e < count; e += 16) {
        const __mmask16 valid = first_lanes(count - e);
        const __m512i from = _mm512_maskz_loadu_epi32(valid, ids + e);
        __m512 values =
            _mm512_mask_i32gather_ps(_mm512_setzero_ps(), valid, from, factor, sizeof(float));
        if (weights) {
            values = bounded(_mm512_mul_ps(values, _mm512_maskz_loadu_ps(valid, weights + e)));
        }
        _mm512_storeu_ps(x + e, values);
    }
}

inline void weigh(const std::int64_t* ids, const float* weights, std::size_t count,
                  const float* factor, float* x) {
    plain::weigh(ids, weights, count, factor, x);
}

inline float largest(const float* x, std::size_t count) {
    __m512 most = _mm512_setzero_ps();
    for (std::size_t e = 0; e < count; e += 16) {
        most = _mm512_max_ps(most, _mm512_maskz_loadu_ps(first_lanes(count - e), x + e));
    }
    return _mm512_reduce_max_ps(most);
}

inline void point(const std::int32_t* ids, std::size_t count, const std::byte* data,
                  std::size_t stride, const std::byte** rows) {
    const __m512i start = _mm512_set1_epi64(reinterpret_cast<long long>(data));
    const __m512i step = _mm512_set1_epi64(static_cast<long long>(stride));
    for (std::size_t e = 0; e < count; e += 16) {
        const __m512i some = _mm512_maskz_loadu_epi32(first_lanes(count - e), ids + e);
        const __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(some));
        const __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(some, 1));
        // Ids and strides are below 2^32: one multiplication each.
        _mm512_storeu_si512(rows + e, _mm512_add_epi64(start, _mm512_mul_epu32(low, step)));
        _mm512_storeu_si512(rows + e + 8, _mm512_add_epi64(start, _mm512_mul_epu32(high, step)));
    }
}

inline void point(const std::int64_t* ids, std::size_t count, const std::byte* data,
                  std::size_t stride, const std::byte** rows) {
    plain::point(ids, count, data, stride, rows);
}

inline std::uint32_t quantize(const float* x, std::size_t count, float two_to_e,
                                           std::uint32_t limit, std::uint32_t* q) {
    __m512i total = _mm512_setzero_si512();
    for (std::size_t e = 0; e < count; e += 16) {
        const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(first_lanes(count - e), x + e),
                                            _mm512_set1_ps(two_to_e));
        const __m512i rounded = _mm512_min_epu32(_mm512_cvtps_epi32(scaled),
                                                 _mm512_set1_epi32(static_cast<int>(limit)));
        _mm512_storeu_si512(q + e, rounded);
        total = _mm512_add_epi32(total, rounded);
    }
    return static_cast<std::uint32_t>(_mm512_reduce_add_epi32(total));
}

// The largest of each of four vectors' lanes.
inline __m128 largest_of_each(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512 all =
        _mm512_max_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
    const __m256 half_of_it =
        _mm256_max_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    return _mm_max_ps(_mm256_castps256_ps128(half_of_it), _mm256_extractf128_ps(half_of_it, 1));
}

// The sum of each of four vectors' lanes.
inline __m128i total_of_each(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    const __m512i all =
        _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    const __m256i half_of_it =
        _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half_of_it),
                         _mm256_extracti128_si256(half_of_it, 1));
}

// What RowWeights does, for four rows at once. `few` neighbours never cost a weight any bits.
inline void weigh_tile(const float* x, const std::int64_t* offsets, const float* target_factor,
                       std::uint32_t* q, std::uint32_t* totals, float* row_scale) {
    static_assert(tile_rows == 4 && few == 16 && few < std::size_t{1} << (total_bits - weight_bits));
    const auto row = [&](std::size_t r) {
        return _mm512_maskz_loadu_ps(
            first_lanes(static_cast<std::size_t>(offsets[r + 1] - offsets[r])),
            x + (offsets[r] - offsets[0]));
    };
    const __m512 x0 = row(0), x1 = row(1), x2 = row(2), x3 = row(3);
    const __m128 most = largest_of_each(x0, x1, x2, x3);
    const __mmask8 any = _mm_cmp_ps_mask(most, _mm_set1_ps(smallest_weight), _CMP_GE_OQ);
    // e = weight_bits - 1 - floor(log2(most)), and 2^e from its exponent field.
    const __m128i field = _mm_srli_epi32(_mm_castps_si128(most), 23);
    const __m128i e =
        _mm_maskz_sub_epi32(any, _mm_set1_epi32(weight_bits - 1 + 127), field);
    const __m128i bias = _mm_set1_epi32(127);
    const __m128 up = _mm_castsi128_ps(
        _mm_maskz_slli_epi32(any, _mm_add_epi32(bias, e), 23));
    const __m128 down = _mm_castsi128_ps(_mm_slli_epi32(_mm_sub_epi32(bias, e), 23));
    _mm_storeu_ps(row_scale, _mm_mul_ps(_mm_loadu_ps(target_factor), down));
    const auto weights = [&](__m512 values, __m128 power) {
        return _mm512_min_epu32(
            _mm512_cvtps_epi32(_mm512_mul_ps(values, _mm512_broadcastss_ps(power))),
            _mm512_set1_epi32((1 << weight_bits) - 1));
    };
    const __m512i q0 = weights(x0, up);
    const __m512i q1 = weights(x1, _mm_permute_ps(up, 0x55));
    const __m512i q2 = weights(x2, _mm_permute_ps(up, 0xaa));
    const __m512i q3 = weights(x3, _mm_permute_ps(up, 0xff));
    _mm512_storeu_si512(q, q0);
    _mm512_storeu_si512(q + few, q1);
    _mm512_storeu_si512(q + 2 * few, q2);
    _mm512_storeu_si512(q + 3 * few, q3);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(totals), total_of_each(q0, q1, q2, q3));
}

// --- Gather of records -------------------------------------------------------------------------
//
// Weights are split into digits (three of 8 bits against byte records, two of 10 against 16-bit
// ones), whose sums are kept apart and put together at the end of the row:
//     sum_e q_e v_e = s0 + 2^b s1 + 2^2b s2.
// |s| <= chunk * 4 * 255 * 128 < 2^31 for bytes; 16-bit records are flushed every 64 neighbours,
// 64 * 1023 * 32768 < 2^31.

constexpr std::size_t flush16 = 64;

template <int bits>
inline __m512i together(__m256i s0, __m256i s1, __m256i s2) {
    const __m512i high = _mm512_add_epi64(_mm512_slli_epi64(_mm512_cvtepi32_epi64(s2), bits),
                                          _mm512_cvtepi32_epi64(s1));
    return _mm512_add_epi64(_mm512_slli_epi64(high, bits), _mm512_cvtepi32_epi64(s0));
}

// Where sums of 16 columns go. To floats, when all fits in 32 bits:
struct NarrowSums {
    const std::int32_t* center;
    float* sums;
    std::int32_t total;

    template <int bits>
    inline void take(std::size_t c, __m512i s0, __m512i s1, __m512i s2) const {
        const __m512i high = _mm512_add_epi32(_mm512_slli_epi32(s2, bits), s1);
        const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(high, bits), s0);
        const __m512i centered = _mm512_mullo_epi32(_mm512_loadu_si512(center + c),
                                                    _mm512_set1_epi32(total));
        const __m512i twice = _mm512_add_epi32(centered, _mm512_slli_epi32(sum, 1));
        _mm512_storeu_ps(sums + c, _mm512_cvtepi32_ps(twice));
    }
};

inline void store_wide(const std::int32_t* center, std::int64_t total, __m512i sum,
                                    float* sums) {
    const __m512i centers =
        _mm512_cvtepi32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(center)));
    const __m512i centered = _mm512_mullo_epi64(centers, _mm512_set1_epi64(total));
    _mm256_storeu_ps(sums, _mm512_cvtepi64_ps(
                               _mm512_add_epi64(centered, _mm512_slli_epi64(sum, 1))));
}

// To floats in general:
struct WideSums {
    const std::int32_t* center;
    float* sums;
    std::int64_t total;

    template <int bits>
    inline void take(std::size_t c, __m512i s0, __m512i s1, __m512i s2) const {
        store_wide(center + c, total,
                   together<bits>(_mm512_castsi512_si256(s0), _mm512_castsi512_si256(s1),
                                  _mm512_castsi512_si256(s2)),
                   sums + c);
        store_wide(center + c + 8, total,
                   together<bits>(_mm512_extracti64x4_epi64(s0, 1),
                                  _mm512_extracti64x4_epi64(s1, 1),
                                  _mm512_extracti64x4_epi64(s2, 1)),
                   sums + c + 8);
    }
};

// Onto what earlier chunks of a long row summed up:
struct MoreSums {
    std::int64_t* acc;

    template <int bits>
    inline void take(std::size_t c, __m512i s0, __m512i s1, __m512i s2) const {
        const __m512i low =
            together<bits>(_mm512_castsi512_si256(s0), _mm512_castsi512_si256(s1),
                           _mm512_castsi512_si256(s2));
        const __m512i high = together<bits>(_mm512_extracti64x4_epi64(s0, 1),
                                            _mm512_extracti64x4_epi64(s1, 1),
                                            _mm512_extracti64x4_epi64(s2, 1));
        _mm512_storeu_si512(acc + c, _mm512_add_epi64(_mm512_loadu_si512(acc + c), low));
        _mm512_storeu_si512(acc + c + 8, _mm512_add_epi64(_mm512_loadu_si512(acc + c + 8), high));
    }
};

// Asks for a line of a neighbour that comes later.
inline void ask(const std::byte* const* rows, std::size_t e, std::size_t at) {
    _mm_prefetch(reinterpret_cast<const char*>(rows[e + ahead] + at), _MM_HINT_T0);
}

inline void ask4(const std::byte* const* rows, std::size_t e, std::size_t at) {
    ask(rows, e, at), ask(rows, e + 1, at), ask(rows, e + 2, at), ask(rows, e + 3, at);
}

inline __m512i digit(const std::uint32_t* digits) {
    return _mm512_set1_epi32(static_cast<int>(*digits));
}

// Four neighbours' bytes of a column stand next to each other, a dword that vpdpbusd multiplies by
// the four weights' digits. digits[4 g + d]: digit d of the weights of neighbours 4 g ... 4 g + 3.
template <bool far, class Sums>
inline void gather8(const std::byte* const* rows, const std::uint32_t* q,
                                 std::size_t count, std::size_t stride, const Sums& sums) {
    alignas(64) std::uint32_t digits[chunk];
    const __m512i by_digit = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    for (std::size_t e = 0; e < count; e += 16) {
        _mm512_store_si512(digits + e, _mm512_shuffle_epi8(_mm512_loadu_si512(q + e), by_digit));
    }
    const __m512i zero = _mm512_setzero_si512();
    if (stride == 16) {
        const __m512i transpose = _mm512_add_epi8(
            _mm512_broadcast_i32x4(_mm_setr_epi8(0, 16, 32, 48, 1, 17, 33, 49, 2, 18, 34, 50, 3,
                                                 19, 35, 51)),
            _mm512_set_epi32(0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c, 0x0c0c0c0c, 0x08080808,
                             0x08080808, 0x08080808, 0x08080808, 0x04040404, 0x04040404,
                             0x04040404, 0x04040404, 0, 0, 0, 0));
        __m512i s0 = zero, s1 = zero, s2 = zero;
        for (std::size_t e = 0; e < count; e += 4) {
            const auto load = [&](std::size_t n) {
                return reinterpret_cast<const __m128i*>(rows[e + n]);
            };
            if (far) ask4(rows, e, 0);
            __m512i four = _mm512_castsi128_si512(_mm_loadu_si128(load(0)));
            four = _mm512_inserti32x4(four, _mm_loadu_si128(load(1)), 1);
            four = _mm512_inserti32x4(four, _mm_loadu_si128(load(2)), 2);
            four = _mm512_inserti32x4(four, _mm_loadu_si128(load(3)), 3);
            const __m512i x = _mm512_permutexvar_epi8(transpose, four);
            s0 = _mm512_dpbusd_epi32(s0, digit(digits + e), x);
            s1 = _mm512_dpbusd_epi32(s1, digit(digits + e + 1), x);
            s2 = _mm512_dpbusd_epi32(s2, digit(digits + e + 2), x);
        }
        sums.template take<8>(0, s0, s1, s2);
        return;
    }
    for (std::size_t at = 0; at < stride; at += 64) {
        __m512i a0 = zero, a1 = zero, a2 = zero, b0 = zero, b1 = zero, b2 = zero;
        __m512i c0 = zero, c1 = zero, c2 = zero, d0 = zero, d1 = zero, d2 = zero;
        for (std::size_t e = 0; e < count; e += 4) {
            if (far) ask4(rows, e, at);
            const __m512i r0 = _mm512_loadu_si512(rows[e] + at);
            const __m512i r1 = _mm512_loadu_si512(rows[e + 1] + at);
            const __m512i r2 = _mm512_loadu_si512(rows[e + 2] + at);
            const __m512i r3 = _mm512_loadu_si512(rows[e + 3] + at);
            const __m512i low01 = _mm512_unpacklo_epi8(r0, r1);
            const __m512i high01 = _mm512_unpackhi_epi8(r0, r1);
            const __m512i low23 = _mm512_unpacklo_epi8(r2, r3);
            const __m512i high23 = _mm512_unpackhi_epi8(r2, r3);
            const __m512i a = _mm512_unpacklo_epi16(low01, low23);
            const __m512i b = _mm512_unpackhi_epi16(low01, low23);
            const __m512i c = _mm512_unpacklo_epi16(high01, high23);
            const __m512i d = _mm512_unpackhi_epi16(high01, high23);
            const __m512i q0 = digit(digits + e);
            const __m512i q1 = digit(digits + e + 1);
            const __m512i q2 = digit(digits + e + 2);
            a0 = _mm512_dpbusd_epi32(a0, q0, a);
            b0 = _mm512_dpbusd_epi32(b0, q0, b);
            c0 = _mm512_dpbusd_epi32(c0, q0, c);
            d0 = _mm512_dpbusd_epi32(d0, q0, d);
            a1 = _mm512_dpbusd_epi32(a1, q1, a);
            b1 = _mm512_dpbusd_epi32(b1, q1, b);
            c1 = _mm512_dpbusd_epi32(c1, q1, c);
            d1 = _mm512_dpbusd_epi32(d1, q1, d);
            a2 = _mm512_dpbusd_epi32(a2, q2, a);
            b2 = _mm512_dpbusd_epi32(b2, q2, b);
            c2 = _mm512_dpbusd_epi32(c2, q2, c);
            d2 = _mm512_dpbusd_epi32(d2, q2, d);
        }
        sums.template take<8>(at, a0, a1, a2);
        sums.template take<8>(at + 16, b0, b1, b2);
        sums.template take<8>(at + 32, c0, c1, c2);
        sums.template take<8>(at + 48, d0, d1, d2);
    }
}

template <class Sums>
inline void gather8(const Records& records, const std::byte* const* rows, const std::uint32_t* q,
                    std::size_t count, const Sums& sums) {
    if (records.far) {
        gather8<true>(rows, q, count, records.stride, sums);
    } else {
        gather8<false>(rows, q, count, records.stride, sums);
    }
}

// Two neighbours' 16-bit values of a column in a dword, for vpdpwssd.
template <class Sums>
inline void gather16(const std::byte* const* rows, const std::uint32_t* q,
                                  std::size_t count, std::size_t stride, const Sums& sums) {
    alignas(64) std::uint16_t low[flush16], high[flush16];
    for (std::size_t e = 0; e < count; e += 16) {
        const __m512i weights = _mm512_loadu_si512(q + e);
        _mm256_store_si256(
            reinterpret_cast<__m256i*>(low + e),
            _mm512_cvtepi32_epi16(_mm512_and_si512(weights, _mm512_set1_epi32(1023))));
        _mm256_store_si256(reinterpret_cast<__m256i*>(high + e),
                           _mm512_cvtepi32_epi16(_mm512_srli_epi32(weights, 10)));
    }
    const auto pair = [](const std::uint16_t* digits) {
        std::uint32_t both;
        __builtin_memcpy(&both, digits, sizeof both);
        return both;
    };
    const __m512i zero = _mm512_setzero_si512();
    for (std::size_t at = 0; at < stride; at += 64) {
        __m512i a0 = zero, a1 = zero, b0 = zero, b1 = zero;
        for (std::size_t e = 0; e < count; e += 2) {
            ask(rows, e, at), ask(rows, e + 1, at);
            const __m512i r0 = _mm512_loadu_si512(rows[e] + at);
            const __m512i r1 = _mm512_loadu_si512(rows[e + 1] + at);
            const __m512i a = _mm512_unpacklo_epi16(r0, r1);
            const __m512i b = _mm512_unpackhi_epi16(r0, r1);
            const __m512i q0 = _mm512_set1_epi32(static_cast<int>(pair(low + e)));
            const __m512i q1 = _mm512_set1_epi32(static_cast<int>(pair(high + e)));
            a0 = _mm512_dpwssd_epi32(a0, q0, a);
            b0 = _mm512_dpwssd_epi32(b0, q0, b);
            a1 = _mm512_dpwssd_epi32(a1, q1, a);
            b1 = _mm512_dpwssd_epi32(b1, q1, b);
        }
        sums.template take<10>(at / 2, a0, a1, zero);
        sums.template take<10>(at / 2 + 16, b0, b1, zero);
    }
}

inline void add_records(const Records& records, const std::byte* const* rows,
                                     const std::uint32_t* q, std::size_t count,
                                     std::int64_t* acc) {
    const MoreSums more{acc};
    if (records.width == 1) {
        gather8(records, rows, q, count, more);
    } else if (records.width == 2) {
        for (std::size_t e = 0; e < count; e += flush16) {
            gather16(rows + e, q + e, count - e < flush16 ? count - e : flush16, records.stride,
                     more);
        }
    } else {
        plain::add_records(records, rows, q, count, acc);
    }
}

inline void finish_records(const Records& records, std::size_t num_outputs,
                                        std::uint32_t total, const std::int64_t* acc,
                                        float* sums) {
    for (std::size_t c = 0; c < num_outputs; c += 8) {
        store_wide(records.center + c, total, _mm512_loadu_si512(acc + c), sums + c);
    }
}

inline void sum_records(const Records& records, std::size_t num_outputs,
                                     const std::byte* const* rows, const std::uint32_t* q,
                                     std::size_t count, std::uint32_t total, std::int64_t* acc,
                                     float* sums) {
    if (records.width == 1) {
        const auto bound = (static_cast<std::uint64_t>(records.max_center) + 256) * total;
        if (bound < std::uint64_t{1} << 31) {
            gather8(records, rows, q, count,
                    NarrowSums{records.center, sums, static_cast<std::int32_t>(total)});
        } else {
            gather8(records, rows, q, count, WideSums{records.center, sums, total});
        }
    } else if (records.width == 2 && count <= flush16) {
        gather16(rows, q, count, records.stride, WideSums{records.center, sums, total});
    } else {
        for (std::size_t p = 0; p < records.stride / records.width; ++p) acc[p] = 0;
        add_records(records, rows, q, count, acc);
        finish_records(records, num_outputs, total, acc, sums);
    }
}

// How the inputs of a product are grouped (below), and how far apart rows of u stand for it.
constexpr std::size_t inputs_per_group = 5;


struct Groups {
    std::size_t quads;   // of groups
    std::size_t groups;  // with padding
    std::size_t blocks;  // of 16 outputs

    constexpr Groups(std::size_t num_inputs, std::size_t num_outputs)
        : quads((num_inputs + 4 * inputs_per_group - 1) / (4 * inputs_per_group)),
          groups(4 * quads),
          blocks((num_outputs + 15) / 16) {}
};

constexpr std::size_t u_stride(std::size_t num_inputs) {
    const std::size_t grouped = inputs_per_group * Groups(num_inputs, 0).groups;
    const std::size_t in_words = word_bits * words_per_row(num_inputs);
    return (grouped > in_words ? grouped : in_words) + 64;
}

// --- Gather of bits ----------------------------------------------------------------------------

inline __m512i add_where(__m512i sum, const std::byte* bits, std::size_t piece,
                                      __m512i q) {
    __mmask16 mask;
    __builtin_memcpy(&mask, bits + 2 * piece, sizeof mask);
    return _mm512_mask_add_epi32(sum, mask, sum, q);
}

// Up to four words of every neighbour: the bits are the masks of the additions.
template <int words>
inline void add_words(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                      std::size_t offset, __m512i minus_total, bool first, std::int32_t* u) {
    const auto start = [&](int piece) {
        if (piece >= 4 * words || first) return minus_total;
        return _mm512_add_epi32(_mm512_loadu_si512(u + 16 * piece), minus_total);
    };
    __m512i s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4),
            s5 = start(5), s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9),
            s10 = start(10), s11 = start(11), s12 = start(12), s13 = start(13), s14 = start(14),
            s15 = start(15);
    for (std::size_t e = 0; e < count; ++e) {
        ask(rows, e, offset);
        const std::byte* bits = rows[e] + offset;
        const __m512i weight = _mm512_set1_epi32(static_cast<int>(2 * q[e]));
        s0 = add_where(s0, bits, 0, weight);
        s1 = add_where(s1, bits, 1, weight);
        s2 = add_where(s2, bits, 2, weight);
        s3 = add_where(s3, bits, 3, weight);
        if constexpr (words > 1) {
            s4 = add_where(s4, bits, 4, weight);
            s5 = add_where(s5, bits, 5, weight);
            s6 = add_where(s6, bits, 6, weight);
            s7 = add_where(s7, bits, 7, weight);
        }
        if constexpr (words > 2) {
            s8 = add_where(s8, bits, 8, weight);
            s9 = add_where(s9, bits, 9, weight);
            s10 = add_where(s10, bits, 10, weight);
            s11 = add_where(s11, bits, 11, weight);
        }
        if constexpr (words > 3) {
            s12 = add_where(s12, bits, 12, weight);
            s13 = add_where(s13, bits, 13, weight);
            s14 = add_where(s14, bits, 14, weight);
            s15 = add_where(s15, bits, 15, weight);
        }
    }
    const auto store = [&](int piece, __m512i sum) {
        if (piece < 4 * words) _mm512_storeu_si512(u + 16 * piece, sum);
    };
    store(0, s0), store(1, s1), store(2, s2), store(3, s3), store(4, s4), store(5, s5);
    store(6, s6), store(7, s7), store(8, s8), store(9, s9), store(10, s10), store(11, s11);
    store(12, s12), store(13, s13), store(14, s14), store(15, s15);
}

inline void add_bits(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                     std::uint32_t total, bool first, std::size_t num_inputs, std::int32_t* u) {
    const std::size_t num_words = words_per_row(num_inputs);
    const __m512i minus_total = _mm512_set1_epi32(-static_cast<int>(total));
    const auto add = [&](auto words, std::size_t w) {
        add_words<decltype(words)::value>(rows, q, count, 8 * w, minus_total, first, u + 64 * w);
    };
    std::size_t w = 0;
    for (; w + 4 <= num_words; w += 4) add(Number<4>{}, w);
    if (num_words - w == 3) add(Number<3>{}, w);
    if (num_words - w == 2) add(Number<2>{}, w);
    if (num_words - w == 1) add(Number<1>{}, w);
    // Inputs that do not exist, up to where the groups of five end, must be 0.
    for (std::size_t k = num_inputs; k < u_stride(num_inputs); ++k) u[k] = 0;
}

// --- The product after the gather of bits, by lookup -------------------------------------------
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
// B in memory: for 16 outputs at a time and every four groups, 64 bytes, each a place in the table
// (6 bits, all that vpermb looks at) and a sign (the highest bit); then the sums of signs of all
// outputs.

inline std::size_t product_bytes(std::size_t num_inputs, std::size_t num_outputs) {
    const Groups shape(num_inputs, num_outputs);
    return shape.blocks * (shape.quads * 64 + 64);
}

inline void make_product(const word* b, std::size_t num_inputs, std::size_t num_outputs,
                         std::byte* product) {
    const Groups shape(num_inputs, num_outputs);
    const std::size_t num_words = words_per_row(num_inputs);
    const auto positive = [&](std::size_t c, std::size_t k) {
        return c < num_outputs && k < num_inputs &&
               (b[c * num_words + k / word_bits] >> (k % word_bits) & 1) != 0;
    };
    auto* sign_sums = reinterpret_cast<std::int32_t*>(product + shape.blocks * shape.quads * 64);
    for (std::size_t c = 0; c < 16 * shape.blocks; ++c) {
        sign_sums[c] = 0;
        for (std::size_t g = 0; g < shape.groups; ++g) {
            // u0's sign is the group's; the others count relative to it.
            const bool first = positive(c, g);
            std::size_t entry = 0;
            for (std::size_t m = 1; m < inputs_per_group; ++m) {
                if (positive(c, m * shape.groups + g) == first) entry |= std::size_t{1} << (m - 1);
            }
            std::byte* line = product + ((c / 16) * shape.quads + g / 4) * 64;
            line[c % 16 * 4 + g % 4] =
                static_cast<std::byte>(g % 4 * 16 + entry + (first ? 0 : 128));
            sign_sums[c] += first ? 1 : -1;
        }
    }
}

inline std::size_t table_bytes(std::size_t num_inputs) {
    const Groups shape(num_inputs, 0);
    const std::size_t size =
        tile_rows * 4 * shape.quads * 64 + 4 * (u_stride(num_inputs) + shape.groups + 32);
    return (size + 63) / 64 * 64;
}

inline std::size_t multiply_scratch_bytes(std::size_t num_inputs, std::size_t num_outputs) {
    return table_bytes(num_inputs) + tile_rows * 8 * (num_outputs + 64) +
           tile_rows * 4 * u_stride(num_inputs);
}

// The largest |u| of a tile.
inline std::uint32_t largest_of(const std::int32_t* u, std::size_t num_rows,
                                             std::size_t num_inputs) {
    __m512i largest = _mm512_setzero_si512();
    for (std::size_t r = 0; r < num_rows; ++r) {
        for (std::size_t k = 0; k < num_inputs; k += 16) {
            largest = _mm512_max_epu32(
                largest,
                _mm512_abs_epi32(_mm512_loadu_si512(u + r * u_stride(num_inputs) + k)));
        }
    }
    return _mm512_reduce_max_epu32(largest);
}

// The tables of one row: table[quad][row][plane], 64 bytes each.
template <int planes>
inline void make_tables(const std::int32_t* u, const Groups& shape, std::size_t row,
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
    // Bytes 0 and 1 of two groups' dwords: all bytes 0 in the low half, all bytes 1 in the high.
    alignas(64) static constexpr std::uint8_t low_bytes[64] = {
        0,  4,  8,  12, 16, 20, 24, 28, 32, 36, 40,  44,  48,  52,  56,  60,
        64, 68, 72, 76, 80, 84, 88, 92, 96, 100, 104, 108, 112, 116, 120, 124,
        1,  5,  9,  13, 17, 21, 25, 29, 33, 37, 41,  45,  49,  53,  57,  61,
        65, 69, 73, 77, 81, 85, 89, 93, 97, 101, 105, 109, 113, 117, 121, 125};
    const __m512i pick01 = _mm512_load_si512(low_bytes);
    const __m512i pick23 = _mm512_add_epi8(pick01, _mm512_set1_epi8(2));
    for (std::size_t quad = 0; quad < shape.quads; ++quad) {
        const __m512i t0 = entries(4 * quad);
        const __m512i t1 = entries(4 * quad + 1);
        const __m512i t2 = entries(4 * quad + 2);
        const __m512i t3 = entries(4 * quad + 3);
        std::byte* to = tables + (quad * tile_rows + row) * planes * 64;
        const __m512i low01 = _mm512_permutex2var_epi8(t0, pick01, t1);
        const __m512i low23 = _mm512_permutex2var_epi8(t2, pick01, t3);
        _mm512_storeu_si512(to, _mm512_shuffle_i64x2(low01, low23, 0x44));
        _mm512_storeu_si512(to + 64, _mm512_shuffle_i64x2(low01, low23, 0xee));
        if constexpr (planes > 2) {
            const __m512i high01 = _mm512_permutex2var_epi8(t0, pick23, t1);
            const __m512i high23 = _mm512_permutex2var_epi8(t2, pick23, t3);
            _mm512_storeu_si512(to + 128, _mm512_shuffle_i64x2(high01, high23, 0x44));
            if constexpr (planes > 3) {
                _mm512_storeu_si512(to + 192, _mm512_shuffle_i64x2(high01, high23, 0xee));
            }
        }
    }
}

// 1 or, where the highest bit is set, -1: in GF(2), that bit times 1 everywhere but in the lowest
// bit, which is 1.
inline __m512i signs_of(__m512i places) {
    const __m512i spread = _mm512_set1_epi64(0x0080808080808080);
    return _mm512_gf2p8affine_epi64_epi8(places, spread, 1);
}

inline __m512i look_up(__m512i sum, __m512i places, __m512i signs,
                                    const std::byte* table) {
    return _mm512_dpbusd_epi32(
        sum, _mm512_permutexvar_epi8(places, _mm512_loadu_si512(table)), signs);
}

// Where the planes of 16 products go: sum = p0 + 2^8 p1 + 2^16 (p2 + 2^8 p3).
struct Products {
    bool fits_32_bits;
    int shift;          // with acc: products count 2^shift
    std::int64_t* acc;  // null: products are final
    float* sums;
    std::size_t stride;

    void take(std::size_t row, std::size_t column, __m512i p0, __m512i p1, __m512i p2,
              __m512i p3) const {
        const std::size_t at = row * stride + column;
        // Bytes times signs of a fifth of the inputs: |p| < 2^6 inputs, so these two fit 32 bits
        // up to most_inputs_of_bits.
        const __m512i low = _mm512_add_epi32(p0, _mm512_slli_epi32(p1, 8));
        const __m512i high = _mm512_add_epi32(p2, _mm512_slli_epi32(p3, 8));
        if (fits_32_bits) {
            const __m512i sum = _mm512_add_epi32(low, _mm512_slli_epi32(high, 16));
            _mm512_storeu_ps(sums + at, _mm512_cvtepi32_ps(sum));
            return;
        }
        take_half(at, _mm512_castsi512_si256(low), _mm512_castsi512_si256(high));
        take_half(at + 8, _mm512_extracti64x4_epi64(low, 1), _mm512_extracti64x4_epi64(high, 1));
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

// Four rows at once (fewer: the missing rows of u are zeros, and their sums go nowhere).
template <int planes>
inline void multiply_planes(const std::int32_t* u, std::size_t num_inputs, std::size_t num_outputs,
                            const std::byte* product, std::byte* scratch,
                            const Products& products) {
    const Groups shape(num_inputs, num_outputs);
    std::byte* tables = scratch;
    auto* twice = reinterpret_cast<std::int32_t*>(scratch + tile_rows * 4 * shape.quads * 64);
    std::int32_t* base = twice + u_stride(num_inputs);
    for (std::size_t r = 0; r < tile_rows; ++r) {
        make_tables<planes>(u + r * u_stride(num_inputs), shape, r, twice, base, tables);
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

inline void multiply(std::int32_t* u, std::size_t num_rows, std::size_t num_inputs,
                     std::size_t num_outputs, const std::byte* product, std::byte* scratch,
                     float* sums, std::size_t sums_stride) {
    const std::size_t stride = u_stride(num_inputs);
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
        // Rows of thousands of like-minded neighbours, too large for four bytes: u = 16 high + low.
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

// --- The end of a row --------------------------------------------------------------------------

inline __m512 output(const float* sums, __mmask16 valid, float row_scale, const float* scale,
                     const float* shift) {
    const __m512 scaled =
        _mm512_mul_ps(_mm512_maskz_loadu_ps(valid, sums), _mm512_set1_ps(row_scale));
    return _mm512_add_ps(_mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(valid, scale)),
                         _mm512_maskz_loadu_ps(valid, shift));
}

// Signs to words; returns |h| summed into sixteen partial sums.
inline __m512 sign_row(const float* sums, float row_scale, const float* scale, const float* shift,
                       std::size_t num_outputs, word* words) {
    __m512 partial = _mm512_setzero_ps();
    const auto piece = [&](std::size_t c, __mmask16 valid) {
        const __m512 h = output(sums + c, valid, row_scale, scale + c, shift + c);
        partial = _mm512_add_ps(partial, _mm512_abs_ps(h));
        return static_cast<word>(
            _mm512_mask_cmp_ps_mask(valid, h, _mm512_setzero_ps(), _CMP_GE_OQ));
    };
    std::size_t k = 0;
    for (; k + word_bits <= num_outputs; k += word_bits) {
        const word p0 = piece(k, 0xffff), p1 = piece(k + 16, 0xffff);
        const word p2 = piece(k + 32, 0xffff), p3 = piece(k + 48, 0xffff);
        *words++ = p0 | p1 << 16 | p2 << 32 | p3 << 48;
    }
    if (k < num_outputs) {
        word packed = 0;
        for (std::size_t bit = 0; k + bit < num_outputs; bit += 16) {
            packed |= piece(k + bit, first_lanes(num_outputs - k - bit)) << bit;
        }
        *words = packed;
    }
    return partial;
}

// Halves onto halves, the order that plain.h defines, down to four.
inline __m128 fold(__m512 partial) {
    const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(partial),
                                     _mm512_extractf32x8_ps(partial, 1));
    return _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
}

inline void sign_tile(const float* sums, std::size_t sums_stride, std::size_t num_rows,
                      const float* row_scale, const float* scale, const float* shift,
                      std::size_t num_outputs, word* words, const float* norm, float* factor) {
    const std::size_t num_words = words_per_row(num_outputs);
    const auto row = [&](std::size_t r) {
        return r < num_rows ? fold(sign_row(sums + r * sums_stride, row_scale[r], scale, shift,
                                            num_outputs, words + r * num_words))
                            : _mm_setzero_ps();
    };
    const __m128 r0 = row(0), r1 = row(1), r2 = row(2), r3 = row(3);
    const __m128 by2_01 = _mm_add_ps(_mm_movelh_ps(r0, r1), _mm_movehl_ps(r1, r0));
    const __m128 by2_23 = _mm_add_ps(_mm_movelh_ps(r2, r3), _mm_movehl_ps(r3, r2));
    const __m128 sum = _mm_add_ps(_mm_shuffle_ps(by2_01, by2_23, 0x88),
                                  _mm_shuffle_ps(by2_01, by2_23, 0xdd));
    __m128 result = _mm_div_ps(sum, _mm_set1_ps(static_cast<float>(num_outputs)));
    const auto valid = static_cast<__mmask8>(first_lanes(num_rows));
    if (norm) result = _mm_mul_ps(_mm_maskz_loadu_ps(valid, norm), result);
    _mm_mask_storeu_ps(factor, valid, _mm_min_ps(result, _mm_set1_ps(largest_weight)));
}

inline void value_row(const float* sums, float row_scale, const float* scale, const float* shift,
                      std::size_t num_outputs, float* values) {
    for (std::size_t c = 0; c < num_outputs; c += 16) {
        const __mmask16 valid = first_lanes(num_outputs - c);
        _mm512_mask_storeu_ps(values + c, valid,
                              output(sums + c, valid, row_scale, scale + c, shift + c));
    }
}

inline std::int32_t first_largest(const float* values, std::size_t count) {
    const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
    __m512 most = lowest;
    for (std::size_t c = 0; c < count; c += 16) {
        const __mmask16 valid = first_lanes(count - c);
        // Of two operands, the maximum is the second where the first is not a number.
        most = _mm512_max_ps(_mm512_mask_loadu_ps(lowest, valid, values + c), most);
    }
    const float top = _mm512_reduce_max_ps(most);
    if (top == -__builtin_inff()) return 0;  // nothing is larger than the first
    const __m512 largest_value = _mm512_set1_ps(top);
    for (std::size_t c = 0; c < count; c += 16) {
        const __mmask16 valid = first_lanes(count - c);
        const __mmask16 equal = _mm512_mask_cmp_ps_mask(
            valid, _mm512_maskz_loadu_ps(valid, values + c), largest_value, _CMP_EQ_OQ);
        if (equal) return static_cast<std::int32_t>(c) + __builtin_ctz(equal);
    }
    return 0;
}

inline void class_tile(float* sums, std::size_t sums_stride, std::size_t num_rows,
                       const float* row_scale, const float* scale, const float* shift,
                       std::size_t num_outputs, std::int64_t* classes) {
    if (num_rows != 4 || num_outputs > 16) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            float* row = sums + r * sums_stride;
            value_row(row, row_scale[r], scale, shift, num_outputs, row);
            classes[r] = first_largest(row, num_outputs);
        }
        return;
    }
    const __mmask16 valid = first_lanes(num_outputs);
    const auto row = [&](std::size_t r) {
        const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
        const __m512 h = output(sums + r * sums_stride, valid, row_scale[r], scale, shift);
        return _mm512_mask_max_ps(lowest, valid, h, lowest);  // lowest where not a number
    };
    const __m512 h0 = row(0), h1 = row(1), h2 = row(2), h3 = row(3);
    const __m128 most = largest_of_each(h0, h1, h2, h3);
    const auto first = [&](__m512 values, __m128 top) {
        return __builtin_ctz(
            _mm512_cmp_ps_mask(values, _mm512_broadcastss_ps(top), _CMP_EQ_OQ));
    };
    classes[0] = first(h0, most);
    classes[1] = first(h1, _mm_permute_ps(most, 0x55));
    classes[2] = first(h2, _mm_permute_ps(most, 0xaa));
    classes[3] = first(h3, _mm_permute_ps(most, 0xff));
}

#include "rows.h"

// --- Training ----------------------------------------------------------------------------------

using floats = __m512;
constexpr std::size_t lanes = 16;
inline floats broadcast(float x) { return _mm512_set1_ps(x); }
inline floats multiply_add(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }

#define BIGNN_HAS_MASKED_BITS
inline void to_floats(word bits, word mask, float* f) {
    const __m512 plus = _mm512_set1_ps(1), minus = _mm512_set1_ps(-1);
    for (std::size_t k = 0; k < word_bits; k += 16) {
        const auto positive = static_cast<__mmask16>(bits >> k);
        const auto kept = static_cast<__mmask16>(mask >> k);
        const __m512 signs = _mm512_mask_blend_ps(positive, minus, plus);
        _mm512_storeu_ps(f + k, _mm512_maskz_mov_ps(kept, signs));
    }
}

inline void masked_counts(const word* row, const word* mask, const half* panel,
                          std::size_t num_words, std::int32_t* counts) {
    const auto* bits = reinterpret_cast<const half_of_word*>(row);
    const auto* kept = reinterpret_cast<const half_of_word*>(mask);
    __m512i sum = _mm512_setzero_si512();
    for (std::size_t w = 0; w < 2 * num_words; ++w, panel += panel_width) {
        const __m512i differing = _mm512_xor_si512(_mm512_set1_epi32(static_cast<int>(bits[w])),
                                                   _mm512_loadu_si512(panel));
        const __m512i counted =
            _mm512_and_si512(_mm512_set1_epi32(static_cast<int>(kept[w])), differing);
        sum = _mm512_add_epi32(sum, _mm512_popcnt_epi32(counted));
    }
    _mm512_storeu_si512(counts, sum);
}

#include "training.h"

}  // namespace

const Kernels avx512_kernels = {"avx512",        pack_rows,         xnor_rows,
                                records_of_bits, records_of_sparse, layer_rows,
                                scratch_bytes,   product_bytes,     make_product,
                                draw_masks,      masked_rows,       masked_gradient,
                                keep_masked};

}  // namespace bignn

#else

namespace bignn {
const Kernels avx512_kernels = {"avx512"};
}

#endif
