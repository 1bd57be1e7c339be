// The kernels every instruction set provides, and the table through which they are called.
//
// A kernel works on a range of rows into buffers its caller owns, so that threads, blocks of a
// file and machines can share one job. Adding an instruction set means one file that fills a
// Kernels table, one line in dispatch.cpp, and nothing else.
#pragma once

#include "bits.h"

namespace bignn {

// Packs the signs of num_rows rows of num_bits floats: words[i][k / 64] bit k % 64 = x[i][k] >= 0.
// NaN compares false and would become -1; callers refuse NaN before they get here.
using PackRows = void (*)(const float* x, std::size_t num_rows, std::size_t num_bits, word* words);

// out[i][j] = K - 2 popcount(a[i] ^ b_panels[j]) for i in [begin, end) and all num_columns columns.
//
// b_panels holds the columns of B in panels of `panel_width` columns: panel p stores, for each
// word w, the w-th words of columns p * panel_width ... + panel_width - 1 next to each other
// (columns past the last are 0). A vector register then loads one word of several columns, a word
// of `a` is broadcast against it, and no sum across lanes is ever needed.
// int32 holds every result: |dot| <= K < 2^31.
using XnorRows = void (*)(const word* a, const word* b_panels, std::size_t begin, std::size_t end,
                          std::size_t num_columns, std::size_t num_bits, std::int32_t* out);

constexpr std::size_t panel_width = 8;

struct Kernels {
    const char* name;
    PackRows pack_rows;
    XnorRows xnor_rows;
};

extern const Kernels portable_kernels;
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;

}  // namespace bignn
