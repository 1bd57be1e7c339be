// AVX2 with the 256-bit VNNI of AVX-512, for CPUs that lack other parts of it: Cascade Lake.
//
// Called after dispatch.cpp has asked the CPU.
#include "avx2_vnni.h"

namespace bignn {
namespace {

struct Avx2VnniEvex : avx2::VnniPieces<Avx2VnniEvex, avx2::Encoding::evex> {};

}  // namespace

constinit const Kernels avx2_vnni_evex_kernels = kernels_of<Avx2VnniEvex>("avx2_vnni");

}  // namespace bignn
