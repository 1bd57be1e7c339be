// Random words that are a hash of their number (SplitMix64), so that any of them can be drawn on
// any thread. Text of the file that includes it, like plain.h; kernels/random.py has it in NumPy.
inline std::uint64_t random_word(std::uint64_t seed, std::uint64_t number) {
    std::uint64_t z = seed + (number + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
