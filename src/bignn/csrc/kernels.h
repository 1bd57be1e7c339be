// What every instruction set provides, and the table through which it is called.
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

// q < 2^edge_bits, which a layer says: 17, weights to a hundred-thousandth of the row's largest, or
// up to 20. Rows of very many neighbours (2^14 at 17 bits) give up a bit per doubling, so that
// sum_j q_ij < 2^31 always.
constexpr int most_edge_bits = 20;
constexpr int total_bits = 31;
// Below this a row's weights are all taken as 0; 2^e then never leaves float's normal range.
constexpr float smallest_weight = 0x1p-60f;
// And this is the largest; what overflows (infinite, not a number) is taken for it.
constexpr float largest_weight = 1e30f;
// The lookup product of Way::bits adds its bytes in 32 bits.
constexpr std::size_t most_inputs_of_bits = std::size_t{1} << 16;

// Rows are done in tiles, so that a word of B loaded once serves several of them.
constexpr std::size_t tile_rows = 4;
// Rows of few neighbours have their weights done a tile at a time.
constexpr std::size_t few = 16;
// Edges are summed in chunks, looked up in batches; their scratch stays in the first cache.
constexpr std::size_t chunk = 512;
constexpr std::size_t batch = 1024;
// Memory is asked for this many neighbours before it is needed, and slack is what may be read past
// the end of a chunk.
constexpr std::size_t ahead = 32;
constexpr std::size_t slack = 64;

// A record holds v_j for all columns, F_j . B = center + 2 v_j: 1, 2 or 4 bytes per column,
// whichever the values fit. The centers make small numbers of large ones; exactness does not
// depend on them. Columns within a record stand in an order that lets the AVX-512 gather
// interleave neighbours with unpack instructions and still sum columns in their natural order:
// see record_column.
struct Records {
    const std::byte* data;
    std::size_t step;    // bytes from one record to the next
    std::size_t offset;  // where the part that is gathered begins (a head's; 0 without heads)
    std::size_t stride;  // bytes of that part
    std::size_t bytes_per_column;
    const std::int32_t* center;  // per column
    std::int32_t max_center;     // of |center|
    bool far;                    // too many for the nearer caches: worth prefetching
    int edge_bits;               // of the weights that they are multiplied by
};

static constexpr std::size_t record_stride(std::size_t num_columns, std::size_t bytes_per_column) {
    if (bytes_per_column == 1 && num_columns <= 16) return 16;
    return (num_columns * bytes_per_column + 63) / 64 * 64;
}

// Which column the record's given position holds (it may be past the last: padding).
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
};

// The signs of B as bytes, a row of `stride` per input, in record order, for inputs that deviate
// from a base row of features: v = sum over the deviating inputs k of table[k].
struct SparseRows {
    const std::int64_t* offsets;
    const std::int32_t* inputs;
};

struct SignTable {
    const std::int8_t* signs;
    std::size_t stride, bytes_per_column;  // of the records it makes
};

// Row i takes from ids[offsets[i] ... offsets[i + 1]).
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

// What a node adds of its own: F_i . B_own, see above.
struct Own {
    const half* panels;  // of B_own, in natural order; null: nothing
    const float* scale;
};

// Heads' columns stand side by side in B; a record has a part per head, each laid out as a record
// of its own, and so have centers (in 64s) and products.
struct Attention {
    std::size_t heads;     // 0: none
    std::size_t channels;  // C
    bool averages;         // the heads' results, instead of putting them side by side
    float slope;           // of leaky
    const float* source;   // [heads, sources]
    const float* target;   // [heads, sources]
    std::size_t num_sources;
    std::size_t product_stride;  // bytes of a head's product
};

// Shares of attention are added in units of 2^-share_bits, a chunk of them in 32 bits.
constexpr int share_bits = 22;
// exp of what lies further below the row's largest score is taken as 0.
constexpr float lowest_score = -64.0f;
// Scores stop here, so that sums and differences of them are numbers.
constexpr float largest_score = 1e30f;

struct Layer {
    Edges edges;
    Way way;
    int edge_bits;
    std::size_t num_inputs, num_outputs;
    Records records;              // Way::records: transform (or sparse bits), then gather
    const word* words;            // Way::bits: gather, then transform; and what Own needs
    const std::byte* product;     // Way::bits: B as make_product lays it out
    const std::int32_t* own_ids;  // which source row i is; null: source i
    Own own;
    Attention attention;
    const float* scale;
    const float* end_scale;  // after own parts or heads are put together; null without them
    const float* shift;
    // Where the rows go; null where they do not.
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

// Records of rows [begin, end); false when a value does not fit its bytes (records are then
// unusable, and the caller takes twice as many).
using RecordsOfBits = bool (*)(const word* rows, const Panels& panels, std::size_t begin,
                               std::size_t end, std::byte* records);
using RecordsOfSparse = bool (*)(const SparseRows& rows, const SignTable& table, std::size_t begin,
                                 std::size_t end, std::byte* records);

// Scores of rows [begin, end): out[n][i] = fl(F_i . V_n) * sigma[n] * factor[i], n < count. V_n are
// whole numbers whose absolute values add up to less than 2^31, padded with 0 to whole words.
struct Scores {
    const word* words;
    std::size_t num_rows, num_bits, count;
    const std::int32_t* values;  // [count, 64 * words of a row]
    const float* sigma;
    const float* factor;
    float* out;  // [count, num_rows]
};
using ScoreRows = void (*)(const Scores& scores, std::size_t begin, std::size_t end);

// Rows [begin, end) of a layer, from neighbours to sink; false as above, for `next`.
using LayerRows = bool (*)(const Layer& layer, std::size_t begin, std::size_t end,
                           std::byte* scratch);

// Training. Entries of a binary matrix are kept with probability keep / 2^keep_bits.
constexpr int keep_bits = 12;

// Words [begin, end) of masks: bits of `among`, each kept at random. keep > 0.
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
// x where it is kept, 0 elsewhere, for rows [begin, end).
using KeepMasked = void (*)(const float* x, const word* masks, std::size_t begin, std::size_t end,
                            std::size_t num_bits, float* out);

struct Kernels {
    const char* name;
    PackRows pack_rows;
    XnorRows xnor_rows;
    RecordsOfBits records_of_bits;
    RecordsOfSparse records_of_sparse;
    ScoreRows score_rows;
    LayerRows layer_rows;
    std::size_t (*scratch_bytes)(const Layer& layer);
    // B [outputs, inputs as bits] in the form that layer_rows wants for Way::bits.
    std::size_t (*product_bytes)(std::size_t num_inputs, std::size_t num_outputs);
    void (*make_product)(const word* b, std::size_t num_inputs, std::size_t num_outputs,
                         std::byte* product);
    DrawMasks draw_masks;
    MaskedRows masked_rows;
    MaskedGradient masked_gradient;
    KeepMasked keep_masked;
};

// Those of another architecture are not defined.
extern const Kernels portable_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;

}  // namespace bignn
