// The definition of a packed row, for every kernel (bits.py has it in Python):
// bit 1 means +1 (value >= 0), bit 0 means -1, padding bits are 0, and for rows of K bits
//     dot(a, b) = K - 2 * popcount(a ^ b).
#pragma once

#include <cstddef>
#include <cstdint>

namespace bignn {

using word = std::uint64_t;
constexpr std::size_t word_bits = 64;

static constexpr std::size_t words_per_row(std::size_t num_bits) {
    return (num_bits + word_bits - 1) / word_bits;
}

}  // namespace bignn
