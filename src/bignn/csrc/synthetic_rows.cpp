#include "synthetic_rows.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "random.h"
#include "threads.h"

namespace bignn {
namespace {

// What seeds are for: one number each.
enum Purpose : std::uint64_t { of_degrees = 1, of_neighbours, of_noise, of_centres };

std::uint64_t seed_of(const SyntheticGraph& graph, Purpose purpose) {
    return random_word(graph.seed, purpose);
}

// One over the standard deviation of the sum of two numbers from 0 to 65535.
constexpr float per_deviation = 1.0f / 26755.0f;
constexpr std::int32_t middle = 65535;

}  // namespace

void synthetic_classes(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                       std::int16_t* classes) {
    for (std::size_t i = begin; i < end; ++i) {
        classes[i - begin] = static_cast<std::int16_t>(graph.class_of(i));
    }
}

void synthetic_degrees(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                       std::int64_t* offsets) {
    const std::uint64_t seed = seed_of(graph, of_degrees);
    offsets[0] = 0;
    for (std::size_t i = begin; i < end; ++i) {
        // P(degree > d) = (1 + d / mean)^-2: roots and divisions are rounded alike everywhere.
        const double left = 1.0 - static_cast<double>(random_word(seed, i) >> 11) * 0x1p-53;
        const double drawn = (graph.mean_degree + 0.5) * (1.0 / std::sqrt(left) - 1.0);
        const auto most = static_cast<double>(graph.most_neighbours);
        offsets[i - begin + 1] =
            offsets[i - begin] + static_cast<std::int64_t>(std::min(drawn, most));
    }
}

std::int64_t synthetic_neighbours(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                                  std::int64_t* offsets, std::int32_t* ids) {
    const std::uint64_t seed = seed_of(graph, of_neighbours);
    const std::uint64_t classes = graph.num_classes, nodes = graph.num_nodes;
    std::vector<std::int64_t> sizes(end - begin);
    auto draw = [&](std::size_t first, std::size_t last) {
        for (std::size_t r = first; r < last; ++r) {
            const std::uint64_t own = begin + r, row_seed = random_word(seed, own);
            const std::uint64_t own_class = graph.class_of(own);
            const std::uint64_t of_class = (nodes - own_class + classes - 1) / classes;
            std::int32_t *from = ids + offsets[r], *to = ids + offsets[r + 1];
            for (std::uint64_t e = 0; from + e < to; ++e) {
                const std::uint64_t word = random_word(row_seed, e);
                // Squares of even numbers: a few slots are drawn often.
                const double even = static_cast<double>(word >> 32) * 0x1p-32;
                const bool in_class = (word & 0xffffffffu) < graph.own_class_share;
                const auto rank = static_cast<std::uint64_t>(
                    even * even * static_cast<double>(in_class ? of_class : nodes));
                const std::uint64_t slot = in_class ? own_class + classes * rank : rank;
                from[e] = static_cast<std::int32_t>(graph.node(slot));
            }
            std::sort(from, to);
            to = std::unique(from, to);
            to = std::remove(from, to, static_cast<std::int32_t>(own));
            sizes[r] = to - from;
        }
    };
    run_in_pieces(end - begin, 1024, draw);
    std::int64_t kept = 0;
    for (std::size_t r = 0; r < sizes.size(); ++r) {
        const std::int32_t* from = ids + offsets[r];
        offsets[r] = kept;
        kept = std::copy(from, from + sizes[r], ids + kept) - ids;
    }
    offsets[sizes.size()] = kept;
    return kept;
}

void synthetic_features(const SyntheticGraph& graph, std::size_t begin, std::size_t end,
                        std::size_t num_features, float* x) {
    const std::uint64_t seed = seed_of(graph, of_noise), centres = seed_of(graph, of_centres);
    std::vector<float> centre(graph.num_classes * num_features);
    for (std::size_t k = 0; k < centre.size(); ++k) {
        centre[k] = random_word(centres, k) & 1 ? graph.strength : -graph.strength;
    }
    auto draw = [&](std::size_t first, std::size_t last) {
        for (std::size_t r = first; r < last; ++r) {
            const std::uint64_t row_seed = random_word(seed, begin + r);
            const float* mean = centre.data() + graph.class_of(begin + r) * num_features;
            float* row = x + r * num_features;
            for (std::size_t k = 0; k < num_features; ++k) {
                // A word has the noise of two features, each the sum of two even numbers.
                const auto half =
                    static_cast<std::uint32_t>(random_word(row_seed, k / 2) >> (32 * (k % 2)));
                const auto sum = static_cast<std::int32_t>((half & 0xffff) + (half >> 16));
                row[k] = mean[k] + static_cast<float>(sum - middle) * per_deviation;
            }
        }
    };
    run_in_pieces(end - begin, 256, draw);
}

}  // namespace bignn
