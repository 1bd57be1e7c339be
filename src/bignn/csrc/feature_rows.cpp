#include "feature_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "threads.h"

namespace bignn {
namespace {

constexpr std::size_t rows_at_once = 64;  // rows that stay in the first caches

// The sum of |x| in double precision, in an order that does not depend on vectors' widths.
double absolute_sum(const float* x, std::size_t count) {
    double sums[8] = {};
    std::size_t k = 0;
    for (; k + 8 <= count; k += 8) {
        for (std::size_t lane = 0; lane < 8; ++lane) {
            sums[lane] += static_cast<double>(std::fabs(x[k + lane]));
        }
    }
    for (; k < count; ++k) sums[k % 8] += static_cast<double>(std::fabs(x[k]));
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) +
           ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// Steps 1 and 2 of the input stage for one row.
void normalize(const FeatureRows& rows, const float* from, float* to) {
    const std::size_t columns = rows.num_columns;
    if (rows.normalizes_rows) {
        const auto total = static_cast<float>(absolute_sum(from, columns));
        const float divisor = total + (total == 0.0f ? 1.0f : 0.0f);
        for (std::size_t k = 0; k < columns; ++k) to[k] = from[k] / divisor;
        from = to;
    }
    if (rows.mean) {
        for (std::size_t k = 0; k < columns; ++k) {
            to[k] = (from[k] - rows.mean[k]) * rows.scale[k];
        }
    } else if (from != to) {
        std::copy(from, from + columns, to);
    }
}

}  // namespace

std::int64_t first_unsound_row(const FeatureRows& rows) {
    std::atomic<std::int64_t> first{std::numeric_limits<std::int64_t>::max()};
    auto look = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const float* x = rows.x + i * rows.num_columns;
            // A number minus itself is 0 if it is finite and not a number otherwise.
            float sum = 0;
            for (std::size_t k = 0; k < rows.num_columns; ++k) sum += x[k] - x[k];
            if (sum == 0.0f) continue;
            auto known = first.load();
            const auto row = static_cast<std::int64_t>(i);
            while (row < known && !first.compare_exchange_weak(known, row)) {
            }
            return;
        }
    };
    run_in_pieces(rows.num_rows, 16 * rows_at_once, look);
    return first == std::numeric_limits<std::int64_t>::max() ? no_row : first.load();
}

void pack_features(const Kernels& kernels, const FeatureRows& rows, word* words, float* beta) {
    const std::size_t columns = rows.num_columns, width = words_per_row(columns);
    auto pack = [&](std::size_t begin, std::size_t end) {
        auto* made =
            reinterpret_cast<float*>(thread_scratch(rows_at_once * columns * sizeof(float)));
        for (std::size_t first = begin; first < end; first += rows_at_once) {
            const std::size_t count = std::min(rows_at_once, end - first);
            for (std::size_t r = 0; r < count; ++r) {
                float* row = made + r * columns;
                normalize(rows, rows.x + (first + r) * columns, row);
                beta[first + r] =
                    static_cast<float>(absolute_sum(row, columns)) / static_cast<float>(columns);
            }
            kernels.pack_rows(made, count, columns, words + first * width);
        }
    };
    run_in_pieces(rows.num_rows, 16 * rows_at_once, pack);
}

void feature_statistics(const FeatureRows& rows, double* mean, double* squares, float* least,
                        float* largest) {
    const std::size_t columns = rows.num_columns;
    auto part = [&](std::size_t begin, std::size_t end) {
        const std::size_t number = begin / statistics_rows;
        double* means = mean + number * columns;
        double* deviations = squares + number * columns;
        float *low = least + number * columns, *high = largest + number * columns;
        auto* row = reinterpret_cast<float*>(thread_scratch(columns * sizeof(float)));
        std::fill(means, means + columns, 0.0);
        std::fill(deviations, deviations + columns, 0.0);
        for (std::size_t i = begin; i < end; ++i) {
            normalize(rows, rows.x + i * columns, row);
            if (i == begin) {
                std::copy(row, row + columns, low);
                std::copy(row, row + columns, high);
            }
            for (std::size_t k = 0; k < columns; ++k) {
                means[k] += static_cast<double>(row[k]);
                low[k] = std::min(low[k], row[k]);
                high[k] = std::max(high[k], row[k]);
            }
        }
        const auto count = static_cast<double>(end - begin);
        for (std::size_t k = 0; k < columns; ++k) means[k] /= count;
        for (std::size_t i = begin; i < end; ++i) {
            normalize(rows, rows.x + i * columns, row);
            for (std::size_t k = 0; k < columns; ++k) {
                const double deviation = static_cast<double>(row[k]) - means[k];
                deviations[k] += deviation * deviation;
            }
        }
    };
    run_in_pieces(rows.num_rows, statistics_rows, part);
}

}  // namespace bignn
