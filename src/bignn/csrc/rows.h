// A layer row by row, written once in terms of the pieces in plain.h or their vector forms. Text
// of each instruction set's file, like plain.h.

// The scratch of one thread, laid out in the caller's bytes.
struct Scratch {
    const std::byte** rows;  // [batch + slack]
    float* x;                // [batch + slack]
    std::uint32_t* q;        // [chunk + slack]
    std::int64_t* acc;       // [positions]
    std::int32_t* u;         // [tile_rows, inputs]
    float* sums;             // [tile_rows, outputs]
    word* words;             // [tile_rows, words of the outputs]
    std::byte* multiply;
    std::size_t size, sums_stride;

    Scratch(const Layer& layer, std::byte* bytes) {
        std::size_t used = 0;
        const auto take = [&](std::size_t count) {
            std::byte* start = bytes + used;
            used += (count + 63) / 64 * 64;
            return start;
        };
        // Vector code writes whole registers, up to 64 columns past a row's end.
        sums_stride = (layer.num_outputs + 63) / 64 * 64;
        const bool by_bits = layer.way == Way::bits;
        rows = reinterpret_cast<const std::byte**>(take(8 * (batch + slack)));
        x = reinterpret_cast<float*>(take(4 * (batch + slack)));
        q = reinterpret_cast<std::uint32_t*>(take(4 * (chunk + slack)));
        acc = reinterpret_cast<std::int64_t*>(take(8 * sums_stride));
        u = reinterpret_cast<std::int32_t*>(
            take(by_bits ? 4 * tile_rows * u_stride(layer.num_inputs) : 0));
        sums = reinterpret_cast<float*>(take(4 * tile_rows * sums_stride));
        words = reinterpret_cast<word*>(take(8 * tile_rows * words_per_row(layer.num_outputs)));
        multiply =
            take(by_bits ? multiply_scratch_bytes(layer.num_inputs, layer.num_outputs) : 0);
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
    // For rows before `end`.
    Batch(const Layer& layer, const Id* ids, std::size_t end, Scratch& scratch)
        : from_(layer.neighbours),
          ids_(ids),
          scratch_(scratch),
          end_(static_cast<std::size_t>(layer.neighbours.offsets[end])) {
        const bool by_records = layer.way == Way::records;
        data_ = by_records ? layer.records.data : reinterpret_cast<const std::byte*>(layer.words);
        stride_ = by_records ? layer.records.stride : 8 * words_per_row(layer.num_inputs);
    }

    // Makes entries [begin, end), a chunk at most, available. Every place from `begin` on can be
    // read, `slack` past the end too: where weights are padded with 0, places need not be.
    void cover(std::size_t begin, std::size_t end) {
        if (begin >= first_ && end <= last_) return;
        const std::size_t count = end_ - begin < batch ? end_ - begin : batch;
        weigh(ids_ + begin, from_.weights ? from_.weights + begin : nullptr, count,
              from_.source_factor, scratch_.x);
        point(ids_ + begin, count, data_, stride_, scratch_.rows);
        for (std::size_t e = count; e < count + slack; ++e) scratch_.rows[e] = data_;
        first_ = begin;
        last_ = begin + count;
    }

    const float* x(std::size_t entry) const { return scratch_.x + (entry - first_); }
    const std::byte* const* rows(std::size_t entry) const {
        return scratch_.rows + (entry - first_);
    }

   private:
    const Neighbours& from_;
    const Id* ids_;
    Scratch& scratch_;
    std::size_t end_;
    const std::byte* data_;
    std::size_t stride_;
    std::size_t first_ = 1, last_ = 0;
};

// One row: calls add(places, count, total, whether it is the first) for each chunk of it, with the
// integer weights in scratch.q; returns what the sums are to be multiplied by.
template <typename Id, class Add>
inline float gather_row(const Layer& layer, std::size_t i, Batch<Id>& entries, Scratch& scratch,
                        Add add) {
    const Neighbours& from = layer.neighbours;
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

// sums of one row, gathered from records.
template <typename Id>
inline float gather_records(const Layer& layer, std::size_t i, Batch<Id>& entries,
                            Scratch& scratch, float* sums) {
    const std::int64_t* offsets = layer.neighbours.offsets;
    const Records& records = layer.records;
    const std::size_t width = layer.num_outputs;
    if (static_cast<std::size_t>(offsets[i + 1] - offsets[i]) <= chunk) {
        return gather_row(layer, i, entries, scratch,
                          [&](const std::byte* const* rows, std::size_t count,
                              std::uint32_t total, bool) {
                              sum_records(records, width, rows, scratch.q, count, total,
                                          scratch.acc, sums);
                          });
    }
    for (std::size_t p = 0; p < records.stride / records.width; ++p) scratch.acc[p] = 0;
    std::uint32_t all = 0;
    const float scale = gather_row(
        layer, i, entries, scratch,
        [&](const std::byte* const* rows, std::size_t count, std::uint32_t total, bool) {
            add_records(records, rows, scratch.q, count, scratch.acc);
            all += total;
        });
    finish_records(records, width, all, scratch.acc, sums);
    return scale;
}

// u = sum_j q_j F_j of one row.
template <typename Id>
inline float gather_bits(const Layer& layer, std::size_t i, Batch<Id>& entries, Scratch& scratch,
                         std::int32_t* u) {
    return gather_row(layer, i, entries, scratch,
                      [&](const std::byte* const* rows, std::size_t count, std::uint32_t total,
                          bool first) {
                          add_bits(rows, scratch.q, count, total, first, layer.num_inputs, u);
                      });
}

// Rows first .. first + num_rows, whose integer sums are in scratch: to where they go.
inline bool finish_tile(const Layer& layer, std::size_t first, std::size_t num_rows,
                        const float* row_scale, Scratch& scratch) {
    const std::size_t width = layer.num_outputs;
    if (layer.values) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            value_row(scratch.sums + r * scratch.sums_stride, row_scale[r], layer.scale,
                      layer.shift, width, layer.values + (first + r) * width);
        }
        return true;
    }
    if (layer.classes) {
        class_tile(scratch.sums, scratch.sums_stride, num_rows, row_scale, layer.scale,
                   layer.shift, width, layer.classes + first);
        return true;
    }
    word* words =
        layer.out_words ? layer.out_words + first * words_per_row(width) : scratch.words;
    sign_tile(scratch.sums, scratch.sums_stride, num_rows, row_scale, layer.scale, layer.shift,
              width, words, layer.out_norm ? layer.out_norm + first : nullptr,
              layer.out_factor + first);
    return !layer.next || make_records(words, num_rows, *layer.next,
                                       layer.next_records + first * layer.next->stride);
}

// The sums of tile_rows rows of few neighbours each.
template <typename Id>
inline void gather_few(const Layer& layer, std::size_t first, Batch<Id>& entries,
                       Scratch& scratch, float* row_scale) {
    const Neighbours& from = layer.neighbours;
    const std::int64_t* offsets = from.offsets + first;
    const auto begin = static_cast<std::size_t>(offsets[0]);
    entries.cover(begin, static_cast<std::size_t>(offsets[tile_rows]));
    std::uint32_t totals[tile_rows];
    weigh_tile(entries.x(begin), offsets, from.target_factor + first, layer.edge_bits,
               scratch.q, totals, row_scale);
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const auto at = static_cast<std::size_t>(offsets[r]);
        const auto count = static_cast<std::size_t>(offsets[r + 1]) - at;
        const std::uint32_t* q = scratch.q + r * few;
        if (layer.way == Way::records) {
            sum_records(layer.records, layer.num_outputs, entries.rows(at), q, count, totals[r],
                        scratch.acc, scratch.sums + r * scratch.sums_stride);
        } else {
            add_bits(entries.rows(at), q, count, totals[r], true, layer.num_inputs,
                     scratch.u + r * u_stride(layer.num_inputs));
        }
    }
}

inline bool has_few(const std::int64_t* offsets) {
    bool all = true;
    for (std::size_t r = 0; r < tile_rows; ++r) {
        all &= offsets[r + 1] - offsets[r] <= static_cast<std::int64_t>(few);
    }
    return all;
}

template <typename Id>
inline bool layer_rows_with(const Layer& layer, const Id* ids, std::size_t begin,
                                         std::size_t end, std::byte* bytes) {
    Scratch scratch(layer, bytes);
    Batch<Id> entries(layer, ids, end, scratch);
    const bool by_records = layer.way == Way::records;
    bool fits = true;
    for (std::size_t first = begin; first < end; first += tile_rows) {
        const std::size_t num_rows = end - first < tile_rows ? end - first : tile_rows;
        float row_scale[tile_rows];
        if (num_rows == tile_rows && has_few(layer.neighbours.offsets + first)) {
            gather_few(layer, first, entries, scratch, row_scale);
        } else {
            for (std::size_t r = 0; r < num_rows; ++r) {
                row_scale[r] =
                    by_records
                        ? gather_records(layer, first + r, entries, scratch,
                                         scratch.sums + r * scratch.sums_stride)
                        : gather_bits(layer, first + r, entries, scratch,
                                      scratch.u + r * u_stride(layer.num_inputs));
            }
        }
        if (!by_records) {
            multiply(scratch.u, num_rows, layer.num_inputs, layer.num_outputs, layer.product,
                     scratch.multiply, scratch.sums, scratch.sums_stride);
        }
        fits = finish_tile(layer, first, num_rows, row_scale, scratch) && fits;
    }
    return fits;
}

inline bool layer_rows(const Layer& layer, std::size_t begin, std::size_t end,
                                    std::byte* scratch) {
    const Neighbours& from = layer.neighbours;
    return from.ids ? layer_rows_with(layer, from.ids, begin, end, scratch)
                    : layer_rows_with(layer, from.long_ids, begin, end, scratch);
}

inline bool records_of_bits(const word* rows, const Panels& panels, std::size_t begin,
                                         std::size_t end, std::byte* records) {
    return make_records(rows + begin * words_per_row(panels.num_bits), end - begin, panels,
                        records + begin * panels.stride);
}

inline bool records_of_sparse(const SparseRows& rows, const SignTable& table,
                                           std::size_t begin, std::size_t end,
                                           std::byte* records) {
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
