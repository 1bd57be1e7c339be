// Way G's first half in NEON: sums of bits.
//
// Eight neighbours are added at a time, by lookup. Four weights have 16 sums of subsets, a table of
// 16 bytes per byte of the sums; the four bits of a column are a place in it, and tbl looks up 16
// columns. Places come from the neighbours' bits by transposition: of eight neighbours, 16 bytes
// each, register k then has the columns 8 i + k, and in byte i a bit per neighbour.
//
// The sums u are left in that order: of every 128 inputs, input 8 i + k stands at 16 k + i. The
// product after the gather (neon_product.h) has its weights in the same order.
#pragma once

#include "neon_vectors.h"

namespace bignn::neon {

constexpr std::size_t slab = 128;  // inputs whose places are made at once
constexpr std::size_t unit = 8;    // neighbours at a time

static constexpr std::size_t padded_inputs(std::size_t num_inputs) {
    return (num_inputs + slab - 1) / slab * slab;
}

// Where an input stands in u.
static constexpr std::size_t place_of(std::size_t input) {
    const std::size_t in_slab = input % slab;
    return input - in_slab + in_slab % 8 * 16 + in_slab / 8;
}

// Makes a table of 16 numbers: number i is `base` plus those of the four values whose bit in i is
// set. Plane p, their bytes p, goes to `to` + p * stride.
template <int planes>
static inline void make_subset_sums(const std::uint32_t* values, std::uint32_t base,
                                    std::uint8_t* to, std::size_t stride) {
    constexpr std::uint32_t odd[4] = {0, ~0u, 0, ~0u}, upper[4] = {0, 0, ~0u, ~0u};
    const auto value = [&](std::size_t m) { return vdupq_n_u32(values[m]); };
    const uint32x4_t first = vaddq_u32(vdupq_n_u32(base), vandq_u32(vld1q_u32(odd), value(0)));
    const uint32x4_t t0 = vaddq_u32(first, vandq_u32(vld1q_u32(upper), value(1)));
    const uint32x4_t t1 = vaddq_u32(t0, value(2)), t2 = vaddq_u32(t0, value(3));
    const uint32x4_t t3 = vaddq_u32(t1, value(3));
    const auto shorts = [](uint32x4_t t) { return vreinterpretq_u16_u32(t); };
    const auto bytes = [](uint16x8_t t) { return vreinterpretq_u8_u16(t); };
    const uint8x16_t low01 = bytes(vuzp1q_u16(shorts(t0), shorts(t1)));
    const uint8x16_t low23 = bytes(vuzp1q_u16(shorts(t2), shorts(t3)));
    vst1q_u8(to, vuzp1q_u8(low01, low23));
    if constexpr (planes > 1) vst1q_u8(to + stride, vuzp2q_u8(low01, low23));
    if constexpr (planes > 2) {
        const uint8x16_t high01 = bytes(vuzp2q_u16(shorts(t0), shorts(t1)));
        const uint8x16_t high23 = bytes(vuzp2q_u16(shorts(t2), shorts(t3)));
        vst1q_u8(to + 2 * stride, vuzp1q_u8(high01, high23));
        if constexpr (planes > 3) vst1q_u8(to + 3 * stride, vuzp2q_u8(high01, high23));
    }
}

// Exchanges the bits that are `distance` apart in a byte between registers as far apart.
template <int distance>
static inline void exchange(uint8x16_t& a, uint8x16_t& b) {
    if constexpr (distance == 4) {
        const uint8x16_t low = vsliq_n_u8(a, b, 4);
        b = vsriq_n_u8(b, a, 4);
        a = low;
    } else {
        const uint8x16_t kept = vdupq_n_u8(distance == 2 ? 0x33 : 0x55);
        const uint8x16_t low = vbslq_u8(kept, a, vshlq_n_u8(b, distance));
        b = vbslq_u8(kept, vshrq_n_u8(a, distance), b);
        a = low;
    }
}

// Makes the places of 16 bytes (8 if not whole) of eight neighbours.
template <bool whole>
static inline void make_places(const std::byte* const* rows, std::size_t offset,
                               std::uint8_t* places) {
    const auto load = [&](std::size_t n) {
        const auto* from = reinterpret_cast<const std::uint8_t*>(rows[n] + offset);
        return whole ? vld1q_u8(from) : vcombine_u8(vld1_u8(from), vdup_n_u8(0));
    };
    uint8x16_t r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
    uint8x16_t r4 = load(4), r5 = load(5), r6 = load(6), r7 = load(7);
    exchange<4>(r0, r4), exchange<4>(r1, r5), exchange<4>(r2, r6), exchange<4>(r3, r7);
    exchange<2>(r0, r2), exchange<2>(r1, r3), exchange<2>(r4, r6), exchange<2>(r5, r7);
    exchange<1>(r0, r1), exchange<1>(r2, r3), exchange<1>(r4, r5), exchange<1>(r6, r7);
    vst1q_u8(places, r0), vst1q_u8(places + 16, r1);
    vst1q_u8(places + 32, r2), vst1q_u8(places + 48, r3);
    vst1q_u8(places + 64, r4), vst1q_u8(places + 80, r5);
    vst1q_u8(places + 96, r6), vst1q_u8(places + 112, r7);
}

// u[c] = twice s_0 + 2^8 s_1 + 2^16 s_2, less the total, for eight columns, onto what u was unless
// `first`.
template <int planes>
static inline void store_sums(const uint16x8_t* s, std::uint32_t total, bool first,
                              std::int32_t* u) {
    uint32x4_t low = vshll_n_u16(vget_low_u16(s[0]), 1);
    uint32x4_t high = vshll_high_n_u16(s[0], 1);
    if constexpr (planes > 1) {
        low = vaddq_u32(low, vshlq_n_u32(vmovl_u16(vget_low_u16(s[1])), 9));
        high = vaddq_u32(high, vshlq_n_u32(vmovl_high_u16(s[1]), 9));
    }
    if constexpr (planes > 2) {
        low = vaddq_u32(low, vshlq_n_u32(vmovl_u16(vget_low_u16(s[2])), 17));
        high = vaddq_u32(high, vshlq_n_u32(vmovl_high_u16(s[2]), 17));
    }
    const auto store = [&](uint32x4_t sum, std::int32_t* to) {
        sum = vsubq_u32(sum, vdupq_n_u32(total));
        if (!first) sum = vaddq_u32(sum, vreinterpretq_u32_s32(vld1q_s32(to)));
        vst1q_s32(to, vreinterpretq_s32_u32(sum));
    };
    store(low, u), store(high, u + 4);
}

// Looks up two registers of places, 32 columns, of all units.
template <int planes>
static inline void look_up_sums(const std::uint8_t* tables, const std::uint8_t* places,
                                std::size_t num_units, std::uint32_t total, bool first,
                                std::int32_t* u) {
    // Bytes are added in 16 bits: two per unit, of chunk / unit units.
    static_assert(2 * 255 * (chunk / unit) < 1 << 16);
    uint16x8_t s[2][2][planes];
    for (std::size_t n = 0; n < 2; ++n) {
        for (int p = 0; p < planes; ++p) s[n][0][p] = s[n][1][p] = vdupq_n_u16(0);
    }
    for (std::size_t m = 0; m < num_units; ++m) {
        for (std::size_t n = 0; n < 2; ++n) {
            const uint8x16_t both = vld1q_u8(places + 16 * n);
            const uint8x16_t low = vandq_u8(both, vdupq_n_u8(15)), high = vshrq_n_u8(both, 4);
            for (int p = 0; p < planes; ++p) {
                const uint8x16_t x = vqtbl1q_u8(vld1q_u8(tables + 32 * p), low);
                const uint8x16_t y = vqtbl1q_u8(vld1q_u8(tables + 32 * p + 16), high);
                if (planes > 1 && p == planes - 1) {  // the highest bytes are below 128
                    const uint8x16_t sum = vaddq_u8(x, y);
                    s[n][0][p] = vaddw_u8(s[n][0][p], vget_low_u8(sum));
                    s[n][1][p] = vaddw_high_u8(s[n][1][p], sum);
                } else {
                    s[n][0][p] = vaddw_u8(vaddw_u8(s[n][0][p], vget_low_u8(x)), vget_low_u8(y));
                    s[n][1][p] = vaddw_high_u8(vaddw_high_u8(s[n][1][p], x), y);
                }
            }
        }
        tables += 32 * planes;
        places += slab;
    }
    for (std::size_t n = 0; n < 2; ++n) {
        store_sums<planes>(s[n][0], total, first, u + 16 * n);
        store_sums<planes>(s[n][1], total, first, u + 16 * n + 8);
    }
}

template <class Base>
struct BitPieces : Base {
    using typename Base::Isa;

    static constexpr std::size_t u_stride(std::size_t num_inputs) {
        return padded_inputs(num_inputs);
    }

    static void add_bits(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                         std::uint32_t total, bool first, std::size_t num_inputs, std::int32_t* u) {
        std::uint32_t any = 0;
        for (std::size_t e = 0; e < count; ++e) any |= q[e];
        // Four weights of up to 6 bits add up to one byte, of up to 13 to two whose higher one is
        // below 128, of up to 20 to three.
        static_assert(most_edge_bits + 2 <= 23);
        if (any < 1u << 6) {
            add_planes<1>(rows, q, count, total, first, num_inputs, u);
        } else if (any < 1u << 13) {
            add_planes<2>(rows, q, count, total, first, num_inputs, u);
        } else {
            add_planes<3>(rows, q, count, total, first, num_inputs, u);
        }
    }

    // Past the last neighbour, up to the next whole unit, weights are 0 and pointers readable.
    template <int planes>
    static void add_planes(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                           std::uint32_t total, bool first, std::size_t num_inputs,
                           std::int32_t* u) {
        alignas(16) std::uint8_t tables[chunk / unit * 32 * planes];
        alignas(16) std::uint8_t places[chunk / unit * slab];
        const std::size_t num_units = (count + unit - 1) / unit;
        for (std::size_t m = 0; m < num_units; ++m) {
            std::uint8_t* to = tables + m * 32 * planes;
            make_subset_sums<planes>(q + m * unit, 0, to, 32);
            make_subset_sums<planes>(q + m * unit + 4, 0, to + 16, 32);
        }
        const std::size_t num_bytes = 8 * words_per_row(num_inputs);
        for (std::size_t at = 0; at < num_bytes; at += 16) {
            for (std::size_t m = 0; m < num_units; ++m) {
                const std::byte* const* from = rows + m * unit;
                for (std::size_t n = 0; n < unit; ++n) __builtin_prefetch(from[n + ahead] + at);
                if (at + 16 <= num_bytes) {
                    make_places<true>(from, at, places + m * slab);
                } else {
                    make_places<false>(from, at, places + m * slab);
                }
            }
            for (std::size_t k = 0; k < slab; k += 32) {
                look_up_sums<planes>(tables, places + k, num_units, total, first, u + 8 * at + k);
            }
        }
        // The product reads whole slabs: inputs past the last must be 0.
        for (std::size_t k = num_inputs; k < padded_inputs(num_inputs); ++k) u[place_of(k)] = 0;
    }
};

}  // namespace bignn::neon
