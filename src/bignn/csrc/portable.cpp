// Plain C++: runs on any CPU, and is what the vector files are compared with.
#include <bit>

#include "kernels.h"

namespace bignn {
namespace {

void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits, word* words) {
    for (std::size_t i = 0; i < num_rows; ++i) {
        for (std::size_t k = 0; k < num_bits; k += word_bits) {
            const std::size_t count = num_bits - k < word_bits ? num_bits - k : word_bits;
            word packed = 0;
            for (std::size_t bit = 0; bit < count; ++bit) {
                packed |= static_cast<word>(x[k + bit] >= 0.0f) << bit;
            }
            *words++ = packed;
        }
        x += num_bits;
    }
}

void xnor_rows(const word* a, const word* b_panels, std::size_t begin, std::size_t end,
               std::size_t num_columns, std::size_t num_bits, std::int32_t* out) {
    const std::size_t num_words = words_per_row(num_bits);
    for (std::size_t i = begin; i < end; ++i) {
        const word* row = a + i * num_words;
        for (std::size_t j = 0; j < num_columns; j += panel_width) {
            const word* panel = b_panels + j * num_words;
            std::int32_t differing[panel_width] = {};
            for (std::size_t w = 0; w < num_words; ++w) {
                for (std::size_t lane = 0; lane < panel_width; ++lane) {
                    differing[lane] += std::popcount(row[w] ^ panel[w * panel_width + lane]);
                }
            }
            for (std::size_t lane = 0; lane < panel_width && j + lane < num_columns; ++lane) {
                out[i * num_columns + j + lane] =
                    static_cast<std::int32_t>(num_bits) - 2 * differing[lane];
            }
        }
    }
}

}  // namespace

const Kernels portable_kernels = {"portable", pack_rows, xnor_rows};

}  // namespace bignn
