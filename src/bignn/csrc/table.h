// The table of an instruction set's kernels. Text of its file, after all of them. Filled by the
// compiler (constinit): no code of these files may run before the CPU was asked.

constexpr Kernels kernels_called(const char* name) {
    return {
        .name = name,
        .pack_rows = pack_rows,
        .xnor_rows = xnor_rows,
        .records_of_bits = records_of_bits,
        .records_of_sparse = records_of_sparse,
        .score_rows = score_rows,
        .layer_rows = layer_rows,
        .scratch_bytes = scratch_bytes,
        .product_bytes = product_bytes,
        .make_product = make_product,
        .draw_masks = draw_masks,
        .masked_rows = masked_rows,
        .masked_gradient = masked_gradient,
        .keep_masked = keep_masked,
    };
}
