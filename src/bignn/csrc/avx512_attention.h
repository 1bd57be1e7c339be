// Scores and the weights of attention, in AVX-512. plain.h says what they are.
// Text of avx512.cpp, in whose namespace it stands.

inline void score_rows(const Scores& scores, std::size_t begin, std::size_t end) {
    const std::size_t num_words = words_per_row(scores.num_bits), pieces = 4 * num_words;
    for (std::size_t n = 0; n < scores.count; ++n) {
        const std::int32_t* values = scores.values + n * num_words * word_bits;
        __m512i all = _mm512_setzero_si512();
        for (std::size_t p = 0; p < pieces; ++p) {
            all = _mm512_add_epi32(all, _mm512_loadu_si512(values + 16 * p));
        }
        const auto total = static_cast<std::uint32_t>(_mm512_reduce_add_epi32(all));
        for (std::size_t i = begin; i < end; ++i) {
            const auto* bits = reinterpret_cast<const std::byte*>(scores.words + i * num_words);
            __m512i even = _mm512_setzero_si512(), odd = even;
            for (std::size_t p = 0; p < pieces; p += 2) {
                __mmask16 low, high;
                __builtin_memcpy(&low, bits + 2 * p, sizeof low);
                __builtin_memcpy(&high, bits + 2 * p + 2, sizeof high);
                even = _mm512_mask_add_epi32(even, low, even, _mm512_loadu_si512(values + 16 * p));
                odd = _mm512_mask_add_epi32(odd, high, odd,
                                            _mm512_loadu_si512(values + 16 * p + 16));
            }
            const auto set = static_cast<std::uint32_t>(
                _mm512_reduce_add_epi32(_mm512_add_epi32(even, odd)));
            scores.out[n * scores.num_rows + i] = plain::bounded_score(
                static_cast<float>(static_cast<std::int32_t>(2 * set - total)) * scores.sigma[n] *
                scores.factor[i]);
        }
    }
}

inline __m512 gather_floats(const std::int32_t* ids, __mmask16 valid, const float* from) {
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), valid,
                                    _mm512_maskz_loadu_epi32(valid, ids), from, sizeof(float));
}

inline float largest_score_of(const std::int32_t* ids, std::size_t count, const float* source) {
    __m512 most = _mm512_set1_ps(-largest_score);
    for (std::size_t e = 0; e < count; e += 16) {
        const __mmask16 valid = first_lanes(count - e);
        most = _mm512_mask_max_ps(most, valid, most, gather_floats(ids + e, valid, source));
    }
    return _mm512_reduce_max_ps(most);
}

inline float largest_score_of(const std::int64_t* ids, std::size_t count, const float* source) {
    return plain::largest_score_of(ids, count, source);
}

// The same operations in the same order as in plain.h.
inline __m512 exp_of_negative(__m512 t) {
    using namespace plain;
    const __mmask16 counts = _mm512_cmp_ps_mask(t, _mm512_set1_ps(lowest_score), _CMP_GE_OQ);
    const __m512i n = _mm512_maskz_cvtps_epi32(counts, _mm512_mul_ps(t, _mm512_set1_ps(log2_of_e)));
    const __m512 times = _mm512_cvtepi32_ps(n);
    const __m512 r = _mm512_sub_ps(
        _mm512_sub_ps(t, _mm512_mul_ps(times, _mm512_set1_ps(high_log2))),
        _mm512_mul_ps(times, _mm512_set1_ps(low_log2)));
    __m512 p = _mm512_add_ps(_mm512_mul_ps(_mm512_set1_ps(exp6_c), r), _mm512_set1_ps(exp5_c));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(exp4_c));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(exp3_c));
    p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(exp2_c));
    p = _mm512_add_ps(_mm512_add_ps(_mm512_mul_ps(p, _mm512_mul_ps(r, r)), r),
                      _mm512_set1_ps(1.0f));
    const __m512i power = _mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(counts, p, _mm512_castsi512_ps(power));
}

inline plain::Attended attend(const std::int32_t* ids, std::size_t count, const float* source,
                              const float* factor, float target, float top, float slope,
                              float* x) {
    const __m512 targets = _mm512_set1_ps(target), tops = _mm512_set1_ps(top);
    const __m512 zero = _mm512_setzero_ps();
    __m512 most = zero;
    __m512i shares = _mm512_setzero_si512();
    for (std::size_t e = 0; e < count; e += 16) {
        const __mmask16 valid = first_lanes(count - e);
        const __m512 sum = _mm512_add_ps(targets, gather_floats(ids + e, valid, source));
        const __mmask16 below = _mm512_cmp_ps_mask(sum, zero, _CMP_LT_OQ);
        const __m512 score = _mm512_mask_mul_ps(sum, below, sum, _mm512_set1_ps(slope));
        const __m512 p = _mm512_maskz_mov_ps(valid, exp_of_negative(_mm512_sub_ps(score, tops)));
        shares = _mm512_add_epi32(
            shares, _mm512_cvtps_epi32(_mm512_mul_ps(p, _mm512_set1_ps(1 << share_bits))));
        const __m512 weights = bounded(_mm512_mul_ps(p, gather_floats(ids + e, valid, factor)));
        _mm512_storeu_ps(x + e, weights);
        most = _mm512_max_ps(most, weights);
    }
    return {_mm512_reduce_max_ps(most),
            static_cast<std::uint32_t>(_mm512_reduce_add_epi32(shares))};
}

inline plain::Attended attend(const std::int64_t* ids, std::size_t count, const float* source,
                              const float* factor, float target, float top, float slope,
                              float* x) {
    return plain::attend(ids, count, source, factor, target, top, slope, x);
}
