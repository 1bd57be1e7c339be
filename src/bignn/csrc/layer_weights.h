// The weights of one binary layer, in every form that kernels read; each form is made once.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "aligned.h"
#include "kernels.h"

namespace bignn {

// How a layer scores neighbours; see kernels.h. Without attention there are no heads.
struct AttentionWeights {
    std::size_t heads = 0;
    bool averages = false;
    float slope = 0;
    std::vector<std::int32_t> values;  // [2 heads, inputs padded to whole words]
    std::vector<float> sigma;          // [2 heads]
};

class LayerWeights {
   public:
    std::size_t num_inputs = 0;
    int edge_bits = 0;
    std::vector<word> words;       // B [columns, words of the inputs]
    std::vector<float> scale;      // [columns]
    std::vector<float> shift;      // [outputs]
    std::vector<word> own_words;   // B_own [outputs, words of the inputs]; empty: no own part
    std::vector<float> own_scale;  // [outputs]
    std::vector<float> end_scale;  // [outputs]; empty without own part and attention
    AttentionWeights attention;

    std::size_t num_columns() const { return scale.size(); }
    std::size_t num_outputs() const { return shift.size(); }
    std::size_t heads() const { return attention.heads ? attention.heads : 1; }
    std::size_t channels() const { return num_columns() / heads(); }
    // Whether the layer reads the bits of the rows themselves, besides what it gathers.
    bool reads_bits() const { return !own_words.empty() || attention.heads; }

    // Points a layer at its weights and scales; not at its edges, nor at forms of B for one way.
    void set(Layer& layer) const;

    // Bytes per column of the layer's records: 1 until a value did not fit.
    std::size_t bytes_per_column() const { return bytes_per_column_; }
    // Doubles the bytes that overflowed, unless another thread already did.
    void widen(std::size_t overflowed) const;

    // B as panels in record order; a record has a part per head.
    struct RecordForm {
        std::size_t stride;                // bytes of a record, all heads
        std::vector<std::size_t> columns;  // per position; num_columns() for padding
        Aligned<half> panels;
        std::vector<std::uint16_t> valid;
    };
    const RecordForm& record_form(std::size_t bytes_per_column) const;

    // The change of v when an input of the base row is flipped: -base_k B_k [inputs, positions].
    // Base rows come with graphs, so only the latest tables are kept for others to share.
    struct Signs {
        Aligned<std::int8_t> bytes;
        // A bit per position, where a record is whole words of positions.
        std::vector<word> positive;
    };
    std::shared_ptr<const Signs> sign_table(std::size_t bytes_per_column,
                                            const std::vector<word>& base) const;

    // B in the form that Way::bits multiplies by, with a part per head.
    struct ProductForm {
        Aligned<std::byte> bytes;
        std::size_t stride;
    };
    const ProductForm& product_form(const Kernels& kernels) const;

    // B_own as panels in natural order.
    const Aligned<half>& own_panels() const;

    // F . B of one row of bits, for every column.
    std::vector<std::int32_t> products(const word* row) const;

   private:
    mutable std::atomic<std::size_t> bytes_per_column_{1};
    mutable std::mutex making_;
    mutable std::map<std::size_t, RecordForm> record_forms_;
    struct KeptSignTable {
        std::size_t bytes_per_column;
        std::vector<word> base;
        std::shared_ptr<const Signs> table;
    };
    mutable std::deque<KeptSignTable> sign_tables_;
    mutable std::map<std::string, ProductForm> product_forms_;
    mutable Aligned<half> own_panels_;
};

// Lays out the rows of b (columns of B), taken in the given order, as kernels.h describes Panels;
// numbers past the last row are padding. `panels` has room for whole panels.
void fill_panels(const word* b, std::size_t num_rows, std::size_t num_words,
                 const std::size_t* order, std::size_t count, half* panels);

}  // namespace bignn
