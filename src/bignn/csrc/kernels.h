// The definition of a layer, and the table of kernels through which an instruction set is called.
//
// A kernel works on a range of rows into buffers its caller owns, so that threads, blocks of a
// file and machines can share one job. isa.h explains how an instruction set provides them, and
// how to add one.
//
// The layer. For node i with neighbours j (itself among them), F and B in +-1:
//
//     h_i = scale * s_i * sum_j w_ij t_j (F_j . B) + shift,       t_j = (j's degree scale) * beta_j
//
// The sum is taken in integers, so that every order of it, every way and every machine agree. The
// weights of row i become q_ij = rint(w_ij t_j 2^e_i), with e_i from the largest of them, hence
// from the row's neighbourhood alone: a whole graph, a part of it and a few nodes' surroundings
// use the same integers. Then
//
//     sum_i = sum_j q_ij (F_j . B)   exactly,   h_i = fl(sum_i) * (s_i 2^-e_i) * scale + shift
//
// with one rounding of the integer to float, then one rounding per operation (no fused
// multiply-add: the files are built with -ffp-contract=off).
//
// Two kinds of layer have more to them. A node may have a part of its own (SAGE):
//
//     h_i = (fl(sum_i) * (s_i 2^-e_i) * scale + fl(F_i . B_own) * t_i * own_scale) + shift
//
// And the weights may come from attention, of several heads with C columns each (GAT). A node's
// scores are sums of whole numbers V over its bits, score = fl(F . V) * sigma * t, two per head.
// With p_ij = exp(leaky(target_i + source_j) - the row's largest), x_ij = p_ij t_j take the place
// of w_ij t_j and s_i = 1 / sum_j p_ij, the sum taken in units of 2^-22. See Attention.
#pragma once

#include "bits.h"

namespace bignn {

constexpr std::size_t panel_width = 16;

// q < 2^edge_bits, a number that a layer has: 17 keeps weights to a hundred-thousandth of the row's
// largest, and 20 is the most. Rows of very many neighbours (2^14 at 17 bits) give up a bit per
// doubling, so that sum_j q_ij < 2^31 always.
constexpr int most_edge_bits = 20;
constexpr int total_bits = 31;
// A row whose largest weight is below this has weights of 0; 2^e then never leaves float's normal
// range.
constexpr float smallest_weight = 0x1p-60f;
// Larger weights, infinite ones and those that are not a number are taken for this one.
constexpr float largest_weight = 1e30f;
// The lookup product of Way::bits adds its bytes in 32 bits.
constexpr std::size_t most_inputs_of_bits = std::size_t{1} << 16;

// Rows are done in tiles, so that a word of B loaded once serves several of them.
constexpr std::size_t tile_rows = 4;
// Rows of few neighbours have their weights done a tile at a time.
constexpr std::size_t few = 16;
// Edges are summed in chunks and looked up in batches; their scratch stays in the first cache.
constexpr std::size_t chunk = 512;
constexpr std::size_t batch = 1024;
// Memory is prefetched this many neighbours before it is needed; `slack` entries past the end of a
// chunk may be read.
constexpr std::size_t ahead = 32;
constexpr std::size_t slack = 64;

// A record holds v_j for all columns, F_j . B = center + 2 v_j: 1, 2 or 4 bytes per column,
// whichever the values fit. The centers make small numbers of large ones; exactness does not
// depend on them. record_column defines the order of columns within a record: it lets the AVX-512
// gather interleave neighbours with unpack instructions and still sum columns in natural order.
struct Records {
    const std::byte* data;
    std::size_t step;    // bytes from one record to the next
    std::size_t offset;  // where the part that is gathered begins (a head's; 0 without heads)
    std::size_t stride;  // bytes of that part
    std::size_t bytes_per_column;
    const std::int32_t* center;  // per column
    std::int32_t max_center;     // the largest |center|
    bool far;                    // too many for the nearer caches: prefetching pays
    int edge_bits;               // bits of the weights that they are multiplied by
};

static constexpr std::size_t record_stride(std::size_t num_columns, std::size_t bytes_per_column) {
    if (bytes_per_column == 1 && num_columns <= 16) return 16;
    return (num_columns * bytes_per_column + 63) / 64 * 64;
}

// The column at a position of a record; one past the last column is padding.
static constexpr std::size_t record_column(std::size_t position, std::size_t stride,
                                           std::size_t bytes_per_column) {
    if (bytes_per_column == 4 || stride == 16) return position;
    const std::size_t per_line = 64 / bytes_per_column, per_lane = 16 / bytes_per_column;
    const std::size_t line = position / per_line, in_line = position % per_line;
    const std::size_t lane = in_line / per_lane, quad = in_line % per_lane / 4;
    return line * per_line + quad * 16 + lane * 4 + in_line % 4;
}

// The columns of B in record order, as bits. Panel p stores, for each half word w, the w-th half
// words of positions p * panel_width ... next to each other (padding is 0): a vector register then
// loads one half word of several columns, a half word of a row is broadcast against it, and no sum
// across lanes is ever needed. (Halves, since 16 counts per register are stored cheaper than 8.)
using half = std::uint32_t;

struct Panels {
    const half* halves;
    std::size_t num_bits;
    const std::int32_t* base;              // per position: v = base - popcount(row ^ column)
    const std::uint16_t* valid;            // per panel: which of its positions hold a column
    std::size_t stride, bytes_per_column;  // of the records they make
    std::size_t line_step;                 // from one table of lines to the next; 0: one of records
};

// Rows of sparse features: row i has the inputs inputs[offsets[i] ... offsets[i + 1]) in which it
// deviates from a base row.
struct SparseRows {
    const std::int64_t* offsets;
    const std::int32_t* inputs;
};

// The signs of B as bytes in record order, stride / bytes_per_column of them per input. With it,
// v = sum over the deviating inputs k of table[k].
struct SignTable {
    const std::int8_t* signs;
    const word* positive;  // the same as bits, where records are whole lines of bytes; else null
    std::size_t stride, bytes_per_column;  // of the records it makes
};

// The neighbours of row i are ids[offsets[i] ... offsets[i + 1]).
struct Edges {
    const std::int64_t* offsets;
    const std::int32_t* ids;  // one of these two is null
    const std::int64_t* long_ids;
    const float* weights;        // null: all 1
    const float* source_factor;  // t_j
    const float* target_factor;  // s_i
    std::size_t num_rows;
};

enum class Way { records, bits };

// How way T takes neighbours by blocks of sources (blocked_rows.h). Records are then stored line by
// line: the one of source j is split into the lines at line_step * line + 64 j.
struct Blocks {
    std::size_t shift;  // log2 of the sources in a block; 0: not in blocks
    std::size_t num_sources;
    std::size_t line_step;
    std::size_t rows;  // of a tile, at most
};

// The weights of a node's own part, F_i . B_own above.
struct Own {
    const half* panels;  // B_own in natural order; null: there is no own part
    const float* scale;
};

// The columns of heads are side by side in B. A record has a part per head, each laid out like a
// whole record; centers (in 64s) and products have such parts, too.
struct Attention {
    std::size_t heads;     // 0: no attention
    std::size_t channels;  // C
    bool averages;         // heads are averaged instead of put side by side
    float slope;           // of leaky
    const float* source;   // [heads, sources]
    const float* target;   // [heads, sources]
    std::size_t num_sources;
    std::size_t product_stride;  // bytes of a head's product
};

// Shares of attention are added in units of 2^-share_bits, a chunk of them in 32 bits.
constexpr int share_bits = 22;
// exp of scores further below the row's largest is taken as 0.
constexpr float lowest_score = -64.0f;
// Scores are limited to this, so that sums and differences of them are numbers.
constexpr float largest_score = 1e30f;

struct Layer {
    Edges edges;
    Way way;
    int edge_bits;
    std::size_t num_inputs, num_outputs;
    Records records;              // Way::records: transform (or sparse bits), then gather
    Blocks blocks;                // Way::records: of sources, where rows have many neighbours
    const word* words;            // Way::bits: gather, then transform; also read for Own
    const std::byte* product;     // Way::bits: B as make_product lays it out
    const std::int32_t* own_ids;  // the source that row i is; null: source i
    Own own;
    Attention attention;
    const float* scale;
    const float* end_scale;  // after own parts or heads are put together; null without them
    const float* shift;
    // Where the rows go; null for what is not wanted.
    float* values;            // h [rows, outputs]
    std::size_t first_value;  // the row that `values` begins with
    std::int64_t* classes;    // argmax of h
    word* out_words;          // sign of h, packed
    float* out_beta;          // mean |h_i|
    float* out_factor;        // t_i = (out_scale of i) * mean |h_i|, for the next layer
    const float* out_scale;   // null: 1
    const Panels* next;       // the next layer's records, made while the bits are in cache
    std::byte* next_records;
};

// Packs the signs of num_rows rows of num_bits floats: words[i][k / 64] bit k % 64 = x[i][k] >= 0.
// NaN compares false and would become -1; callers refuse NaN before they get here.
using PackRows = void (*)(const float* x, std::size_t num_rows, std::size_t num_bits, word* words);

// out[i][j] = K - 2 popcount(a[i] ^ column j) for i in [begin, end); panels in natural order.
// int32 holds every result: |dot| <= K < 2^31.
using XnorRows = void (*)(const word* a, const half* panels, std::size_t begin, std::size_t end,
                          std::size_t num_columns, std::size_t num_bits, std::int32_t* out);

// Makes records of rows [begin, end); false when a value does not fit its bytes (records are then
// unusable, and the caller takes twice as many bytes).
using RecordsOfBits = bool (*)(const word* rows, const Panels& panels, std::size_t begin,
                               std::size_t end, std::byte* records);
using RecordsOfSparse = bool (*)(const SparseRows& rows, const SignTable& table, std::size_t begin,
                                 std::size_t end, std::byte* records);

// Computes scores of rows [begin, end): out[n][i] = fl(F_i . V_n) * sigma[n] * factor[i], n <
// count. V_n are whole numbers whose absolute values add up to less than 2^31, padded with 0 to
// whole words.
struct Scores {
    const word* words;
    std::size_t num_rows, num_bits, count;
    const std::int32_t* values;  // [count, 64 * words of a row]
    const float* sigma;
    const float* factor;
    float* out;  // [count, num_rows]
};
using ScoreRows = void (*)(const Scores& scores, std::size_t begin, std::size_t end);

// Computes rows [begin, end) of a layer, from neighbours to results; false when a value does not
// fit the records of `next`.
using LayerRows = bool (*)(const Layer& layer, std::size_t begin, std::size_t end,
                           std::byte* scratch);

// Live graphs keep sums, in integers. Sources that changed are taken off a row's sum with one
// weight and put on with another: to column c of `sums` is added
//     sum over moves of (after dot[c] as it is - before dot[c] as it was),    dot = 2 v + odd,
// where v are pairs[2 c] and pairs[2 c + 1]. Weights are below 2^15, and `stride` columns, a
// multiple of 16, are there.
struct SumMove {
    const std::int8_t* pairs;
    std::int32_t after, before;
};
using MoveSums = void (*)(std::int32_t* sums, std::size_t stride, const SumMove* moves,
                          std::size_t count, std::int32_t odd);

// Ends rows of a layer whose sums are known, as layer_rows does: the sum of row i is
// sums[nodes[i]], `stride` apart, to be multiplied by row_scale[i]. The layer's edges are not read.
using FinishRows = void (*)(const Layer& layer, const std::int32_t* sums, std::size_t stride,
                            const std::int32_t* nodes, const float* row_scale, std::size_t count,
                            std::byte* scratch);

// Training. Entries of a binary matrix are kept with probability keep / 2^keep_bits.
constexpr int keep_bits = 12;

// Draws words [begin, end) of masks: each bit of `among` is kept at random. keep > 0.
using DrawMasks = void (*)(std::uint64_t seed, std::uint32_t keep, const word* among,
                           std::size_t begin, std::size_t end, word* masks);
// out[i][j] = sum over the kept k of F_ik B_jk, for i in [begin, end).
using MaskedRows = void (*)(const word* rows, const word* masks, const half* panels,
                            std::size_t begin, std::size_t end, std::size_t num_columns,
                            std::size_t num_bits, float* out);
// out[j][k] = sum over the rows i that keep k of g_ij F_ik, for the k of words [begin, end);
// sums is scratch of gradient_floats_per_word for each of these words.
constexpr std::size_t gradient_floats_per_word = 64 * word_bits;
using MaskedGradient = void (*)(const word* rows, const word* masks, std::size_t num_rows,
                                std::size_t num_bits, const float* g, std::size_t num_columns,
                                std::size_t begin, std::size_t end, float* sums, float* out);
// out = x where the mask keeps it, 0 elsewhere, for rows [begin, end).
using KeepMasked = void (*)(const float* x, const word* masks, std::size_t begin, std::size_t end,
                            std::size_t num_bits, float* out);

// Rows of a sparse matrix whose entry e has the weight w_e t_j, j = ids[e].
struct FactoredRows {
    const std::int64_t *offsets, *ids;
    const float* weights;        // w; null: all 1
    const float* source_factor;  // t, at most largest_weight
    const float* row_factor;     // s; null: all 1
};
// Rounds the weights of rows [begin, end) as packed layers do (arithmetic.h): q_e, whole numbers as
// floats, and what each row's sum is multiplied by.
using RoundRows = void (*)(const FactoredRows& rows, int edge_bits, std::size_t begin,
                           std::size_t end, float* q, float* scale);

// Rows of a sparse matrix whose entry e is weights[places[e]] in column ids[e].
struct WeightedRows {
    const std::int64_t *offsets, *ids;
    const std::int64_t* places;  // null: e itself
    const float* weights;
    const float* scale;  // what each row's sum is multiplied by; null: all 1
    std::size_t num_sources;
};
// out[i] = scale[i] (sum over the entries e of row i, one after the other, of w_e x[ids[e]]) for i
// in [begin, end). With largest > 0 the products are whole numbers of at most that size, and sums
// that may have more digits than a float are taken in double.
using SumRows = void (*)(const WeightedRows& rows, const float* x, std::size_t num_columns,
                         std::size_t largest, std::size_t begin, std::size_t end, float* out);
// beta[i] = mean |h_i|, at most largest_weight, for rows [begin, end).
using RowMeans = void (*)(const float* h, std::size_t num_columns, std::size_t begin,
                          std::size_t end, float* beta);

struct Kernels {
    const char* name;
    PackRows pack_rows;
    XnorRows xnor_rows;
    RecordsOfBits records_of_bits;
    RecordsOfSparse records_of_sparse;
    ScoreRows score_rows;
    LayerRows layer_rows;
    std::size_t (*scratch_bytes)(const Layer& layer);
    bool blocks_pay;      // where rows have many neighbours
    int most_block_bits;  // weights of more bits cannot be taken by blocks
    // B [outputs, inputs as bits] in the form that layer_rows reads for Way::bits.
    std::size_t (*product_bytes)(std::size_t num_inputs, std::size_t num_outputs);
    void (*make_product)(const word* b, std::size_t num_inputs, std::size_t num_outputs,
                         std::byte* product);
    MoveSums move_sums;
    FinishRows finish_rows;
    DrawMasks draw_masks;
    MaskedRows masked_rows;
    MaskedGradient masked_gradient;
    KeepMasked keep_masked;
    RoundRows round_rows;
    SumRows sum_rows;
    RowMeans row_means;
};

// A build defines those of its own architecture.
extern const Kernels portable_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx2_vnni_kernels;
extern const Kernels avx2_vnni_evex_kernels;
extern const Kernels avx512_kernels;
extern const Kernels neon_kernels;
extern const Kernels neon_dot_kernels;

}  // namespace bignn
