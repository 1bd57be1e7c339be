// All pieces that AVX2 replaces.
#pragma once

#include "avx2_attention.h"
#include "avx2_ends.h"
#include "avx2_product.h"
#include "avx2_records.h"
#include "avx2_training.h"
#include "avx2_weights.h"
#include "avx2_xnor.h"
#include "table.h"

namespace bignn::avx2 {

template <class Set>
using Pieces = With<Plain<Set>, WeightPieces, XnorPieces, RecordPieces, BitPieces, ProductPieces,
                    AttentionPieces, EndPieces, TrainingPieces>;

}  // namespace bignn::avx2
