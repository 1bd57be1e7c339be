// The kernels of src/bignn/kernels/cuda on emulated blocks, launched by name.
#include "emulated_gpu.h"
#include "packed_layers.cu"

#define KERNEL(name) \
    if (!std::strcmp(kernel, #name)) return emulated::launch(name, arguments, x, y, threads, shared)

extern "C" void launch(const char* kernel, const void* arguments, unsigned x, unsigned y,
                       unsigned threads, std::size_t shared) {
    KERNEL(weigh_short_rows);
    KERNEL(weigh_medium_rows);
    KERNEL(weigh_long_rows);
    KERNEL(score_sources);
    KERNEL(attend_short_rows);
    KERNEL(attend_long_rows);
    KERNEL(make_records_8);
    KERNEL(make_records_16);
    KERNEL(sum_records_q8_v8);
    KERNEL(sum_records_q8_v16);
    KERNEL(sum_records_q32_v8);
    KERNEL(sum_records_q32_v16);
    KERNEL(sum_pieces_q8_v8);
    KERNEL(sum_pieces_q8_v16);
    KERNEL(sum_pieces_q32_v8);
    KERNEL(sum_pieces_q32_v16);
    KERNEL(finish_long_rows);
    KERNEL(sum_bits_of_pieces);
    KERNEL(sum_and_multiply_256);
    KERNEL(sum_and_multiply_256_own);
    KERNEL(sum_and_multiply_512);
    KERNEL(sum_and_multiply_512_own);
    KERNEL(draw_training_masks);
    KERNEL(multiply_signs);
    KERNEL(round_training_rows);
    KERNEL(sum_dots);
    KERNEL(sum_dots_of_long_rows);
    KERNEL(sum_wide_dots);
    KERNEL(sum_wide_dots_of_long_rows);
    KERNEL(sum_gradients);
    KERNEL(sum_gradients_of_long_rows);
    KERNEL(binarize_columns);
    KERNEL(scale_rows);
    KERNEL(sum_gradient_columns);
    KERNEL(unpack_signs);
    std::fprintf(stderr, "emulated GPU: no kernel %s\n", kernel);
    std::abort();
}
