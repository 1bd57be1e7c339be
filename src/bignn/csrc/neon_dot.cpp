// NEON with the dot-product extension of Armv8.2: sdot multiplies and adds 16 bytes.
//
// Called after dispatch.cpp has asked the CPU.
#include "neon_attention.h"
#include "neon_bits.h"
#include "neon_dot_records.h"
#include "neon_ends.h"
#include "neon_product.h"
#include "neon_training.h"
#include "neon_weights.h"
#include "neon_xnor.h"
#include "table.h"

namespace bignn {
namespace {

struct NeonDot : With<Plain<NeonDot>, neon::WeightPieces, neon::XnorPieces, neon::RecordPieces,
                      neon::DotRecordPieces, neon::BitPieces, neon::ProductPieces,
                      neon::AttentionPieces, neon::EndPieces, neon::TrainingPieces> {};

}  // namespace

constinit const Kernels neon_dot_kernels = kernels_of<NeonDot>("neon_dot");

}  // namespace bignn
