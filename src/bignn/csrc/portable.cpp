// Plain C++: runs on any CPU, and is what the vector files are compared with.
#include "kernels.h"

namespace bignn {
namespace {

#include "plain.h"
#include "rows.h"

using floats = float __attribute__((vector_size(16)));
constexpr std::size_t lanes = 4;
inline floats broadcast(float x) { return floats{x, x, x, x}; }

#include "training.h"

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

#include "table.h"

}  // namespace

constinit const Kernels portable_kernels = kernels_called("portable");

}  // namespace bignn
