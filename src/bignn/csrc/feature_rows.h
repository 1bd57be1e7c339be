// Rows of raw features to bits and scales, and their statistics, block by block.
// runtime/input_stage.py defines the arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels.h"

namespace bignn {

// A block of raw features and what the input stage does before the sign.
struct FeatureRows {
    const float* x;  // [num_rows, num_columns]
    std::size_t num_rows, num_columns;
    bool normalizes_rows;
    const float *mean, *scale;  // [num_columns]; null: columns are not standardised
};

// What `first_unsound_row` returns if there is none.
inline constexpr std::int64_t no_row = -1;

// The first row with a number that is not finite, or `no_row`.
std::int64_t first_unsound_row(const FeatureRows& rows);

// Packs every row to bits (x >= 0) and its scale, the mean of |x|.
void pack_features(const Kernels& kernels, const FeatureRows& rows, word* words, float* beta);

// Rows that statistics are taken of at once; parts are put together in order above.
inline constexpr std::size_t statistics_rows = 4096;

// For every `statistics_rows` rows and each column: mean, sum of squared deviations from it, least
// and largest number. Each is [parts, num_columns].
void feature_statistics(const FeatureRows& rows, double* mean, double* squares, float* least,
                        float* largest);

}  // namespace bignn
