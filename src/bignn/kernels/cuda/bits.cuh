// Way G: weighted sums of neighbours' bits, p_k = sum of q_j over the neighbours whose bit k is 1.
//
// A warp takes 128 neighbours at a time, four per lane. Their bits are transposed, so that a register
// has one input's bits of 32 neighbours, the weights' bits likewise, and binary tensor cores count
// the bits that two such registers share: for 16 inputs and 8 planes of weights at once. Rows of up
// to 32 or 64 neighbours share a transposition, four or two of them.
//
// p is stored as bytes, least first (digits): [row, 4, inputs], with inputs in blocks of 128. Within
// a block, lane l = 4 g + t has inputs 32 w + 8 t + g at the places 4 l + w.
#pragma once

#include "weights.cuh"

struct SumBits {
    const i64* offsets;
    const int* ids;
    const u8* q;
    const u32* words;
    i64 word_stride;  // a multiple of 4, that is of 128 bits
    const u32* totals;
    const int* rows;  // rows that share transpositions; of long ones, one per piece
    i64 num_rows;
    // Of rows of more than 64 neighbours: pieces of at most long_row entries.
    const i64* piece_begins;
    const int* piece_slots;  // -1 where the piece is the whole row
    u32* sums;               // [long rows, inputs], added up of pieces
    u8* digits;
    i64 first_row;  // the row that `digits` begins with
};

// Exchanges bits 0 ... 2 of the place of a bit with bits 2 ... 4 of the number of its lane: each
// 8 x 8 bits of the same byte in lanes t, 4 + t, ..., 28 + t are transposed.
__device__ inline u32 transpose_bits(u32 x) {
    const int lane = lane_id();
#pragma unroll
    for (int step = 4; step > 0; step /= 2) {
        const u32 low = step == 4 ? 0x0f0f0f0fu : step == 2 ? 0x33333333u : 0x55555555u;
        const bool is_upper = lane & (4 * step);
        const u32 kept = is_upper ? ~low : low;
        const u32 taken = rotate_left(shuffle_xor(x, 4 * step), is_upper ? 32 - step : step);
        x = (x & kept) | (taken & ~kept);
    }
    return x;
}

// Puts counts of planes together: lane 4 g + t gets the sum of input 8 t + g.
__device__ inline u32 put_together(const int (&low)[4], const int (&high)[4]) {
    const int t = lane_id() % 4;
    const auto weighted = [&](int even, int odd) {
        return (static_cast<u32>(even) + 2 * static_cast<u32>(odd)) << (2 * t);
    };
    const u32 z0 = weighted(low[0], low[1]), z1 = weighted(low[2], low[3]);
    const u32 z2 = weighted(high[0], high[1]), z3 = weighted(high[2], high[3]);
    const bool is_odd = t & 1, is_high = t & 2;
    const u32 a = (is_odd ? z1 : z0) + shuffle_xor(is_odd ? z0 : z1, 1);
    const u32 b = (is_odd ? z3 : z2) + shuffle_xor(is_odd ? z2 : z3, 1);
    return (is_high ? b : a) + shuffle_xor(is_high ? a : b, 2);
}

__device__ inline void store_digits(u8* digits, i64 row, i64 inputs, i64 place, u32 total,
                                    const u32 (&p)[4]) {
    const int count = digits_of(total);
    for (int digit = 0; digit < count; ++digit) {
        const u32 pick = digit | (digit + 4) << 4;
        const u32 four =
            __byte_perm(__byte_perm(p[0], p[1], pick), __byte_perm(p[2], p[3], pick), 0x5410);
        *reinterpret_cast<u32*>(digits + (row * 4 + digit) * inputs + place) = four;
    }
}

struct alignas(16) Words4 {
    u32 words[4];
};

// The four neighbours that a lane has at a time, and the transposed weights of all 128.
struct Neighbours {
    const u32* words[4];  // null where there is none
    u32 planes;
};

__device__ inline void load_words(const Neighbours& from, i64 block, Words4 (&x)[4]) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        x[r] = Words4{};
        if (from.words[r]) {
            x[r] = *reinterpret_cast<const Words4*>(from.words[r] + 4 * block);
        }
    }
}

// The bits of inputs 32 w ... of 128 neighbours, in the order that multiply_bits takes.
__device__ inline void transposed(const Words4 (&x)[4], int w, u32 (&bits)[4]) {
    const u32 given[4] = {x[0].words[w], x[1].words[w], x[2].words[w], x[3].words[w]};
    transpose_bytes(given, bits);
#pragma unroll
    for (int i = 0; i < 4; ++i) bits[i] = transpose_bits(bits[i]);
}

// Rows of up to 128 / nodes neighbours, `nodes` of them per warp.
template <int nodes>
__device__ void sum_bits_of_rows(const SumBits& from) {
    constexpr int parts = 4 / nodes;  // of 32 neighbours, of a row
    const i64 first = warp_in_grid() * nodes;
    if (first >= from.num_rows) return;
    i64 row[nodes], begin[nodes], count[nodes];
#pragma unroll
    for (int n = 0; n < nodes; ++n) {
        row[n] = first + n < from.num_rows ? from.rows[first + n] : -1;
        begin[n] = row[n] < 0 ? 0 : from.offsets[row[n]];
        count[n] = row[n] < 0 ? 0 : from.offsets[row[n] + 1] - begin[n];
    }
    Neighbours lane;
    u32 weights = 0;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
        const int n = r / parts, at = r % parts * warp_lanes + lane_id();
        lane.words[r] = nullptr;
        if (at < count[n]) {
            const i64 e = begin[n] + at;
            lane.words[r] = from.words + from.ids[e] * from.word_stride;
            weights |= static_cast<u32>(from.q[e]) << (8 * r);
        }
    }
    lane.planes = transpose_bits(weights);
    const i64 inputs = 32 * from.word_stride;
    for (i64 block = 0; block < from.word_stride / 4; ++block) {
        Words4 x[4];
        load_words(lane, block, x);
        u32 p[nodes][4];
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            u32 bits[4];
            transposed(x, w, bits);
#pragma unroll
            for (int n = 0; n < nodes; ++n) {
                // Byte r of a lane's register is of its neighbour r.
                const u32 own = nodes == 4 ? 0xffu << (8 * n) : 0xffffu << (16 * n);
                int low[4] = {}, high[4] = {};
                multiply_bits(low, bits[0], bits[1], lane.planes & own);
                multiply_bits(high, bits[2], bits[3], lane.planes & own);
                p[n][w] = put_together(low, high);
            }
        }
#pragma unroll
        for (int n = 0; n < nodes; ++n) {
            if (row[n] < 0) continue;
            store_digits(from.digits, row[n] - from.first_row, inputs, 128 * block + 4 * lane_id(),
                         from.totals[row[n]], p[n]);
        }
    }
}

extern "C" __global__ void sum_bits_of_4_rows(SumBits from) { sum_bits_of_rows<4>(from); }
extern "C" __global__ void sum_bits_of_2_rows(SumBits from) { sum_bits_of_rows<2>(from); }

// Pieces of rows of any length, one per warp.
extern "C" __global__ void sum_bits_of_pieces(SumBits from) {
    const i64 piece = warp_in_grid();
    if (piece >= from.num_rows) return;
    const i64 row = from.rows[piece], begin = from.piece_begins[piece];
    const i64 stop = from.offsets[row + 1];
    const i64 end = stop - begin < long_row ? stop : begin + long_row;
    const i64 slot = from.piece_slots[piece], inputs = 32 * from.word_stride;
    for (i64 block = 0; block < from.word_stride / 4; ++block) {
        int low[4][4] = {}, high[4][4] = {};
        for (i64 first = begin; first < end; first += 128) {
            Neighbours lane;
            u32 weights = 0;
#pragma unroll
            for (int r = 0; r < 4; ++r) {
                const i64 e = first + r * warp_lanes + lane_id();
                lane.words[r] = nullptr;
                if (e < end) {
                    lane.words[r] = from.words + from.ids[e] * from.word_stride;
                    weights |= static_cast<u32>(from.q[e]) << (8 * r);
                }
            }
            Words4 x[4];
            load_words(lane, block, x);
            lane.planes = transpose_bits(weights);
#pragma unroll
            for (int w = 0; w < 4; ++w) {
                u32 bits[4];
                transposed(x, w, bits);
                multiply_bits(low[w], bits[0], bits[1], lane.planes);
                multiply_bits(high[w], bits[2], bits[3], lane.planes);
            }
        }
        u32 p[4];
#pragma unroll
        for (int w = 0; w < 4; ++w) p[w] = put_together(low[w], high[w]);
        const i64 place = 128 * block + 4 * lane_id();
        if (slot < 0) {
            store_digits(from.digits, row - from.first_row, inputs, place, from.totals[row], p);
        } else {
            for (int w = 0; w < 4; ++w) atomicAdd(from.sums + slot * inputs + place + w, p[w]);
        }
    }
}

struct StoreSums {
    const u32* sums;  // [long rows, inputs]
    const int* rows;  // the long rows
    const int* slots;
    i64 num_rows, inputs, first_row;
    const u32* totals;
    u8* digits;
};

// Stores the sums of long rows as digits: a thread per four inputs.
extern "C" __global__ void store_sums(StoreSums from) {
    const i64 quads = from.inputs / 4;
    const i64 thread = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (thread >= from.num_rows * quads) return;
    const i64 number = thread / quads, place = thread % quads * 4;
    const u32* sums = from.sums + from.slots[number] * from.inputs + place;
    const u32 p[4] = {sums[0], sums[1], sums[2], sums[3]};
    const i64 row = from.rows[number];
    store_digits(from.digits, row - from.first_row, from.inputs, place, from.totals[row], p);
}
