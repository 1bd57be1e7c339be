// The pieces of way T in blocks of sources (blocked_rows.h) as plain loops.
#pragma once

#include "arithmetic.h"

namespace bignn {

// See isa.h for what Isa is.
template <class Isa>
struct PlainBlocks {
    // Whether blocks are faster than neighbour by neighbour where rows have many; the plain pieces
    // are there to be exact.
    static constexpr bool blocks_pay = false;
    // Weights of more bits are not added in blocks.
    static constexpr int most_block_bits = 8;

    // lengths[b * step] += the number of ids in block b, for ids in any order.
    template <typename Id>
    static void count_in_blocks(const Id* ids, std::size_t count, std::size_t shift,
                                std::uint32_t* lengths, std::size_t step) {
        for (std::size_t e = 0; e < count; ++e) {
            ++lengths[(static_cast<std::size_t>(ids[e]) >> shift) * step];
        }
    }

    // Appends each id, as its number within its block, and its weight to the list of the block: the
    // next entry of block b is places[b]. Up to `slack` entries after a list's end may be
    // overwritten.
    template <typename Id>
    static void split_into_blocks(const Id* ids, const std::uint32_t* q, std::size_t count,
                                  std::size_t shift, std::size_t* places, std::uint16_t* local,
                                  std::uint8_t* weights) {
        const std::size_t mask = (std::size_t{1} << shift) - 1;
        for (std::size_t e = 0; e < count; ++e) {
            const auto id = static_cast<std::size_t>(ids[e]);
            const std::size_t place = places[id >> shift]++;
            local[place] = static_cast<std::uint16_t>(id & mask);
            weights[place] = static_cast<std::uint8_t>(q[e]);
        }
    }

    // acc[c] += sum_e q_e v_e[c] for the 64 columns c of a line, in natural order; line e is at
    // lines + 64 local[e]. `count` is a multiple of 4.
    static void add_lines(const std::byte* lines, const std::uint16_t* local,
                          const std::uint8_t* weights, std::size_t count, std::int32_t* acc) {
        for (std::size_t e = 0; e < count; ++e) {
            const auto* v =
                reinterpret_cast<const std::int8_t*>(lines) + std::size_t{64} * local[e];
            const std::int32_t q = weights[e];
            for (std::size_t p = 0; p < 64; ++p) acc[record_column(p, 64, 1)] += q * v[p];
        }
    }
};

}  // namespace bignn
