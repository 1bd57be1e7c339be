// The native model: binary layers bound to a graph, with every buffer they need, run by one call.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "aligned.h"
#include "kernels.h"
#include "layer_weights.h"

namespace bignn {

// The bits that a first layer reads. The arrays belong to the caller.
struct Features {
    std::size_t num_rows = 0;
    const word* words = nullptr;            // dense: [rows, words of the inputs]; null if sparse
    const std::int64_t* offsets = nullptr;  // sparse: row i is `base` with some inputs flipped
    const std::int32_t* inputs = nullptr;
    std::vector<word> base;
};

// A layer's weights and edges, and what becomes of its rows.
struct LayerSpec {
    const LayerWeights* weights;
    Edges edges;  // source_factor is not set here: it comes from the layer before
    const std::int32_t* own_ids;
    std::size_t num_sources;
    enum class Way { transform, gather, sparse } way;
    const float* out_scale;  // factor of the rows' beta as sources of the next layer; null: 1
    bool keeps_values, keeps_bits;
    // log2 of the sources in a block of way T, where the layer can be done in blocks; 0: never in
    // blocks; none: where they pay.
    std::optional<std::size_t> block_shift = std::nullopt;
};

// Where rows of a last layer go: what is null is not made. Bits come with their beta.
struct RowOutputs {
    float* values = nullptr;
    std::int64_t* classes = nullptr;
    word* words = nullptr;
    float* beta = nullptr;
};

// Whether a layer of such sizes, whose weights are not attention's and whose records have `stride`
// bytes, goes way T in blocks of sources (blocked_rows.h) rather than neighbour by neighbour.
bool blocks_pay(const Kernels& kernels, int edge_bits, std::size_t stride, std::size_t num_rows,
                std::size_t num_sources, std::size_t num_entries);

class PackedLayers {
   public:
    PackedLayers(const Kernels& kernels, Features features, const float* source_factor)
        : kernels_(kernels), features_(std::move(features)), source_factor_(source_factor) {}

    void add(const LayerSpec& spec) { specs_.push_back(spec); }
    const std::vector<LayerSpec>& specs() const { return specs_; }

    // Runs the first `count` layers, and makes the records that a further one gathers. The last
    // layer's rows go to `values` or `classes`, where one is given. Records whose values do not fit
    // their bytes are made again with more.
    void run(std::size_t count, float* values, std::int64_t* classes);

    // Computes rows [begin, end) of the last layer, whose sources run(all but the last) has made,
    // into a buffer of end - begin rows.
    void run_rows(std::size_t begin, std::size_t end, float* values);

    // Computes other rows of the last layer, of the same sources: those that `edges` lists.
    // `own_ids` has the source that each of them is, where the layer reads it.
    void run_block(const Edges& edges, const std::int32_t* own_ids, const RowOutputs& out);

    // Seconds that a layer took in the last run, and bytes per column of its records (0 for bits).
    double seconds(std::size_t layer) const { return seconds_[layer]; }
    std::size_t bytes_per_column(std::size_t layer) const;
    // Whether a layer goes way T by blocks of sources.
    bool in_blocks(std::size_t layer) const {
        return layer < steps_.size() && steps_[layer].layer.blocks.shift != 0;
    }

    // Rows that a layer keeps, if its spec asks for them; the next run overwrites them.
    const float* kept_values(std::size_t layer) const { return buffers_[layer].values.data(); }
    const word* kept_words(std::size_t layer) const { return buffers_[layer].words.data(); }
    const float* kept_beta(std::size_t layer) const { return buffers_[layer].beta.data(); }

   private:
    // A layer as the kernels take it, and how its sources' records are made.
    struct Step {
        Layer layer{};
        Scores scores{};    // of attention; without, count is 0
        Panels panels{};    // Way::records: of this layer's own records
        SignTable table{};  // of a sparse first layer
        bool is_sparse = false;
    };
    struct Buffers {
        Aligned<std::byte> records;
        std::vector<std::int32_t> base, center;
        Aligned<float> scores, factor, beta, values;
        Aligned<word> words;
        std::shared_ptr<const LayerWeights::Signs> signs;  // of a sparse first layer
    };

    void bind();
    void bind_layer(std::size_t number);
    void bind_records(std::size_t number);
    void bind_blocks(std::size_t number);
    void bind_attention(std::size_t number);
    void bind_output(std::size_t number);
    bool prepare(std::size_t number);
    bool run_layer(const Layer& layer, std::size_t begin, std::size_t end);
    std::optional<std::size_t> try_run(std::size_t count, float* values, std::int64_t* classes);
    const word* dense_features();
    std::vector<std::int32_t> likely_differing(std::size_t number);

    const Kernels& kernels_;
    Features features_;
    const float* source_factor_;
    std::vector<LayerSpec> specs_;
    std::vector<Step> steps_;  // empty until bound
    std::vector<Buffers> buffers_;
    std::vector<double> seconds_;
    Aligned<word> dense_;  // sparse features as packed rows, where a layer reads them so
};

}  // namespace bignn
