// AVX2.
//
// Called after dispatch.cpp has asked the CPU.
#include "avx2_pieces.h"

namespace bignn {
namespace {

// The pieces that are not replaced are plain loops, which the compiler turns into AVX2.
struct Avx2 : avx2::Pieces<Avx2> {};

}  // namespace

constinit const Kernels avx2_kernels = kernels_of<Avx2>("avx2");

}  // namespace bignn
