// Random words, each a hash of its number (SplitMix64), so that any of them can be drawn on any
// thread. kernels/random.py has the same in NumPy.
#pragma once

#include <cstdint>

namespace bignn {

// Static, since files with different flags include it; see isa.h.
static inline std::uint64_t random_word(std::uint64_t seed, std::uint64_t number) {
    std::uint64_t z = seed + (number + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

}  // namespace bignn
