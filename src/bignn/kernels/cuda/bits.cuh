// Way G: weighted sums of neighbours' bits, p_k = sum of q_j over the neighbours whose bit k is 1.
//
// A warp sums eight rows at a time on byte tensor cores, d += A B: a row of A has one input's bits
// of 32 entries, a column of B the weights of these entries that belong to one row, and 0 for
// others. So the entries of eight rows that follow each other are taken as one stream. With g =
// lane / 4 and t = lane % 4, a lane has the entries 4 t ... 4 t + 3 and 16 + 4 t ... of 32, and of
// each of these neighbours the word g of the inputs: it makes its registers of A by itself, from
// the bytes of four words, and nothing goes from lane to lane. A bit is left at its place i in a
// byte, so that its sum comes out 2^i times too large.
#pragma once

#include "weights.cuh"

struct SumBits {
    const i64* offsets;
    const int* ids;  // like q, with entry_padding more that can be read
    const u8* q;
    const u32* words;
    i64 inputs;  // padded to 128: the bits of a row
    i64 num_rows;
    const int* long_rows;  // rows of more than long_row entries, rising
    i64 num_long_rows;
    u32* sums;  // [long rows, inputs], added up of pieces
};

constexpr int group_rows = 8;  // rows summed at a time
constexpr int many_rows = 16;  // rows of a tile that is multiplied, if two digits hold their sums
constexpr u32 each_byte = 0x01010101u;

// Whether a byte's number is below `count`: 0xff in the bytes that are.
__device__ inline u32 bytes_below(int count) {
    return shift_right(0xffffffffu, static_cast<u32>(32 - 8 * (count < 4 ? count : 4)));
}

struct alignas(16) Ids4 {
    int ids[4];
};

// Entries that are in flight: 32 of words of 64 bits, whose sums take most registers, or 64.
template <class Word>
constexpr int run_entries = sizeof(Word) == 8 ? 32 : 64;

// Of the entries in flight a lane has quads, four that follow each other: their words and weights.
template <class Word>
struct Entries {
    static constexpr int quads = run_entries<Word> / 16;
    Word words[4 * quads];
    u32 weights[quads];
};
template <class Word>
using QuadIds = Ids4[Entries<Word>::quads];

template <class Word>
__device__ inline void load_ids(const SumBits& from, i64 e, QuadIds<Word>& ids) {
#pragma unroll
    for (int i = 0; i < Entries<Word>::quads; ++i) {
        ids[i] = *reinterpret_cast<const Ids4*>(from.ids + e + 16 * i + 4 * (lane_id() % 4));
    }
}

template <class Word>
__device__ inline void load_entries(const SumBits& from, i64 e, const Word* words,
                                    const QuadIds<Word>& ids, Entries<Word>& to) {
    const u32 stride = static_cast<u32>(from.inputs) / 8;
    const u8* bytes = reinterpret_cast<const u8*>(words);
#pragma unroll
    for (int i = 0; i < Entries<Word>::quads; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const u64 place = static_cast<u64>(static_cast<u32>(ids[i].ids[j])) * stride;
            to.words[4 * i + j] = *reinterpret_cast<const Word*>(bytes + place);
        }
        to.weights[i] = *reinterpret_cast<const u32*>(from.q + e + 16 * i + 4 * (lane_id() % 4));
    }
}

// Sums of a lane: bit 8 b + i of its word (i < 4) is number 4 b + i, for the rows 2 t, 2 t + 1 of
// the eight, then bit 8 b + i + 4 for them; 2^i or 2^(i + 4) times too large.
template <class Word>
using BitSums = int[4 * sizeof(Word)][4];

// Adds 32 entries to sums; the lane's own row (that of column g) has [low, high) of them.
template <class Word>
__device__ inline void add_entries(const Word* words, const u32* weights, int low, int high,
                                   BitSums<Word>& sums) {
    const int quad = 4 * (lane_id() % 4);
    const u32 b0 = weights[0] & bytes_below(high - quad) & ~bytes_below(low - quad);
    const u32 b1 = weights[1] & bytes_below(high - quad - 16) & ~bytes_below(low - quad - 16);
#pragma unroll
    for (int half = 0; half < (sizeof(Word) == 8 ? 2 : 1); ++half) {
        u32 first[4], second[4], near[4], far[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            first[i] = static_cast<u32>(static_cast<u64>(words[i]) >> (32 * half));
            second[i] = static_cast<u32>(static_cast<u64>(words[4 + i]) >> (32 * half));
        }
        transpose_bytes(first, near);
        transpose_bytes(second, far);
#pragma unroll
        for (int b = 0; b < (sizeof(Word) == 2 ? 2 : 4); ++b) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u32 low_bit = each_byte << i, high_bit = each_byte << (i + 4);
                multiply_bytes(sums[16 * half + 4 * b + i], near[b] & low_bit, near[b] & high_bit,
                               far[b] & low_bit, far[b] & high_bit, b0, b1);
            }
        }
    }
}

// Adds the entries [begin, end) to sums. The lane's own row has [own_begin, own_end); `words` is
// where the lane's word of source 0 stands.
template <class Word>
__device__ inline void add_run(const SumBits& from, i64 begin, i64 end, i64 own_begin, i64 own_end,
                               const Word* words, BitSums<Word>& sums) {
    constexpr int step = run_entries<Word>;
    if (begin >= end) return;
    i64 e = begin & ~i64{3};
    int low = static_cast<int>(own_begin - e), high = static_cast<int>(own_end - e);
    QuadIds<Word> ids;
    Entries<Word> next;
    load_ids<Word>(from, e, ids);
    load_entries<Word>(from, e, words, ids, next);
    if (e + step < end) load_ids<Word>(from, e + step, ids);
    for (; e < end; e += step) {
        const Entries<Word> now = next;
        if (e + step < end) {
            load_entries<Word>(from, e + step, words, ids, next);
            if (e + 2 * step < end) load_ids<Word>(from, e + 2 * step, ids);
        }
        add_entries<Word>(now.words, now.weights, low, high, sums);
        if (step > 32 && e + 32 < end) {
            add_entries<Word>(now.words + 8, now.weights + 2, low - 32, high - 32, sums);
        }
        low -= step;
        high -= step;
    }
}

// p of a lane's word, for the first (0) or second (1) of its two rows.
template <class Word>
__device__ inline u32 bit_sum(const BitSums<Word>& sums, int bit, int second) {
    return static_cast<u32>(sums[bit / 8 * 4 + bit % 4][bit % 8 / 4 * 2 + second]) >> bit % 8;
}

// Digits of a tile's sums in shared memory, [2 digits, 8 pairs of rows, stride]: of rows 2 j and
// 2 j + 1, four inputs of the one and four of the other in turn, which is how tensor cores take
// them. A wide tile has eight rows, and the upper two digits of row j instead of the other row.
struct Digits {
    u8* bytes;
    int stride;  // 64 more than a multiple of 128: pairs fall into different banks
    bool is_wide;
};

constexpr int tile_pairs = 8;

__device__ inline u8* digits_at(const Digits& to, int digit, int pair, int input) {
    return to.bytes + (digit * tile_pairs + pair) * to.stride + 2 * input;
}

// The bytes number `digit` of four numbers.
__device__ inline u32 digits_of_four(const u32* p, int digit) {
    const u32 pick = digit | (digit + 4) << 4;
    return __byte_perm(__byte_perm(p[0], p[1], pick), __byte_perm(p[2], p[3], pick), 0x5410);
}

// Stores the sums of the lane's word as digits, and adds them to `all`, for rows 2 t and 2 t + 1.
template <class Word>
__device__ inline void store_digits(const Digits& to, int first_row, int slice,
                                    const BitSums<Word>& sums, u32 (&all)[2]) {
    constexpr int bits = 8 * sizeof(Word);
    const int g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (int eight = 0; eight < bits; eight += 8) {
        const int input = slice + bits * g + eight;
        u32 p[2][8];
#pragma unroll
        for (int second = 0; second < 2; ++second) {
#pragma unroll
            for (int bit = 0; bit < 8; ++bit) {
                p[second][bit] = bit_sum<Word>(sums, eight + bit, second);
                all[second] += p[second][bit];
            }
        }
        const auto store = [&](int digit, int pair, const u32* even, int of_even, const u32* odd,
                               int of_odd) {
            *reinterpret_cast<Words4*>(digits_at(to, digit, pair, input)) =
                Words4{{digits_of_four(even, of_even), digits_of_four(odd, of_odd),
                        digits_of_four(even + 4, of_even), digits_of_four(odd + 4, of_odd)}};
        };
#pragma unroll
        for (int digit = 0; digit < 2; ++digit) {
            if (to.is_wide) {
                store(digit, 2 * t, p[0], digit, p[0], digit + 2);
                store(digit, 2 * t + 1, p[1], digit, p[1], digit + 2);
            } else {
                store(digit, first_row / 2 + t, p[0], digit, p[1], digit);
            }
        }
    }
}

// Sums the inputs from `slice` on of eight rows, as many as 8 words have, and stores them.
// `is_long` has a bit per row that is left out.
template <class Word>
__device__ void sum_slice(const SumBits& from, i64 first, u32 is_long, int slice, const Digits& to,
                          int first_row, u32 (&all)[2]) {
    const int g = lane_id() / 4;
    const auto offset = [&](i64 row) {
        return from.offsets[row < from.num_rows ? row : from.num_rows];
    };
    const i64 own_begin = offset(first + g);
    const i64 own_end = is_long >> g & 1 ? own_begin : offset(first + g + 1);
    const Word* words = reinterpret_cast<const Word*>(from.words + slice / 32) + g;
    BitSums<Word> sums = {};
    for (int row = 0; row < group_rows;) {
        int end = row;
        while (end < group_rows && !(is_long >> end & 1)) ++end;
        add_run<Word>(from, offset(first + row), offset(first + end), own_begin, own_end, words,
                      sums);
        row = end + 1;
    }
    store_digits<Word>(to, first_row, slice, sums, all);
}

// Takes the sums of a long row from where its pieces were added up.
__device__ inline u64 take_long_row(const SumBits& from, i64 row, const Digits& to, int tile_row) {
    i64 slot = 0, end = from.num_long_rows;
    while (end - slot > 1) {
        const i64 middle = (slot + end) / 2;
        (from.long_rows[middle] <= row ? slot : end) = middle;
    }
    u64 all = 0;
    for (i64 input = 4 * lane_id(); input < from.inputs; input += 4 * warp_lanes) {
        const Words4 p = *reinterpret_cast<const Words4*>(from.sums + slot * from.inputs + input);
        for (int i = 0; i < 4; ++i) all += p.words[i];
        for (int digit = 0; digit < (to.is_wide ? 4 : 2); ++digit) {
            const int pair = to.is_wide ? tile_row : tile_row / 2;
            const int place = to.is_wide ? digit / 2 : tile_row % 2;
            reinterpret_cast<u32*>(digits_at(to, digit % 2, pair, static_cast<int>(input)))[place] =
                digits_of_four(p.words, digit);
        }
    }
    return combined<warp_lanes>(all, Added());
}

// Sums the bits of eight rows into rows of a tile, and sum_k p_k of each into `all_ones`; in slices
// of 8 words of up to Largest.
template <class Largest>
__device__ inline void sum_group(const SumBits& from, i64 first, const Digits& to, int first_row,
                                 u64* all_ones) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    u32 is_long = 0;
    for (int row = 0; row < group_rows; ++row) {
        if (first + row >= from.num_rows) break;
        const i64 count = from.offsets[first + row + 1] - from.offsets[first + row];
        if (count > long_row) is_long |= 1u << row;
    }
    u32 all[2] = {};
#pragma unroll 1
    for (int slice = 0; slice < from.inputs;) {
        if (sizeof(Largest) == 8 && from.inputs - slice >= 512) {
            sum_slice<Largest>(from, first, is_long, slice, to, first_row, all);
            slice += 512;
        } else if (from.inputs - slice >= 256) {
            sum_slice<u32>(from, first, is_long, slice, to, first_row, all);
            slice += 256;
        } else {
            sum_slice<u16>(from, first, is_long, slice, to, first_row, all);
            slice += 128;
        }
    }
#pragma unroll
    for (int second = 0; second < 2; ++second) {
        for (int lanes = 4; lanes < warp_lanes; lanes *= 2) {
            all[second] += shuffle_xor(all[second], lanes);
        }
        if (g == 0) all_ones[first_row + 2 * t + second] = all[second];
    }
    if (is_long == 0) return;
    sync_warp();
    for (int row = 0; row < group_rows; ++row) {
        if (!(is_long >> row & 1)) continue;
        const u64 of_row = take_long_row(from, first + row, to, first_row + row);
        if (lane_id() == 0) all_ones[first_row + row] = of_row;
    }
}

struct LongBits {
    SumBits sum;
    const int* piece_rows;
    const i64* piece_begins;
    const int* piece_slots;
};

template <class Word>
__device__ void add_piece(const SumBits& from, i64 begin, i64 end, i64 slice, u32* sums) {
    const int g = lane_id() / 4, t = lane_id() % 4;
    const Word* words = reinterpret_cast<const Word*>(from.words + slice / 32) + g;
    constexpr int bits = 8 * sizeof(Word);
    BitSums<Word> of_lane = {};
    add_run<Word>(from, begin, end, begin, g == 0 ? end : begin, words, of_lane);
    if (t != 0) return;
#pragma unroll
    for (int bit = 0; bit < bits; ++bit) {
        atomicAdd(sums + slice + bits * g + bit, bit_sum<Word>(of_lane, bit, 0));
    }
}

// Block (x, y) sums 256 inputs from 256 y on of piece x of a long row.
extern "C" __global__ void __launch_bounds__(warp_lanes, 12) sum_bits_of_pieces(LongBits from) {
    const i64 piece = blockIdx.x, slice = 256 * static_cast<i64>(blockIdx.y);
    const i64 begin = from.piece_begins[piece];
    const i64 stop = from.sum.offsets[from.piece_rows[piece] + 1];
    const i64 end = stop - begin < long_row ? stop : begin + long_row;
    u32* sums = from.sum.sums + from.piece_slots[piece] * from.sum.inputs;
    if (from.sum.inputs - slice >= 256) {
        add_piece<u32>(from.sum, begin, end, slice, sums);
    } else {
        add_piece<u16>(from.sum, begin, end, slice, sums);
    }
}
