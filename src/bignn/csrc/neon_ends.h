// The end of a row in NEON: from sums to signs, values or classes.
#pragma once

#include "neon_vectors.h"

namespace bignn::neon {

// Bit c is 1 where column c of sixteen is >= 0.
static inline word signs_of(float32x4_t h0, float32x4_t h1, float32x4_t h2, float32x4_t h3) {
    constexpr std::uint32_t ones[4] = {1, 2, 4, 8};
    const uint32x4_t bits = vld1q_u32(ones);
    const uint32x4_t low =
        vorrq_u32(vandq_u32(vcgezq_f32(h0), bits), vandq_u32(vcgezq_f32(h1), vshlq_n_u32(bits, 4)));
    const uint32x4_t high = vorrq_u32(vandq_u32(vcgezq_f32(h2), vshlq_n_u32(bits, 8)),
                                      vandq_u32(vcgezq_f32(h3), vshlq_n_u32(bits, 12)));
    return vaddvq_u32(vorrq_u32(low, high));
}

template <class Base>
struct EndPieces : Base {
    using typename Base::Isa;

    // Packs the signs of `count` columns. four(c, left, n) are the four columns from c on, of which
    // `left` exist, the n-th four of sixteen.
    template <class Four>
    static void pack_signs(std::size_t count, word* words, Four four) {
        for (std::size_t k = 0; k < count; k += word_bits) {
            word packed = 0;
            for (std::size_t bit = 0; bit < word_bits && k + bit < count; bit += 16) {
                const std::size_t c = k + bit, left = count - c;
                const auto some = [&](std::size_t n) {
                    return left > 4 * n ? four(c + 4 * n, left - 4 * n, n) : vdupq_n_f32(0);
                };
                const word signs = signs_of(some(0), some(1), some(2), some(3));
                packed |= (left < 16 ? signs & ((word{1} << left) - 1) : signs) << bit;
            }
            *words++ = packed;
        }
    }

    static void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits, word* words) {
        for (std::size_t i = 0; i < num_rows; ++i) {
            pack_signs(num_bits, words + i * words_per_row(num_bits),
                       [&](std::size_t c, std::size_t left, std::size_t) {
                           return load_first(x + c, left);
                       });
            x += num_bits;
        }
    }

    // sum * row_scale * scale + shift of four columns; 0 in lanes past the first `count`.
    static float32x4_t output(const float* sums, std::size_t count, float row_scale,
                              const float* scale, const float* shift) {
        const float32x4_t scaled = vmulq_n_f32(load_first(sums, count), row_scale);
        const float32x4_t h =
            vaddq_f32(vmulq_f32(scaled, load_first(scale, count)), load_first(shift, count));
        return count < 4 ? where(first_lanes(count), h) : h;
    }

    // Sixteen partial sums of |h|, column c in number c % 16, then halves onto halves: the order
    // that Plain defines.
    static float sign_row(const float* sums, float row_scale, const float* scale,
                          const float* shift, std::size_t num_outputs, word* words) {
        float32x4_t partial[4];
        for (std::size_t n = 0; n < 4; ++n) partial[n] = vdupq_n_f32(0);
        pack_signs(num_outputs, words, [&](std::size_t c, std::size_t left, std::size_t n) {
            const float32x4_t h = output(sums + c, left, row_scale, scale + c, shift + c);
            partial[n] = vaddq_f32(partial[n], vabsq_f32(h));
            return h;
        });
        const float32x4_t by4 =
            vaddq_f32(vaddq_f32(partial[0], partial[2]), vaddq_f32(partial[1], partial[3]));
        const float32x2_t by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
        return vget_lane_f32(by2, 0) + vget_lane_f32(by2, 1);
    }

    static void value_row(const float* sums, float row_scale, const float* scale,
                          const float* shift, std::size_t num_outputs, float* values) {
        for (std::size_t c = 0; c < num_outputs; c += 4) {
            const std::size_t count = num_outputs - c;
            store_first(values + c, count,
                        output(sums + c, count, row_scale, scale + c, shift + c));
        }
    }

    static std::int32_t first_largest(const float* values, std::size_t count) {
        const float32x4_t lowest = vdupq_n_f32(-__builtin_inff());
        const auto some = [&](std::size_t c) {
            return count - c >= 4 ? vld1q_f32(values + c)
                                  : vbslq_f32(first_lanes(count - c),
                                              load_first(values + c, count - c), lowest);
        };
        // Of two operands, vmaxnm takes the number where the other one is not a number.
        float32x4_t most = lowest;
        for (std::size_t c = 0; c < count; c += 4) most = vmaxnmq_f32(most, some(c));
        const float top = vmaxnmvq_f32(most);
        if (top == -__builtin_inff()) return 0;  // nothing is larger than the first
        std::size_t c = 0;
        while (vmaxvq_u32(vceqq_f32(some(c), vdupq_n_f32(top))) == 0) c += 4;
        while (values[c] != top) ++c;
        return static_cast<std::int32_t>(c);
    }

    static void put_head(const float* from, float row_scale, std::size_t channels, float* sums) {
        for (std::size_t c = 0; c < channels; c += 4) {
            store_first(sums + c, channels - c,
                        vmulq_n_f32(load_first(from + c, channels - c), row_scale));
        }
    }

    static void add_head(const float* from, float row_scale, const float* scale, bool first,
                         std::size_t channels, float* sums) {
        for (std::size_t c = 0; c < channels; c += 4) {
            const std::size_t count = channels - c;
            const float32x4_t part = vmulq_f32(vmulq_n_f32(load_first(from + c, count), row_scale),
                                               load_first(scale + c, count));
            store_first(sums + c, count,
                        first ? part : vaddq_f32(load_first(sums + c, count), part));
        }
    }
};

}  // namespace bignn::neon
