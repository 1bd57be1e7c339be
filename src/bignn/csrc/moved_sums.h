// Sums of a live graph's last layer that follow sources which changed. The loops have no form of
// their own per instruction set: compilers make vectors of them.
#pragma once

#include "isa.h"

namespace bignn {

template <class Isa>
struct MovedSums {
    static void move_sums(float* __restrict sums, const float* __restrict old_dots,
                          const float* __restrict new_dots, std::size_t stride,
                          const SumMove* moves, std::size_t count) {
        for (std::size_t n = 0; n < count; ++n) {
            const SumMove& move = moves[n];
            float* to = sums + move.row * stride;
            const float* less = old_dots + move.source * stride;
            const float* more = new_dots + move.source * stride;
            for (std::size_t k = 0; k < stride; k += 16) {
                for (std::size_t lane = 0; lane < 16; ++lane) {
                    to[k + lane] =
                        (to[k + lane] - move.before * less[k + lane]) + move.after * more[k + lane];
                }
            }
        }
    }
};

}  // namespace bignn
