// The first half of a layer: where the data of a row's neighbours is, what they weigh, and the sums
// over them, written in terms of the pieces in plain.h.
#pragma once

#include "arithmetic.h"

namespace bignn {

// The scratch of one thread, laid out in the caller's bytes (null: only its size is wanted).
template <class Isa>
struct Scratch {
    const std::byte** rows;  // [batch + slack]: the data of neighbours
    float* x;                // [batch + slack]: their weights
    float* scores;           // [heads, batch + slack]: their scores, for attention
    float* factors;          // [batch + slack]: their source factors, for attention
    std::uint32_t* q;        // [chunk + slack]: integer weights
    std::int64_t* acc;       // [positions]: sums of records
    std::int32_t* u;         // [tile_rows, inputs]: sums of bits
    float* sums;             // [tile_rows, outputs]
    float* head;             // [tile_rows, channels]: sums of one head, for attention
    word* own_words;         // [tile_rows, words of the inputs]: bits of the rows themselves
    word* words;             // [tile_rows, words of the outputs]
    std::byte* multiply;
    std::size_t size, sums_stride, head_stride;

    Scratch(const Layer& layer, std::byte* bytes) {
        std::size_t used = 0;
        const auto take = [&](std::size_t count) {
            std::byte* start = bytes ? bytes + used : nullptr;
            used += (count + 63) / 64 * 64;
            return start;
        };
        // Vector code writes whole registers, up to 64 columns past a row's end.
        sums_stride = (layer.num_outputs + 63) / 64 * 64;
        head_stride = (layer.attention.channels + 63) / 64 * 64;
        const bool by_bits = layer.way == Way::bits;
        const bool has_own = layer.own.panels != nullptr;
        const std::size_t in_words = words_per_row(layer.num_inputs);
        // Columns that are summed at a time.
        const std::size_t columns =
            layer.attention.heads ? layer.attention.channels : layer.num_outputs;
        rows = reinterpret_cast<const std::byte**>(take(8 * (batch + slack)));
        x = reinterpret_cast<float*>(take(4 * (batch + slack)));
        scores = reinterpret_cast<float*>(take(4 * layer.attention.heads * (batch + slack)));
        factors = reinterpret_cast<float*>(take(layer.attention.heads ? 4 * (batch + slack) : 0));
        q = reinterpret_cast<std::uint32_t*>(take(4 * (chunk + slack)));
        acc = reinterpret_cast<std::int64_t*>(take(8 * ((columns + 63) / 64 * 64)));
        u = reinterpret_cast<std::int32_t*>(
            take(by_bits ? 4 * tile_rows * Isa::u_stride(layer.num_inputs) : 0));
        sums = reinterpret_cast<float*>(take(4 * tile_rows * sums_stride));
        head = reinterpret_cast<float*>(take(4 * tile_rows * head_stride));
        own_words = reinterpret_cast<word*>(take(has_own ? 8 * tile_rows * in_words : 0));
        words = reinterpret_cast<word*>(take(8 * tile_rows * words_per_row(layer.num_outputs)));
        multiply = take(by_bits ? Isa::multiply_scratch_bytes(layer.num_inputs, columns) : 0);
        size = used;
    }
};

// A stretch of the list of neighbours: for each entry, where its data is and what it weighs. Rows
// follow each other in that list, so a batch serves several of them, and the data of later entries
// can be prefetched while earlier ones are summed.
template <class Isa, typename Id>
class Batch {
   public:
    // The batch will serve rows [begin, end).
    Batch(const Layer& layer, const Id* ids, std::size_t begin, std::size_t end,
          Scratch<Isa>& scratch)
        : from_(layer.edges),
          ids_(ids),
          scratch_(scratch),
          end_(static_cast<std::size_t>(layer.edges.offsets[end])),
          attention_(layer.attention),
          first_(static_cast<std::size_t>(layer.edges.offsets[begin])),
          last_(first_) {
        const bool by_records = layer.way == Way::records;
        data_ = by_records ? layer.records.data : reinterpret_cast<const std::byte*>(layer.words);
        stride_ = by_records ? layer.records.step : 8 * words_per_row(layer.num_inputs);
    }

    // Makes entries [begin, end), a chunk at most, available. `slack` further entries of rows()
    // point at readable data, so that weights padded with 0 need no test.
    void cover(std::size_t begin, std::size_t end) {
        if (begin >= first_ && end <= last_) return;
        const std::size_t count = end_ - begin < batch ? end_ - begin : batch;
        if (attention_.heads) {
            Isa::weigh(ids_ + begin, nullptr, count, from_.source_factor, scratch_.factors);
        } else {
            Isa::weigh(ids_ + begin, from_.weights ? from_.weights + begin : nullptr, count,
                       from_.source_factor, scratch_.x);
        }
        for (std::size_t head = 0; head < attention_.heads; ++head) {
            Isa::weigh(ids_ + begin, nullptr, count,
                       attention_.source + head * attention_.num_sources,
                       scratch_.scores + head * (batch + slack));
        }
        Isa::set_row_pointers(ids_ + begin, count, data_, stride_, scratch_.rows);
        for (std::size_t e = count; e < count + slack; ++e) scratch_.rows[e] = data_;
        first_ = begin;
        last_ = begin + count;
    }

    // To be called where others have used the scratch: nothing is available after it.
    void forget() { last_ = first_; }

    const float* x(std::size_t entry) const { return scratch_.x + (entry - first_); }
    const float* scores(std::size_t head, std::size_t entry) const {
        return scratch_.scores + head * (batch + slack) + (entry - first_);
    }
    const float* factors(std::size_t entry) const { return scratch_.factors + (entry - first_); }
    const std::byte* const* rows(std::size_t entry) const {
        return scratch_.rows + (entry - first_);
    }

   private:
    const Edges& from_;
    const Id* ids_;
    Scratch<Isa>& scratch_;
    std::size_t end_;
    const std::byte* data_;
    std::size_t stride_;
    const Attention& attention_;
    std::size_t first_, last_;  // the entries that are available
};

static inline std::size_t num_neighbours(const Layer& layer, std::size_t i) {
    const std::int64_t* offsets = layer.edges.offsets + i;
    return static_cast<std::size_t>(offsets[1] - offsets[0]);
}

// Walks over the neighbours of row i: calls add(rows, count, total, whether it is the first) for
// each chunk of them, with their integer weights in scratch.q. Returns what the sums are to be
// multiplied by.
template <class Isa, typename Id, class Add>
inline float gather_row(const Layer& layer, std::size_t i, Batch<Isa, Id>& entries,
                        Scratch<Isa>& scratch, Add add) {
    const Edges& from = layer.edges;
    const auto begin = static_cast<std::size_t>(from.offsets[i]);
    const auto end = static_cast<std::size_t>(from.offsets[i + 1]);
    const auto stop = [&](std::size_t at) { return end - at < chunk ? end : at + chunk; };
    float most = 0;
    for (std::size_t at = begin; at < end; at += chunk) {
        entries.cover(at, stop(at));
        const float some = Isa::largest(entries.x(at), stop(at) - at);
        most = some > most ? some : most;
    }
    const RowWeights weights =
        row_weights(most, end - begin, from.target_factor[i], layer.edge_bits);
    std::size_t at = begin;
    do {  // at least once: a row without neighbours is 0
        const std::size_t count = stop(at) - at;
        if (count) entries.cover(at, stop(at));
        const std::uint32_t total = count
                                        ? Isa::round_weights(entries.x(at), count, weights.two_to_e,
                                                             weights.limit, scratch.q)
                                        : 0;
        add(entries.rows(at), count, total, at == begin);
        at += chunk;
    } while (at < end);
    return weights.scale;
}

// Sums one row from records; gather(add) is gather_row or attend_row. Returns what it returns.
template <class Isa, class Gather>
inline float sum_row(const Records& records, std::size_t num_columns, std::size_t num_neighbours,
                     Scratch<Isa>& scratch, float* sums, Gather gather) {
    if (num_neighbours <= chunk) {
        return gather(
            [&](const std::byte* const* rows, std::size_t count, std::uint32_t total, bool) {
                Isa::sum_records(records, num_columns, rows, scratch.q, count, total, scratch.acc,
                                 sums);
            });
    }
    for (std::size_t p = 0; p < records.stride / records.bytes_per_column; ++p) scratch.acc[p] = 0;
    std::uint32_t all = 0;
    const float scale =
        gather([&](const std::byte* const* rows, std::size_t count, std::uint32_t total, bool) {
            Isa::add_records(records, rows, scratch.q, count, scratch.acc);
            all += total;
        });
    Isa::finish_records(records, num_columns, all, scratch.acc, sums);
    return scale;
}

// u = sum_j q_j F_j of one row; gather is as in sum_row.
template <class Isa, class Gather>
inline float sum_bits(std::size_t num_inputs, Scratch<Isa>& scratch, std::int32_t* u,
                      Gather gather) {
    return gather(
        [&](const std::byte* const* rows, std::size_t count, std::uint32_t total, bool first) {
            Isa::add_bits(rows, scratch.q, count, total, first, num_inputs, u);
        });
}

// Sums tile_rows rows of few neighbours each, whose weights are in scratch.q: into `sums`, or by
// bits into scratch.u.
template <class Isa, typename Id>
inline void sum_few(const Layer& layer, const Records& records, std::size_t num_columns,
                    const std::int64_t* offsets, const std::uint32_t* totals,
                    const Batch<Isa, Id>& entries, Scratch<Isa>& scratch, float* sums,
                    std::size_t sums_stride) {
    const std::byte* const* rows = entries.rows(static_cast<std::size_t>(offsets[0]));
    if (layer.way == Way::records) {
        Isa::sum_few_records(records, num_columns, rows, offsets, scratch.q, totals, scratch.acc,
                             sums, sums_stride);
        return;
    }
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
        Isa::add_bits(rows, scratch.q + r * few, count, totals[r], true, layer.num_inputs,
                      scratch.u + r * Isa::u_stride(layer.num_inputs));
        rows += count;
    }
}

// The source that row i itself is.
static inline std::size_t own_id(const Layer& layer, std::size_t i) {
    return layer.own_ids ? static_cast<std::size_t>(layer.own_ids[i]) : i;
}

}  // namespace bignn
