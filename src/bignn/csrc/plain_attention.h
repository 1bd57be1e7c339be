// The pieces of attention as plain loops: scores, and the weights that come from them.
#pragma once

#include "arithmetic.h"

namespace bignn {

// See isa.h for what Isa is.
template <class Isa>
struct PlainAttention {
    // The largest of `count` scores.
    static float largest_score_of(const float* source, std::size_t count) {
        float most = -largest_score;
        for (std::size_t e = 0; e < count; ++e) most = source[e] > most ? source[e] : most;
        return most;
    }

    // x[e] = p_e t_e for `count` entries of a row, which have scores `source` and factors t.
    static Attended attend(const float* source, const float* factor, std::size_t count,
                           float target, float top, float slope, float* x) {
        Attended all{0, 0};
        for (std::size_t e = 0; e < count; ++e) {
            const float p = exp_of_negative(leaky(target + source[e], slope) - top);
            all.shares += static_cast<std::uint32_t>(
                __builtin_lrintf(p * static_cast<float>(1 << share_bits)));
            x[e] = bounded(p * factor[e]);
            all.most = x[e] > all.most ? x[e] : all.most;
        }
        return all;
    }

    // Makes and rounds one head's weights of tile_rows rows that follow each other in the list,
    // of at most `few` entries each. The results are those of weigh_tile.
    static void attend_few(const float* source, const float* factor, const std::int64_t* offsets,
                           const float* targets, float slope, int bits, std::uint32_t* q,
                           std::uint32_t* totals, float* row_scale) {
        for (std::size_t r = 0; r < tile_rows; ++r) {
            const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
            float x[few];
            const float top = leaky(targets[r] + Isa::largest_score_of(source, count), slope);
            const Attended all = Isa::attend(source, factor, count, targets[r], top, slope, x);
            const RowWeights weights = row_weights(all.most, count, share_of(all.shares), bits);
            for (std::size_t e = 0; e < few; ++e) q[r * few + e] = 0;
            totals[r] = Isa::round_weights(x, count, weights.two_to_e, weights.limit, q + r * few);
            row_scale[r] = weights.scale;
            source += count;
            factor += count;
        }
    }

    // See ScoreRows in kernels.h.
    static void score_rows(const Scores& scores, std::size_t begin, std::size_t end) {
        const std::size_t num_words = words_per_row(scores.num_bits);
        for (std::size_t i = begin; i < end; ++i) {
            const word* row = scores.words + i * num_words;
            for (std::size_t n = 0; n < scores.count; ++n) {
                const std::int32_t* values = scores.values + n * num_words * word_bits;
                std::uint32_t sum = 0;
                for (std::size_t w = 0; w < num_words; ++w) {
                    for (std::size_t bit = 0; bit < word_bits; ++bit) {
                        const auto value = static_cast<std::uint32_t>(values[w * word_bits + bit]);
                        const auto sign = static_cast<std::uint32_t>(row[w] >> bit & 1) - 1;
                        sum += (value ^ sign) - sign;  // value or -value
                    }
                }
                scores.out[n * scores.num_rows + i] =
                    bounded_score(static_cast<float>(static_cast<std::int32_t>(sum)) *
                                  scores.sigma[n] * scores.factor[i]);
            }
        }
    }

    // Puts a head's sums in their place beside the other heads'.
    static void put_head(const float* from, float row_scale, std::size_t channels, float* sums) {
        for (std::size_t c = 0; c < channels; ++c) sums[c] = from[c] * row_scale;
    }

    // Adds a head's sums to those of the heads before it; the first one's replace them.
    static void add_head(const float* from, float row_scale, const float* scale, bool first,
                         std::size_t channels, float* sums) {
        for (std::size_t c = 0; c < channels; ++c) {
            const float part = from[c] * row_scale * scale[c];
            sums[c] = first ? part : sums[c] + part;
        }
    }
};

}  // namespace bignn
