// A layer row by row, written once in terms of the pieces in plain.h or their vector forms. Text
// of each instruction set's file, like plain.h.

// The scratch of one thread, laid out in the caller's bytes (null: only its size is wanted).
struct Scratch {
    const std::byte** rows;  // [batch + slack]
    float* x;                // [batch + slack]
    float* scores;           // [heads, batch + slack], of attention
    float* factors;          // [batch + slack], likewise
    std::uint32_t* q;        // [chunk + slack]
    std::int64_t* acc;       // [positions]
    std::int32_t* u;         // [tile_rows, inputs]
    float* sums;             // [tile_rows, outputs]
    float* head;             // [tile_rows, channels], of attention
    word* own_words;         // [tile_rows, words of the inputs], of rows' own parts
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
            take(by_bits ? 4 * tile_rows * u_stride(layer.num_inputs) : 0));
        sums = reinterpret_cast<float*>(take(4 * tile_rows * sums_stride));
        head = reinterpret_cast<float*>(take(4 * tile_rows * head_stride));
        own_words = reinterpret_cast<word*>(take(has_own ? 8 * tile_rows * in_words : 0));
        words = reinterpret_cast<word*>(take(8 * tile_rows * words_per_row(layer.num_outputs)));
        multiply = take(by_bits ? multiply_scratch_bytes(layer.num_inputs, columns) : 0);
        size = used;
    }
};

inline std::size_t scratch_bytes(const Layer& layer) { return Scratch(layer, nullptr).size; }

// The entries of the list of neighbours that are being worked on: where each one's data is, and its
// weight. Rows follow each other in that list, so a batch serves several of them, and the data of
// entries further on can be asked for while the sums are busy with earlier ones.
template <typename Id>
class Batch {
   public:
    // For rows [begin, end).
    Batch(const Layer& layer, const Id* ids, std::size_t begin, std::size_t end, Scratch& scratch)
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

    // Makes entries [begin, end), a chunk at most, available. Every place from `begin` on can be
    // read, `slack` past the end too: where weights are padded with 0, places need not be.
    void cover(std::size_t begin, std::size_t end) {
        if (begin >= first_ && end <= last_) return;
        const std::size_t count = end_ - begin < batch ? end_ - begin : batch;
        if (attention_.heads) {
            weigh(ids_ + begin, nullptr, count, from_.source_factor, scratch_.factors);
        } else {
            weigh(ids_ + begin, from_.weights ? from_.weights + begin : nullptr, count,
                  from_.source_factor, scratch_.x);
        }
        for (std::size_t head = 0; head < attention_.heads; ++head) {
            weigh(ids_ + begin, nullptr, count, attention_.source + head * attention_.num_sources,
                  scratch_.scores + head * (batch + slack));
        }
        set_row_pointers(ids_ + begin, count, data_, stride_, scratch_.rows);
        for (std::size_t e = count; e < count + slack; ++e) scratch_.rows[e] = data_;
        first_ = begin;
        last_ = begin + count;
    }

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
    Scratch& scratch_;
    std::size_t end_;
    const std::byte* data_;
    std::size_t stride_;
    const Attention& attention_;
    std::size_t first_, last_;  // the entries that are available
};

inline std::size_t num_neighbours(const Layer& layer, std::size_t i) {
    const std::int64_t* offsets = layer.edges.offsets + i;
    return static_cast<std::size_t>(offsets[1] - offsets[0]);
}

// One row: calls add(places, count, total, whether it is the first) for each chunk of it, with the
// integer weights in scratch.q; returns what the sums are to be multiplied by.
template <typename Id, class Add>
inline float gather_row(const Layer& layer, std::size_t i, Batch<Id>& entries, Scratch& scratch,
                        Add add) {
    const Edges& from = layer.edges;
    const auto begin = static_cast<std::size_t>(from.offsets[i]);
    const auto end = static_cast<std::size_t>(from.offsets[i + 1]);
    const auto stop = [&](std::size_t at) { return end - at < chunk ? end : at + chunk; };
    float most = 0;
    for (std::size_t at = begin; at < end; at += chunk) {
        entries.cover(at, stop(at));
        const float some = largest(entries.x(at), stop(at) - at);
        most = some > most ? some : most;
    }
    const RowWeights weights(most, end - begin, from.target_factor[i], layer.edge_bits);
    std::size_t at = begin;
    do {  // at least once: a row without neighbours is 0
        const std::size_t count = stop(at) - at;
        if (count) entries.cover(at, stop(at));
        const std::uint32_t total =
            count ? quantize(entries.x(at), count, weights.two_to_e, weights.limit, scratch.q) : 0;
        add(entries.rows(at), count, total, at == begin);
        at += chunk;
    } while (at < end);
    return weights.scale;
}

// The sums of one row from records; gather(add) is gather_row or attend_row.
template <class Gather>
inline float sum_row(const Records& records, std::size_t num_columns, std::size_t num_neighbours,
                     Scratch& scratch, float* sums, Gather gather) {
    if (num_neighbours <= chunk) {
        return gather(
            [&](const std::byte* const* rows, std::size_t count, std::uint32_t total, bool) {
                sum_records(records, num_columns, rows, scratch.q, count, total, scratch.acc, sums);
            });
    }
    for (std::size_t p = 0; p < records.stride / records.bytes_per_column; ++p) scratch.acc[p] = 0;
    std::uint32_t all = 0;
    const float scale =
        gather([&](const std::byte* const* rows, std::size_t count, std::uint32_t total, bool) {
            add_records(records, rows, scratch.q, count, scratch.acc);
            all += total;
        });
    finish_records(records, num_columns, all, scratch.acc, sums);
    return scale;
}

// u = sum_j q_j F_j of one row; gather as in sum_row.
template <class Gather>
inline float sum_bits(std::size_t num_inputs, Scratch& scratch, std::int32_t* u, Gather gather) {
    return gather(
        [&](const std::byte* const* rows, std::size_t count, std::uint32_t total, bool first) {
            add_bits(rows, scratch.q, count, total, first, num_inputs, u);
        });
}

// Of tile_rows rows of few neighbours each, whose weights are in scratch.q: sums, or u by bits.
template <typename Id>
inline void sum_few(const Layer& layer, const Records& records, std::size_t num_columns,
                    const std::int64_t* offsets, const std::uint32_t* totals,
                    const Batch<Id>& entries, Scratch& scratch, float* sums,
                    std::size_t sums_stride) {
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const auto at = static_cast<std::size_t>(offsets[r]);
        const auto count = static_cast<std::size_t>(offsets[r + 1]) - at;
        const std::uint32_t* q = scratch.q + r * few;
        if (layer.way == Way::records) {
            sum_records(records, num_columns, entries.rows(at), q, count, totals[r], scratch.acc,
                        sums + r * sums_stride);
        } else {
            add_bits(entries.rows(at), q, count, totals[r], true, layer.num_inputs,
                     scratch.u + r * u_stride(layer.num_inputs));
        }
    }
}

// Which source a row is.
inline std::size_t own_id(const Layer& layer, std::size_t i) {
    return layer.own_ids ? static_cast<std::size_t>(layer.own_ids[i]) : i;
}

// What rows first .. first + num_rows have of their own, onto their sums.
inline void add_own_parts(const Layer& layer, std::size_t first, std::size_t num_rows,
                          const float* row_scale, Scratch& scratch) {
    const std::size_t num_words = words_per_row(layer.num_inputs);
    const word* words = layer.words + first * num_words;
    if (layer.own_ids) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            const word* from = layer.words + own_id(layer, first + r) * num_words;
            for (std::size_t w = 0; w < num_words; ++w) {
                scratch.own_words[r * num_words + w] = from[w];
            }
        }
        words = scratch.own_words;
    }
    float factors[tile_rows];
    for (std::size_t r = 0; r < num_rows; ++r) {
        factors[r] = layer.edges.source_factor[own_id(layer, first + r)];
    }
    add_own_rows(words, num_rows, layer.num_inputs, layer.own, factors, row_scale, layer.scale,
                 layer.num_outputs, scratch.sums, scratch.sums_stride);
}

// Rows first .. first + num_rows, whose sums are in scratch: to where they go.
inline bool finish_tile(const Layer& layer, std::size_t first, std::size_t num_rows,
                        const float* row_scale, const float* scale, Scratch& scratch) {
    const std::size_t num_outputs = layer.num_outputs;
    if (layer.values) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            value_row(scratch.sums + r * scratch.sums_stride, row_scale[r], scale, layer.shift,
                      num_outputs, layer.values + (first + r - layer.first_value) * num_outputs);
        }
    }
    if (layer.classes) {
        class_tile(scratch.sums, scratch.sums_stride, num_rows, row_scale, scale, layer.shift,
                   num_outputs, layer.classes + first);
    }
    if (!layer.out_factor) return true;
    word* words =
        layer.out_words ? layer.out_words + first * words_per_row(num_outputs) : scratch.words;
    const float* out_scale = layer.out_scale ? layer.out_scale + first : nullptr;
    float* factor = layer.out_factor + first;
    sign_tile(scratch.sums, scratch.sums_stride, num_rows, row_scale, scale, layer.shift,
              num_outputs, words, layer.out_beta ? nullptr : out_scale, factor);
    if (layer.out_beta) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            layer.out_beta[first + r] = factor[r];
            if (out_scale) factor[r] = bounded(out_scale[r] * factor[r]);
        }
    }
    return !layer.next || make_records(words, num_rows, *layer.next,
                                       layer.next_records + first * layer.next->stride);
}

#include "attention_rows.h"

// The sums of tile_rows rows of few neighbours each.
template <typename Id>
inline void gather_few(const Layer& layer, std::size_t first, Batch<Id>& entries, Scratch& scratch,
                       float* row_scale) {
    const Edges& from = layer.edges;
    const std::int64_t* offsets = from.offsets + first;
    const auto begin = static_cast<std::size_t>(offsets[0]);
    entries.cover(begin, static_cast<std::size_t>(offsets[tile_rows]));
    std::uint32_t totals[tile_rows];
    weigh_tile(entries.x(begin), offsets, from.target_factor + first, layer.edge_bits, scratch.q,
               totals, row_scale);
    sum_few(layer, layer.records, layer.num_outputs, offsets, totals, entries, scratch,
            scratch.sums, scratch.sums_stride);
}

// The sums of one row, or u by bits.
template <typename Id>
inline float gather_one(const Layer& layer, std::size_t i, Batch<Id>& entries, Scratch& scratch,
                        float* sums, std::int32_t* u) {
    const auto gather = [&](auto add) { return gather_row(layer, i, entries, scratch, add); };
    if (layer.way == Way::bits) return sum_bits(layer.num_inputs, scratch, u, gather);
    return sum_row(layer.records, layer.num_outputs, num_neighbours(layer, i), scratch, sums,
                   gather);
}

inline bool has_few(const std::int64_t* offsets) {
    bool all = true;
    for (std::size_t r = 0; r < tile_rows; ++r) {
        all &= offsets[r + 1] - offsets[r] <= static_cast<std::int64_t>(few);
    }
    return all;
}

template <typename Id>
inline bool layer_rows_with(const Layer& layer, const Id* ids, std::size_t begin, std::size_t end,
                            std::byte* bytes) {
    Scratch scratch(layer, bytes);
    Batch<Id> entries(layer, ids, begin, end, scratch);
    // Sums that were put together from parts have their scales in them.
    constexpr float ones[tile_rows] = {1, 1, 1, 1};
    bool fits = true;
    for (std::size_t first = begin; first < end; first += tile_rows) {
        const std::size_t num_rows = end - first < tile_rows ? end - first : tile_rows;
        float row_scale[tile_rows];
        const bool is_few = num_rows == tile_rows && has_few(layer.edges.offsets + first);
        if (layer.attention.heads) {
            attend_tile(layer, first, num_rows, is_few, entries, scratch);
            fits = finish_tile(layer, first, num_rows, ones, layer.end_scale, scratch) && fits;
            continue;
        }
        if (is_few) {
            gather_few(layer, first, entries, scratch, row_scale);
        } else {
            for (std::size_t r = 0; r < num_rows; ++r) {
                row_scale[r] = gather_one(layer, first + r, entries, scratch,
                                          scratch.sums + r * scratch.sums_stride,
                                          scratch.u + r * u_stride(layer.num_inputs));
            }
        }
        if (layer.way == Way::bits) {
            multiply(scratch.u, num_rows, layer.num_inputs, layer.num_outputs, layer.product,
                     scratch.multiply, scratch.sums, scratch.sums_stride);
        }
        if (layer.own.panels) {
            add_own_parts(layer, first, num_rows, row_scale, scratch);
            fits = finish_tile(layer, first, num_rows, ones, layer.end_scale, scratch) && fits;
        } else {
            fits = finish_tile(layer, first, num_rows, row_scale, layer.scale, scratch) && fits;
        }
    }
    return fits;
}

inline bool layer_rows(const Layer& layer, std::size_t begin, std::size_t end, std::byte* scratch) {
    const Edges& from = layer.edges;
    return from.ids ? layer_rows_with(layer, from.ids, begin, end, scratch)
                    : layer_rows_with(layer, from.long_ids, begin, end, scratch);
}

inline bool records_of_bits(const word* rows, const Panels& panels, std::size_t begin,
                            std::size_t end, std::byte* records) {
    return make_records(rows + begin * words_per_row(panels.num_bits), end - begin, panels,
                        records + begin * panels.stride);
}

inline bool records_of_sparse(const SparseRows& rows, const SignTable& table, std::size_t begin,
                              std::size_t end, std::byte* records) {
    bool fits = true;
    for (std::size_t i = begin; i < end; ++i) {
        const std::int64_t start = rows.offsets[i];
        fits = sparse_record(rows.inputs + start,
                             static_cast<std::size_t>(rows.offsets[i + 1] - start), table,
                             records + i * table.stride) &&
               fits;
    }
    return fits;
}
