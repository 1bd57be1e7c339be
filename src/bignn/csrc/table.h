// The table of an instruction set's kernels. It is filled by the compiler (constinit): no code of
// these files may run before the CPU was asked.
#pragma once

#include "plain.h"
#include "rows.h"
#include "training.h"
#include "weighted_rows.h"

namespace bignn {

template <class Isa>
constexpr Kernels kernels_of(const char* name) {
    return {
        .name = name,
        .pack_rows = Isa::pack_rows,
        .xnor_rows = Isa::xnor_rows,
        .records_of_bits = records_of_bits<Isa>,
        .records_of_sparse = records_of_sparse<Isa>,
        .score_rows = Isa::score_rows,
        .layer_rows = layer_rows<Isa>,
        .scratch_bytes = scratch_bytes<Isa>,
        .blocks_pay = Isa::blocks_pay,
        .most_block_bits = Isa::most_block_bits,
        .product_bytes = Isa::product_bytes,
        .make_product = Isa::make_product,
        .move_sums = Isa::move_sums,
        .finish_rows = finish_rows<Isa>,
        .draw_masks = Training<Isa>::draw_masks,
        .masked_rows = Training<Isa>::masked_rows,
        .masked_gradient = Training<Isa>::masked_gradient,
        .keep_masked = Training<Isa>::keep_masked,
        .round_rows = Weighted<Isa>::round_rows,
        .sum_rows = Weighted<Isa>::sum_rows,
        .row_means = Weighted<Isa>::row_means,
    };
}

}  // namespace bignn
