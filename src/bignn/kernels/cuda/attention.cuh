// Attention: scores of all sources, and the integer weights that they give neighbours.
#pragma once

#include "weights.cuh"

// out[n][i] = fl(F_i . V_n) * sigma[n] * factor[i]; V_n are whole numbers, one per bit.
struct Scoring {
    const u32* words;
    i64 word_stride, num_words, num_sources, count;
    const int* values;  // [count, 32 * num_words]
    const float* sigma;
    const float* factor;
    float* out;  // [count, num_sources]
};

extern "C" __global__ void score_sources(Scoring from) {
    const i64 source = warp_in_grid();
    if (source >= from.num_sources) return;
    const u32* row = from.words + source * from.word_stride;
    for (i64 n = 0; n < from.count; ++n) {
        const int* values = from.values + n * from.num_words * 32;
        u32 sum = 0;
        for (i64 w = 0; w < from.num_words; ++w) {
            const u32 value = static_cast<u32>(values[w * 32 + lane_id()]);
            sum += row[w] >> lane_id() & 1 ? value : 0u - value;
        }
        sum = combined<warp_lanes>(sum, Added());
        if (lane_id() == 0) {
            from.out[n * from.num_sources + source] = bounded_score(
                static_cast<float>(static_cast<int>(sum)) * from.sigma[n] * from.factor[source]);
        }
    }
}

struct Attending {
    const i64* offsets;
    const int* ids;
    const float* source_factor;
    const int* own_ids;    // null: row i is source i
    const float* scores;   // [2 heads, sources], of sources and then of targets
    const int* long_rows;  // as in Weighing
    i64 num_rows;          // of the graph, or of long_rows
    i64 all_rows, num_sources, num_entries, heads, edge_bits;
    const float* slope;
    u8* q8;  // [heads, entries], one of these two is null
    u32* q32;
    float* row_scale;  // [heads, rows]
    u32* totals;       // [heads, rows]
};

// Block (x, y) works on rows x of head y.
template <int lanes>
__device__ void attend(const Attending& from) {
    const LaneRow at = lane_row<lanes>(from.offsets, from.long_rows, from.num_rows);
    const i64 head = blockIdx.y;
    const float slope = *from.slope;
    const float* source = from.scores + head * from.num_sources;
    const i64 own = from.own_ids ? from.own_ids[at.row] : at.row;
    const float target = from.scores[(from.heads + head) * from.num_sources + own];
    float largest = -largest_score;
    for (i64 e = at.begin + at.lane; e < at.end; e += lanes) {
        largest = Larger()(largest, source[from.ids[e]]);
    }
    largest = combined<lanes>(largest, Larger());
    const float top = leaky(target + largest, slope);
    const auto share = [&](i64 e) {
        return exp_of_negative(leaky(target + source[from.ids[e]], slope) - top);
    };
    float most = 0.0f;
    u64 shares = 0;
    for (i64 e = at.begin + at.lane; e < at.end; e += lanes) {
        const float p = share(e);
        shares += static_cast<u32>(__float2int_rn(p * static_cast<float>(1 << share_bits)));
        most = Larger()(most, bounded(p * from.source_factor[from.ids[e]]));
    }
    most = combined<lanes>(most, Larger());
    shares = combined<lanes>(shares, Added());
    const RowWeights weights =
        row_weights(most, at.end - at.begin, share_of(shares), static_cast<int>(from.edge_bits));
    u32 total = 0;
    for (i64 e = at.begin + at.lane; e < at.end; e += lanes) {
        const float x = bounded(share(e) * from.source_factor[from.ids[e]]);
        const u32 q = rounded_weight(x, weights);
        store_weight(from.q8, from.q32, head * from.num_entries + e, q);
        total += q;
    }
    total = combined<lanes>(total, Added());
    if (at.is_there && at.lane == 0) {
        from.row_scale[head * from.all_rows + at.row] = weights.scale;
        from.totals[head * from.all_rows + at.row] = total;
    }
}

extern "C" __global__ void attend_short_rows(Attending from) { attend<short_lanes>(from); }
extern "C" __global__ void attend_long_rows(Attending from) { attend<long_lanes>(from); }
