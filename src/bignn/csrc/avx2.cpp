// AVX2.
//
// Called after dispatch.cpp has asked the CPU.
#include "avx2_attention.h"
#include "avx2_ends.h"
#include "avx2_product.h"
#include "avx2_records.h"
#include "avx2_weights.h"
#include "avx2_xnor.h"
#include "table.h"

namespace bignn {
namespace {

// The pieces that are not replaced are plain loops, which the compiler turns into AVX2.
struct Avx2 : With<Plain<Avx2>, avx2::WeightPieces, avx2::XnorPieces, avx2::RecordPieces,
                   avx2::BitPieces, avx2::ProductPieces, avx2::AttentionPieces, avx2::EndPieces> {
    using floats = float __attribute__((vector_size(32)));
    static constexpr std::size_t lanes = 8;
    static floats broadcast(float x) { return floats(_mm256_set1_ps(x)); }
};

}  // namespace

constinit const Kernels avx2_kernels = kernels_of<Avx2>("avx2");

}  // namespace bignn
