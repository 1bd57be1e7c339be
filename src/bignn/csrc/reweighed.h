// What a change of one neighbour's weight does to the integers of a row.
#pragma once

#include "arithmetic.h"

namespace bignn {

// A neighbour's integer weight before and after, unless the row rounds otherwise now.
struct Reweighed {
    bool is_scale_new;
    std::uint32_t before, after;
};

// `top` is the exponent of the row's largest weight, and `bits` the size of its integers, 0 if all
// are 0. As long as no weight has a larger exponent, and none of those that have it loses it, the
// row rounds as it did.
static inline Reweighed reweighed(int top, int bits, float before, float after) {
    before = bounded(before);
    after = bounded(after);
    const int old_exponent = floor_log2(before), new_exponent = floor_log2(after);
    if (bits == 0 || new_exponent > top || (old_exponent == top && new_exponent < top)) {
        return {true, 0, 0};
    }
    const float two_to_e = power_of_two(bits - 1 - top);
    const std::uint32_t limit = (std::uint32_t{1} << bits) - 1;
    const auto rounded = [&](float weight) {
        const auto q = static_cast<std::uint32_t>(__builtin_lrintf(weight * two_to_e));
        return q < limit ? q : limit;
    };
    return {false, rounded(before), rounded(after)};
}

// Whether a row's sum is another: the neighbour's weight is, or its bits are and they count.
static inline bool is_new_to_row(const Reweighed& q, bool has_new_bits) {
    return q.is_scale_new || q.before != q.after || (has_new_bits && q.after != 0);
}

}  // namespace bignn
