// Scores, and the weights that attention makes of them, as plain loops. Text of plain.h.

// exp(t) for t <= 0, in these operations and this order. t = n log 2 + r; n has 7 bits and
// high_log2 10, so their product is exact.
constexpr float log2_of_e = 1.442695f;
constexpr float high_log2 = 0.693359375f;
constexpr float low_log2 = -0.00021219444f;
constexpr float exp2_c = 0.5f, exp3_c = 0.16666576f, exp4_c = 0.041666552f, exp5_c = 0.008363247f,
                exp6_c = 0.0013926268f;

inline float exp_of_negative(float t) {
    if (!(t >= lowest_score)) return 0;
    const auto n = static_cast<int>(__builtin_lrintf(t * log2_of_e));
    const auto times = static_cast<float>(n);
    const float r = (t - times * high_log2) - times * low_log2;
    float p = exp6_c * r + exp5_c;
    p = p * r + exp4_c;
    p = p * r + exp3_c;
    p = p * r + exp2_c;
    p = (p * (r * r) + r) + 1.0f;
    return p * power_of_two(n);
}

inline float leaky(float x, float slope) { return x >= 0 ? x : x * slope; }

inline float largest_score_of(const float* source, std::size_t count) {
    float most = -largest_score;
    for (std::size_t e = 0; e < count; ++e) most = source[e] > most ? source[e] : most;
    return most;
}

// x[e] = p_e t_e, the largest of them, and what the p_e add up to; of a part of a row whose entries
// have scores `source` and factors t.
struct Attended {
    float most;
    std::uint32_t shares;
};

inline Attended attend(const float* source, const float* factor, std::size_t count, float target,
                       float top, float slope, float* x) {
    Attended all{0, 0};
    for (std::size_t e = 0; e < count; ++e) {
        const float p = exp_of_negative(leaky(target + source[e], slope) - top);
        all.shares +=
            static_cast<std::uint32_t>(__builtin_lrintf(p * static_cast<float>(1 << share_bits)));
        x[e] = bounded(p * factor[e]);
        all.most = x[e] > all.most ? x[e] : all.most;
    }
    return all;
}

// What a row's weights are divided by.
inline float share_of(std::uint64_t shares) {
    return shares ? 1.0f / (static_cast<float>(shares) * (1.0f / (1 << share_bits))) : 0.0f;
}

// As weigh_tile, of one head: tile_rows rows that follow each other, of at most `few` entries each.
inline void attend_few(const float* source, const float* factor, const std::int64_t* offsets,
                       const float* targets, float slope, int bits, std::uint32_t* q,
                       std::uint32_t* totals, float* row_scale) {
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
        float x[few];
        const float top = leaky(targets[r] + largest_score_of(source, count), slope);
        const Attended all = attend(source, factor, count, targets[r], top, slope, x);
        const RowWeights weights(all.most, count, share_of(all.shares), bits);
        for (std::size_t e = 0; e < few; ++e) q[r * few + e] = 0;
        totals[r] = quantize(x, count, weights.two_to_e, weights.limit, q + r * few);
        row_scale[r] = weights.scale;
        source += count;
        factor += count;
    }
}

inline float bounded_score(float score) {
    score = score < largest_score ? score : largest_score;
    return score > -largest_score ? score : -largest_score;
}

inline void score_rows(const Scores& scores, std::size_t begin, std::size_t end) {
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
                bounded_score(static_cast<float>(static_cast<std::int32_t>(sum)) * scores.sigma[n] *
                              scores.factor[i]);
        }
    }
}

// A head's sums to their place beside the others', or onto them.
inline void put_head(const float* from, float row_scale, std::size_t channels, float* sums) {
    for (std::size_t c = 0; c < channels; ++c) sums[c] = from[c] * row_scale;
}

inline void add_head(const float* from, float row_scale, const float* scale, bool first,
                     std::size_t channels, float* sums) {
    for (std::size_t c = 0; c < channels; ++c) {
        const float part = from[c] * row_scale * scale[c];
        sums[c] = first ? part : sums[c] + part;
    }
}
