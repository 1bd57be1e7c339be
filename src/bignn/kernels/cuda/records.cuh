// Way T: products of bits as small numbers (records), and sums of records over neighbours.
//
// Position p of a record is column p % padded of head p / padded, where a head's channels are
// padded to whole fours; F_j . B = center + 2 v_j as in csrc/kernels.h. A lane works on four
// positions.
#pragma once

#include "finish.cuh"
#include "weights.cuh"

struct RecordsOfBits {
    const u32* words;
    i64 word_stride, num_words, num_sources;
    const u32* columns;         // B as bits [words, positions]; 0 in positions of no column
    const int* base;            // [positions], v = base - popcount(row ^ column)
    const u8* is_used;          // [positions], whether there is such a column
    i64 num_positions, stride;  // numbers, and from one record to the next
    void* records;
    int* overflowed;  // set where a value did not fit
};

constexpr int record_rows = 8;  // rows that a warp works on at a time

template <class Value>
__device__ void make_records(const RecordsOfBits& from) {
    const i64 first = warp_in_grid() * record_rows;
    if (first >= from.num_sources) return;
    auto* records = static_cast<Value*>(from.records);
    for (i64 p = lane_id(); p < from.num_positions; p += warp_lanes) {
        u32 differing[record_rows] = {};
        for (i64 w = 0; w < from.num_words; ++w) {
            const u32 column = from.columns[w * from.num_positions + p];
#pragma unroll
            for (int r = 0; r < record_rows; ++r) {
                const i64 row = first + r < from.num_sources ? first + r : first;
                differing[r] += __popc(from.words[row * from.word_stride + w] ^ column);
            }
        }
        const bool counts = from.is_used[p];
#pragma unroll
        for (int r = 0; r < record_rows; ++r) {
            const int v = from.base[p] - static_cast<int>(differing[r]);
            const Value stored = static_cast<Value>(v);
            if (counts && stored != v) *from.overflowed = 1;
            if (first + r < from.num_sources) records[(first + r) * from.stride + p] = stored;
        }
    }
}

extern "C" __global__ void make_records_8(RecordsOfBits from) { make_records<s8>(from); }
extern "C" __global__ void make_records_16(RecordsOfBits from) { make_records<s16>(from); }

struct SumRecords {
    const i64* offsets;
    const int* ids;
    const void* q;  // [heads, entries]
    i64 num_entries;
    const u32* totals;  // [heads, rows]
    const void* records;
    i64 num_positions, stride, padded;  // padded: positions of a head
    const int* center;                  // [positions]
    // Of long rows: pieces of at most long_row entries, whose sums are added up in `sums`.
    const int* piece_rows;
    const i64* piece_begins;
    const int* piece_slots;
    i64 num_pieces;
    i64* sums;  // [long rows, positions]
    const int* long_rows;
    i64 num_long_rows;
    Finish finish;
};

constexpr int lane_positions = 4;
constexpr int rows_of_warp = 2;  // one per half when they are finished

// acc += sum over the entries e, e + 1, ... e + 3 of q v, for four positions.
template <class Q, class Value>
struct Quad {
    using Sum = i64;
    __device__ static void add(const Q* q, const int* ids, i64 e, i64 end, const Value* records,
                               i64 stride, Sum (&acc)[4]) {
        for (i64 at = e; at < e + 4 && at < end; ++at) {
            const Value* v = records + ids[at] * stride;
            for (int k = 0; k < 4; ++k) acc[k] += static_cast<i64>(q[at]) * v[k];
        }
    }
};

// At most long_row products of 8 and 7 bits each: 32 bits hold their sum.
template <>
struct Quad<u8, s8> {
    using Sum = int;
    __device__ static void add(const u8* q, const int* ids, i64 e, i64 end, const s8* records,
                               i64 stride, Sum (&acc)[4]) {
        u32 weights = 0, v[4], columns[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            // Past the end, the last entry stands in with a weight of 0.
            const bool is_there = e + i < end;
            const i64 at = is_there ? e + i : end - 1;
            v[i] = *reinterpret_cast<const u32*>(records + ids[at] * stride);
            weights |= (is_there ? static_cast<u32>(q[at]) : 0u) << (8 * i);
        }
        transpose_bytes(v, columns);
#pragma unroll
        for (int k = 0; k < 4; ++k) acc[k] = dot_bytes(columns[k], weights, acc[k]);
    }
};

__device__ inline i64 head_of(const SumRecords& from, i64 position) {
    if (from.padded == from.num_positions) return 0;
    return static_cast<u32>(position) / static_cast<u32>(from.padded);
}

// Sums entries [begin, end) of the positions from `first` on, up to 128 of them: lanes are groups,
// each of which takes four entries at a time. done(position, sum) is called for each position.
template <class Q, class Value, class Done>
__device__ void sum_entries(const SumRecords& from, i64 begin, i64 end, i64 first, Done done) {
    const u32 rest = static_cast<u32>(from.num_positions - first) / lane_positions;
    const u32 wide = rest < warp_lanes ? rest : warp_lanes;
    const int width = static_cast<int>(wide), groups = static_cast<int>(warp_lanes / wide);
    const int group = static_cast<int>(static_cast<u32>(lane_id()) / wide);
    const int part = lane_id() - group * width;
    const i64 position = first + part * lane_positions;
    const Q* q = static_cast<const Q*>(from.q) + head_of(from, position) * from.num_entries;
    const Value* records = static_cast<const Value*>(from.records) + position;
    typename Quad<Q, Value>::Sum acc[4] = {};
    if (group < groups) {
        for (i64 e = begin + group * 4; e < end; e += groups * 4) {
            Quad<Q, Value>::add(q, from.ids, e, end, records, from.stride, acc);
        }
    }
    for (int step = 16; step > 0; step /= 2) {
        if (step >= groups) continue;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const auto other = shuffle_down(acc[k], step * width);
            if (group < step && group + step < groups) acc[k] += other;
        }
    }
    if (group == 0) {
        for (int k = 0; k < 4; ++k) done(position + k, static_cast<i64>(acc[k]));
    }
}

// Writes the sum of a position as a float to where its column stands.
__device__ inline void place_sum(const SumRecords& from, i64 row, i64 position, i64 sum,
                                 float* sums) {
    const i64 head = head_of(from, position), channel = position - head * from.padded;
    if (channel >= from.finish.channels) return;
    const u32 total = from.totals[head * from.finish.num_rows + row];
    sums[head * from.finish.channels + channel] =
        __ll2float_rn(static_cast<i64>(from.center[position]) * total + 2 * sum);
}

// A warp sums two rows into its shared memory and finishes them; longer rows are left to pieces.
template <class Q, class Value>
__device__ void sum_records(const SumRecords& from) {
    DYNAMIC_SHARED(shared);
    const Finish& finish = from.finish;
    const i64 first = warp_in_grid() * rows_of_warp;
    if (first >= finish.num_rows) return;
    float* sums =
        reinterpret_cast<float*>(shared) + warp_in_block() * rows_of_warp * finish.num_columns;
    bool is_short[rows_of_warp];
    for (int r = 0; r < rows_of_warp; ++r) {
        const i64 row = first + r;
        is_short[r] = row < finish.num_rows;
        if (!is_short[r]) continue;
        const i64 begin = from.offsets[row], end = from.offsets[row + 1];
        is_short[r] = end - begin <= long_row;
        if (!is_short[r]) continue;
        for (i64 p = 0; p < from.num_positions; p += warp_lanes * lane_positions) {
            sum_entries<Q, Value>(from, begin, end, p, [&](i64 position, i64 sum) {
                place_sum(from, row, position, sum, sums + r * finish.num_columns);
            });
        }
    }
    sync_warp();
    const int half = lane_id() / 16;
    finish_rows(finish, first + half, half == 0 ? is_short[0] : is_short[1],
                sums + half * finish.num_columns);
}

// A warp sums a piece of a long row.
template <class Q, class Value>
__device__ void sum_pieces(const SumRecords& from) {
    const i64 piece = warp_in_grid();
    if (piece >= from.num_pieces) return;
    const i64 begin = from.piece_begins[piece];
    const i64 stop = from.offsets[from.piece_rows[piece] + 1];
    const i64 end = stop - begin < long_row ? stop : begin + long_row;
    i64* sums = from.sums + from.piece_slots[piece] * from.num_positions;
    for (i64 p = 0; p < from.num_positions; p += warp_lanes * lane_positions) {
        sum_entries<Q, Value>(from, begin, end, p, [&](i64 position, i64 sum) {
            atomicAdd(reinterpret_cast<u64*>(sums + position), static_cast<u64>(sum));
        });
    }
}

// Finishes long rows from the sums of their pieces.
extern "C" __global__ void finish_long_rows(SumRecords from) {
    DYNAMIC_SHARED(shared);
    const Finish& finish = from.finish;
    const i64 first = warp_in_grid() * rows_of_warp;
    if (first >= from.num_long_rows) return;
    float* sums =
        reinterpret_cast<float*>(shared) + warp_in_block() * rows_of_warp * finish.num_columns;
    for (int r = 0; r < rows_of_warp && first + r < from.num_long_rows; ++r) {
        for (i64 p = lane_id(); p < from.num_positions; p += warp_lanes) {
            place_sum(from, from.long_rows[first + r], p,
                      from.sums[(first + r) * from.num_positions + p],
                      sums + r * finish.num_columns);
        }
    }
    sync_warp();
    const int half = lane_id() / 16;
    const bool is_there = first + half < from.num_long_rows;
    finish_rows(finish, is_there ? from.long_rows[first + half] : 0, is_there,
                sums + half * finish.num_columns);
}

extern "C" __global__ void sum_records_q8_v8(SumRecords from) { sum_records<u8, s8>(from); }
extern "C" __global__ void sum_records_q8_v16(SumRecords from) { sum_records<u8, s16>(from); }
extern "C" __global__ void sum_records_q32_v8(SumRecords from) { sum_records<u32, s8>(from); }
extern "C" __global__ void sum_records_q32_v16(SumRecords from) { sum_records<u32, s16>(from); }
extern "C" __global__ void sum_pieces_q8_v8(SumRecords from) { sum_pieces<u8, s8>(from); }
extern "C" __global__ void sum_pieces_q8_v16(SumRecords from) { sum_pieces<u8, s16>(from); }
extern "C" __global__ void sum_pieces_q32_v8(SumRecords from) { sum_pieces<u32, s8>(from); }
extern "C" __global__ void sum_pieces_q32_v16(SumRecords from) { sum_pieces<u32, s16>(from); }
