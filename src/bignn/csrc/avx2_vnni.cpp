// AVX2 with AVX-VNNI, as on CPUs without AVX-512: Alder Lake and later.
//
// Called after dispatch.cpp has asked the CPU.
#include "avx2_vnni.h"

namespace bignn {
namespace {

struct Avx2Vnni : avx2::VnniPieces<Avx2Vnni, avx2::Encoding::vex> {};

}  // namespace

constinit const Kernels avx2_vnni_kernels = kernels_of<Avx2Vnni>("avx2_vnni");

}  // namespace bignn
