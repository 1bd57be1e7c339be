// Training's pieces in NEON: counts under a mask, and entries that a mask keeps.
#pragma once

#include "neon_xnor.h"

namespace bignn::neon {

template <class Base>
struct TrainingPieces : Base {
    using typename Base::Isa;

    static void masked_counts(const word* row, const word* mask, const half* panel,
                              std::size_t num_words, std::int32_t* counts) {
        const auto kept = [=](std::size_t, std::size_t w, uint32x4_t four) {
            return vandq_u32(Base::broadcast_half(mask, w),
                             veorq_u32(Base::broadcast_half(row, w), four));
        };
        Base::store_counts(typename Base::template Counts<1>(panel, num_words, kept), counts);
    }

    static void keep_row(const float* x, const word* mask, std::size_t num_bits, float* out) {
        for (std::size_t k = 0; k < num_bits; k += 4) {
            const uint32x4_t bits = Base::broadcast_half(mask, k / 32);
            const uint32x4_t kept = vtstq_u32(bits, vld1q_u32(bit_of_half + k % 32));
            const std::size_t left = num_bits - k;
            store_first(out + k, left, where(kept, load_first(x + k, left)));
        }
    }
};

}  // namespace bignn::neon
