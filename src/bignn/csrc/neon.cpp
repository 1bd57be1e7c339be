// NEON (Advanced SIMD), which every 64-bit ARM CPU has.
#include "neon_attention.h"
#include "neon_bits.h"
#include "neon_ends.h"
#include "neon_product.h"
#include "neon_records.h"
#include "neon_training.h"
#include "neon_weights.h"
#include "neon_xnor.h"
#include "table.h"

namespace bignn {
namespace {

// The pieces that are not replaced are plain loops, which the compiler turns into NEON.
struct Neon
    : With<Plain<Neon>, neon::WeightPieces, neon::XnorPieces, neon::RecordPieces, neon::BitPieces,
           neon::ProductPieces, neon::AttentionPieces, neon::EndPieces, neon::TrainingPieces> {};

}  // namespace

constinit const Kernels neon_kernels = kernels_of<Neon>("neon");

}  // namespace bignn
