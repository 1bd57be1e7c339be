// Way T where rows have many neighbours, in blocks of sources.
//
// Neighbour by neighbour, every record comes from the shared cache anew. Here a tile of many rows
// takes its neighbours block by block: a block of sources stays in the second cache, with it the
// tile's sums, and a record comes from the shared cache once per tile. Records are kept line by
// line (64 columns), a table each, and a tile is summed line by line, so that blocks have many
// sources and tiles many rows. Before that, the neighbours of the tile are listed by block and row
// with weights of one byte, which serve all lines.
//
// All sums are the integers of gather.h. Rows of too many neighbours for 32 bits, and tiles of too
// few for a walk over all sources, are summed as there, a line at a time.
#pragma once

#include "gather.h"

namespace bignn {

// Entries of a tile, padding included, and neighbours of a row in it.
constexpr std::size_t most_tile_entries = std::size_t{5} << 18;
constexpr std::size_t most_tile_neighbours = std::size_t{1} << 16;
static_assert(most_tile_neighbours * 255 * 128 < std::size_t{1} << 31);

static inline std::size_t num_blocks(const Blocks& blocks) {
    return (blocks.num_sources + (std::size_t{1} << blocks.shift) - 1) >> blocks.shift;
}

// The scratch of a tile, laid out in the caller's bytes (null: only its size is wanted).
template <class Isa>
struct TileScratch {
    std::int32_t* acc;       // [lines, rows, 64]
    std::uint16_t* local;    // the lists of blocks: numbers of sources within the block,
    std::uint8_t* weights;   // and their weights
    std::uint32_t* lengths;  // [blocks, rows]: entries, a multiple of 4
    std::size_t* starts;     // [blocks]: where a block's list begins,
    std::size_t* places;     // and where its next entry goes
    std::uint32_t* totals;   // [rows]: sums of weights
    float* row_scale;        // [rows]
    std::size_t size;

    TileScratch(const Layer& layer, std::byte* bytes) {
        std::size_t used = 0;
        const auto take = [&](std::size_t count) {
            std::byte* start = bytes ? bytes + used : nullptr;
            used += (count + 63) / 64 * 64;
            return start;
        };
        const Blocks& blocks = layer.blocks;
        const std::size_t lines = layer.records.stride / 64, count = num_blocks(blocks);
        const std::size_t entries = most_tile_entries + (count + 1) * slack;
        acc = reinterpret_cast<std::int32_t*>(take(4 * 64 * lines * blocks.rows));
        local = reinterpret_cast<std::uint16_t*>(take(2 * entries));
        weights = reinterpret_cast<std::uint8_t*>(take(entries));
        lengths = reinterpret_cast<std::uint32_t*>(take(4 * count * blocks.rows));
        starts = reinterpret_cast<std::size_t*>(take(8 * count));
        places = reinterpret_cast<std::size_t*>(take(8 * count));
        totals = reinterpret_cast<std::uint32_t*>(take(4 * blocks.rows));
        row_scale = reinterpret_cast<float*>(take(4 * blocks.rows));
        size = used;
    }
};

// Counts the rows from `first` on that make a tile, and their neighbours; 0 rows if the first has
// too many.
static inline std::size_t rows_of_tile(const Layer& layer, std::size_t first, std::size_t end,
                                       std::size_t& neighbours) {
    const std::size_t blocks = num_blocks(layer.blocks);
    std::size_t rows = 0, entries = 0;
    neighbours = 0;
    for (; first + rows < end && rows < layer.blocks.rows; ++rows) {
        const std::size_t count = num_neighbours(layer, first + rows);
        entries += count + 3 * (count < blocks ? count : blocks);
        if (count > most_tile_neighbours || entries > most_tile_entries) break;
        neighbours += count;
    }
    return rows;
}

// Lists the neighbours of a tile by block and row.
template <class Isa, typename Id>
inline void list_tile(const Layer& layer, const Id* ids, std::size_t first, std::size_t num_rows,
                      Scratch<Isa>& scratch, TileScratch<Isa>& tile) {
    const Edges& from = layer.edges;
    const Blocks& blocks = layer.blocks;
    const std::size_t count_of_blocks = num_blocks(blocks);
    for (std::size_t n = 0; n < count_of_blocks * blocks.rows; ++n) tile.lengths[n] = 0;
    for (std::size_t r = 0; r < num_rows; ++r) {
        Isa::count_in_blocks(ids + from.offsets[first + r], num_neighbours(layer, first + r),
                             blocks.shift, tile.lengths + r, blocks.rows);
    }
    std::size_t place = 0;
    for (std::size_t b = 0; b < count_of_blocks; ++b) {
        tile.starts[b] = tile.places[b] = place;
        for (std::size_t r = 0; r < num_rows; ++r) {
            std::uint32_t& length = tile.lengths[b * blocks.rows + r];
            length = (length + 3) / 4 * 4;
            place += length;
        }
        place += slack;
    }
    for (std::size_t r = 0; r < num_rows; ++r) {
        const auto begin = static_cast<std::size_t>(from.offsets[first + r]);
        const auto end = static_cast<std::size_t>(from.offsets[first + r + 1]);
        const auto weigh = [&](std::size_t at) {
            const std::size_t count = end - at < batch ? end - at : batch;
            Isa::weigh(ids + at, from.weights ? from.weights + at : nullptr, count,
                       from.source_factor, scratch.x);
            return count;
        };
        float most = 0;
        for (std::size_t at = begin; at < end; at += batch) {
            const std::size_t count = weigh(at);
            const float some = Isa::largest(scratch.x, count);
            most = some > most ? some : most;
        }
        const RowWeights weights =
            row_weights(most, end - begin, from.target_factor[first + r], layer.edge_bits);
        tile.row_scale[r] = weights.scale;
        tile.totals[r] = 0;
        for (std::size_t at = begin; at < end; at += batch) {
            const std::size_t count = end - begin > batch ? weigh(at) : end - begin;
            for (std::size_t e = 0; e < count; e += chunk) {
                const std::size_t some = count - e < chunk ? count - e : chunk;
                tile.totals[r] += Isa::round_weights(scratch.x + e, some, weights.two_to_e,
                                                     weights.limit, scratch.q);
                Isa::split_into_blocks(ids + at + e, scratch.q, some, blocks.shift, tile.places,
                                       tile.local, tile.weights);
            }
        }
        // Lists of rows are padded to whole fours, with weights of 0.
        for (std::size_t b = 0; b < count_of_blocks; ++b) {
            const std::size_t at = tile.places[b];
            __builtin_memset(tile.local + at, 0, 4 * sizeof *tile.local);
            __builtin_memset(tile.weights + at, 0, 4 * sizeof *tile.weights);
            tile.places[b] = (at + 3) / 4 * 4;
        }
    }
}

// Sums a tile whose neighbours are listed. While a block is added, the next one is fetched, some
// lines per row.
template <class Isa>
inline void sum_tile(const Layer& layer, std::size_t num_rows, TileScratch<Isa>& tile) {
    const Blocks& blocks = layer.blocks;
    const std::size_t count_of_blocks = num_blocks(blocks);
    const std::size_t block_bytes = std::size_t{64} << blocks.shift;
    const std::size_t fetched = (block_bytes / 64 + num_rows - 1) / num_rows;
    for (std::size_t line = 0; line < layer.records.stride / 64; ++line) {
        std::int32_t* acc = tile.acc + line * blocks.rows * 64;
        for (std::size_t n = 0; n < 64 * num_rows; ++n) acc[n] = 0;
        const std::byte* lines = layer.records.data + line * blocks.line_step;
        for (std::size_t b = 0; b < count_of_blocks; ++b, lines += block_bytes) {
            const std::uint16_t* local = tile.local + tile.starts[b];
            const std::uint8_t* weights = tile.weights + tile.starts[b];
            for (std::size_t r = 0; r < num_rows; ++r) {
                const std::byte* next = lines + block_bytes + r * fetched * 64;
                for (std::size_t n = 0; n < fetched; ++n) __builtin_prefetch(next + 64 * n, 0, 2);
                const std::uint32_t count = tile.lengths[b * blocks.rows + r];
                if (count) Isa::add_lines(lines, local, weights, count, acc + 64 * r);
                local += count;
                weights += count;
            }
        }
    }
}

// Writes the sums of row r of a tile as floats.
template <class Isa>
inline void finish_lines(const Layer& layer, const TileScratch<Isa>& tile, std::size_t r,
                         float* sums) {
    const Records& records = layer.records;
    const std::uint32_t total = tile.totals[r];
    const auto bound = (static_cast<std::uint64_t>(records.max_center) + 256) * total;
    for (std::size_t line = 0; line < records.stride / 64; ++line) {
        const std::int32_t* acc = tile.acc + (line * layer.blocks.rows + r) * 64;
        const std::int32_t* center = records.center + 64 * line;
        float* __restrict to = sums + 64 * line;
        if (bound < std::uint64_t{1} << 31) {
            const auto times = static_cast<std::int32_t>(total);
            for (std::size_t c = 0; c < 64; ++c) {
                to[c] = static_cast<float>(center[c] * times + 2 * acc[c]);
            }
        } else {
            for (std::size_t c = 0; c < 64; ++c)
                to[c] = Isa::finished_sum(center[c], total, acc[c]);
        }
    }
}

// Sums row i neighbour by neighbour, a line at a time.
template <class Isa, typename Id>
inline float gather_lines(const Layer& layer, std::size_t i, Batch<Isa, Id>& entries,
                          Scratch<Isa>& scratch, float* sums) {
    float scale = 0;
    for (std::size_t line = 0; line < layer.records.stride / 64; ++line) {
        Records part = layer.records;
        part.offset = line * layer.blocks.line_step;
        part.stride = 64;
        part.center += 64 * line;
        const std::size_t left = layer.num_outputs - 64 * line;
        const auto gather = [&](auto add) { return gather_row(layer, i, entries, scratch, add); };
        scale = sum_row(part, left < 64 ? left : 64, num_neighbours(layer, i), scratch,
                        sums + 64 * line, gather);
    }
    return scale;
}

// Computes rows [begin, end); finish(first, num_rows, row_scale) ends up to tile_rows of them,
// whose sums are in scratch.
template <class Isa, typename Id, class Finish>
inline void blocked_rows(const Layer& layer, const Id* ids, std::size_t begin, std::size_t end,
                         std::byte* bytes, Scratch<Isa>& scratch, Finish finish) {
    TileScratch<Isa> tile(layer, bytes + scratch.size);
    Batch<Isa, Id> entries(layer, ids, begin, end, scratch);
    float row_scale[tile_rows];
    for (std::size_t first = begin; first < end;) {
        std::size_t neighbours;
        const std::size_t found = rows_of_tile(layer, first, end, neighbours);
        const std::size_t rows = found ? found : 1;
        const bool in_blocks = found && neighbours >= layer.blocks.num_sources;
        if (in_blocks) {
            list_tile(layer, ids, first, rows, scratch, tile);
            entries.forget();  // its weights were where the tile's were made
            sum_tile(layer, rows, tile);
        }
        for (std::size_t at = 0; at < rows; at += tile_rows) {
            const std::size_t some = rows - at < tile_rows ? rows - at : tile_rows;
            for (std::size_t r = 0; r < some; ++r) {
                float* sums = scratch.sums + r * scratch.sums_stride;
                if (in_blocks) {
                    finish_lines(layer, tile, at + r, sums);
                    row_scale[r] = tile.row_scale[at + r];
                } else {
                    row_scale[r] = gather_lines(layer, first + at + r, entries, scratch, sums);
                }
            }
            finish(first + at, some, row_scale);
        }
        first += rows;
    }
}

}  // namespace bignn
