// The pieces of a layer as plain loops. gather.h, rows.h and training.h are written in terms of
// them; an instruction set replaces those that it has vectors for.
//
// A piece that calls another calls it through Isa, so that the replaced one is taken. Every form
// of a piece gives the same result to the last bit, but what one form writes for another may be
// laid out differently: add_bits, product_bytes, make_product, u_stride, multiply_scratch_bytes and
// multiply belong together (the order within u), and so do add_records and finish_records (the
// order within acc).
#pragma once

#include "plain_attention.h"
#include "plain_blocks.h"

namespace bignn {

template <class Set>
struct Plain : PlainAttention<Set>, PlainBlocks<Set> {
    using Isa = Set;  // the instruction set; see isa.h

    // --- Weights -------------------------------------------------------------------------------

    // x[e] = w_e t[ids[e]].
    template <typename Id>
    static void weigh(const Id* ids, const float* weights, std::size_t count, const float* factor,
                      float* x) {
        for (std::size_t e = 0; e < count; ++e) {
            x[e] = weights ? bounded(weights[e] * factor[ids[e]]) : factor[ids[e]];
        }
    }

    // The largest of `count` weights; 0 if there are none.
    static float largest(const float* x, std::size_t count) {
        float most = 0;
        for (std::size_t e = 0; e < count; ++e) most = x[e] > most ? x[e] : most;
        return most;
    }

    // Points rows[e] at the data of neighbour ids[e].
    template <typename Id>
    static void set_row_pointers(const Id* ids, std::size_t count, const std::byte* data,
                                 std::size_t stride, const std::byte** rows) {
        for (std::size_t e = 0; e < count; ++e) {
            rows[e] = data + static_cast<std::size_t>(ids[e]) * stride;
        }
    }

    // q[e] = min(rint(x[e] two_to_e), limit), padded with 0 to a multiple of 16; returns the total.
    static std::uint32_t round_weights(const float* x, std::size_t count, float two_to_e,
                                       std::uint32_t limit, std::uint32_t* q) {
        std::uint32_t total = 0;
        for (std::size_t e = 0; e < count; ++e) {
            const auto rounded = static_cast<std::uint32_t>(__builtin_lrintf(x[e] * two_to_e));
            q[e] = rounded < limit ? rounded : limit;
            total += q[e];
        }
        for (std::size_t e = count; e % 16 != 0; ++e) q[e] = 0;
        return total;
    }

    // Rounds the weights x of tile_rows rows that follow each other in the list, of at most
    // `few` entries each: q [tile_rows, few] is padded with 0, totals[r] is the sum of a row's q,
    // and the row's sum is to be multiplied by row_scale[r].
    static void weigh_tile(const float* x, const std::int64_t* offsets, const float* target_factor,
                           int bits, std::uint32_t* q, std::uint32_t* totals, float* row_scale) {
        for (std::size_t r = 0; r < tile_rows; ++r) {
            const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
            const RowWeights weights =
                row_weights(Isa::largest(x, count), count, target_factor[r], bits);
            for (std::size_t e = 0; e < few; ++e) q[r * few + e] = 0;
            totals[r] = Isa::round_weights(x, count, weights.two_to_e, weights.limit, q + r * few);
            row_scale[r] = weights.scale;
            x += count;
        }
    }

    // --- Sums over neighbours ------------------------------------------------------------------

    // acc[p] += sum_e q_e v_e[p], where p is a position in the record.
    template <typename Value>
    static void add_values(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                           std::size_t offset, std::size_t num_positions, std::int64_t* acc) {
        for (std::size_t e = 0; e < count; ++e) {
            const Value* v = reinterpret_cast<const Value*>(rows[e] + offset);
            const auto weight = static_cast<std::int64_t>(q[e]);
            for (std::size_t p = 0; p < num_positions; ++p) acc[p] += weight * v[p];
        }
    }

    // acc += sum_e q_e v_e over `count` neighbours.
    static void add_records(const Records& records, const std::byte* const* rows,
                            const std::uint32_t* q, std::size_t count, std::int64_t* acc) {
        const std::size_t num_positions = records.stride / records.bytes_per_column;
        if (records.bytes_per_column == 1) {
            add_values<std::int8_t>(rows, q, count, records.offset, num_positions, acc);
        } else if (records.bytes_per_column == 2) {
            add_values<std::int16_t>(rows, q, count, records.offset, num_positions, acc);
        } else {
            add_values<std::int32_t>(rows, q, count, records.offset, num_positions, acc);
        }
    }

    // sums[c] = the integer sum of column c, rounded once.
    static void finish_records(const Records& records, std::size_t num_outputs, std::uint32_t total,
                               const std::int64_t* acc, float* sums) {
        const std::size_t num_positions = records.stride / records.bytes_per_column;
        for (std::size_t p = 0; p < num_positions; ++p) {
            const std::size_t c = record_column(p, records.stride, records.bytes_per_column);
            if (c < num_outputs) sums[c] = finished_sum(records.center[c], total, acc[p]);
        }
    }

    // The same where sums stand in the order of columns.
    static void finish_columns(const Records& records, std::size_t num_outputs, std::uint32_t total,
                               const std::int64_t* acc, float* sums) {
        for (std::size_t c = 0; c < num_outputs; ++c) {
            sums[c] = finished_sum(records.center[c], total, acc[c]);
        }
    }

    static float finished_sum(std::int32_t center, std::uint32_t total, std::int64_t acc) {
        return static_cast<float>(static_cast<std::int64_t>(center) * total + 2 * acc);
    }

    // Sums a row whose neighbours fit one chunk.
    static void sum_records(const Records& records, std::size_t num_outputs,
                            const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                            std::uint32_t total, std::int64_t* acc, float* sums) {
        const std::size_t num_positions = records.stride / records.bytes_per_column;
        for (std::size_t p = 0; p < num_positions; ++p) acc[p] = 0;
        Isa::add_records(records, rows, q, count, acc);
        Isa::finish_records(records, num_outputs, total, acc, sums);
    }

    // Sums a tile of rows of few neighbours, rows[0 ... offsets[tile_rows] - offsets[0]), whose
    // weights are in q, `few` places for each row.
    static void sum_few_records(const Records& records, std::size_t num_outputs,
                                const std::byte* const* rows, const std::int64_t* offsets,
                                const std::uint32_t* q, const std::uint32_t* totals,
                                std::int64_t* acc, float* sums, std::size_t sums_stride) {
        for (std::size_t r = 0; r < tile_rows; ++r) {
            const auto count = static_cast<std::size_t>(offsets[r + 1] - offsets[r]);
            Isa::sum_records(records, num_outputs, rows, q + r * few, count, totals[r], acc,
                             sums + r * sums_stride);
            rows += count;
        }
    }

    // u[k] += sum_e q_e F_ek: minus the total, plus twice the q of the neighbours whose bit k is 1.
    // If `first`, u starts from 0. |u| < 2^31, since the sum of all q of a row is.
    static void add_bits(const std::byte* const* rows, const std::uint32_t* q, std::size_t count,
                         std::uint32_t total, bool first, std::size_t num_inputs, std::int32_t* u) {
        for (std::size_t k = 0; k < num_inputs; ++k) {
            u[k] =
                static_cast<std::int32_t>((first ? 0 : static_cast<std::uint32_t>(u[k])) - total);
        }
        for (std::size_t e = 0; e < count; ++e) {
            const word* bits = reinterpret_cast<const word*>(rows[e]);
            for (std::size_t k = 0; k < num_inputs; ++k) {
                const auto bit =
                    static_cast<std::uint32_t>(bits[k / word_bits] >> (k % word_bits) & 1);
                u[k] = static_cast<std::int32_t>(static_cast<std::uint32_t>(u[k]) +
                                                 (2 * q[e] & (0u - bit)));
            }
        }
    }

    // Size of B in the form that `multiply` reads: signs as bytes, num_outputs of them per input.
    static std::size_t product_bytes(std::size_t num_inputs, std::size_t num_outputs) {
        return num_inputs * num_outputs;
    }

    // Writes B [outputs, inputs as bits] in that form.
    static void make_product(const word* b, std::size_t num_inputs, std::size_t num_outputs,
                             std::byte* product) {
        const std::size_t num_words = words_per_row(num_inputs);
        for (std::size_t k = 0; k < num_inputs; ++k) {
            for (std::size_t c = 0; c < num_outputs; ++c) {
                const word bit = b[c * num_words + k / word_bits] >> (k % word_bits) & 1;
                product[k * num_outputs + c] = static_cast<std::byte>(bit ? 1 : -1);
            }
        }
    }

    // Size of the scratch that `multiply` needs.
    static std::size_t multiply_scratch_bytes(std::size_t, std::size_t num_outputs) {
        return 8 * num_outputs;
    }

    // Numbers from one row of u to the next.
    static constexpr std::size_t u_stride(std::size_t num_inputs) {
        return (num_inputs + 15) / 16 * 16;
    }

    // sums[r][c] = u[r] . B_c, rounded once, for up to tile_rows rows.
    static void multiply(std::int32_t* u, std::size_t num_rows, std::size_t num_inputs,
                         std::size_t num_outputs, const std::byte* product, std::byte* scratch,
                         float* sums, std::size_t sums_stride) {
        const auto* signs = reinterpret_cast<const std::int8_t*>(product);
        auto* acc = reinterpret_cast<std::int64_t*>(scratch);
        for (std::size_t r = 0; r < num_rows; ++r) {
            for (std::size_t c = 0; c < num_outputs; ++c) acc[c] = 0;
            for (std::size_t k = 0; k < num_inputs; ++k) {
                const std::int64_t value = u[r * Isa::u_stride(num_inputs) + k];
                for (std::size_t c = 0; c < num_outputs; ++c) {
                    acc[c] += value * signs[k * num_outputs + c];
                }
            }
            for (std::size_t c = 0; c < num_outputs; ++c) {
                sums[r * sums_stride + c] = static_cast<float>(acc[c]);
            }
        }
    }

    // --- The end of a row ----------------------------------------------------------------------

    // Packs the signs of a row's h and returns the sum of |h|. Floats do not add up the same in
    // every order, so the order is part of the definition: there are sixteen partial sums, column c
    // goes to number c % 16, then halves are added onto halves.
    static float sign_row(const float* sums, float row_scale, const float* scale,
                          const float* shift, std::size_t num_outputs, word* words) {
        float partial[16] = {};
        for (std::size_t k = 0; k < num_outputs; k += word_bits) {
            const std::size_t count = num_outputs - k < word_bits ? num_outputs - k : word_bits;
            word packed = 0;
            for (std::size_t bit = 0; bit < count; ++bit) {
                const float h = output(sums[k + bit], row_scale, scale[k + bit], shift[k + bit]);
                packed |= static_cast<word>(h >= 0) << bit;
                partial[bit % 16] += h < 0 ? -h : h;
            }
            *words++ = packed;
        }
        for (std::size_t half = 8; half > 0; half /= 2) {
            for (std::size_t lane = 0; lane < half; ++lane) partial[lane] += partial[lane + half];
        }
        return partial[0];
    }

    // values[c] = h of column c.
    static void value_row(const float* sums, float row_scale, const float* scale,
                          const float* shift, std::size_t num_outputs, float* values) {
        for (std::size_t c = 0; c < num_outputs; ++c) {
            values[c] = output(sums[c], row_scale, scale[c], shift[c]);
        }
    }

    // Index of the first of the largest values; what is not a number counts as the smallest.
    static std::int32_t first_largest(const float* values, std::size_t count) {
        float most = -__builtin_inff();
        std::size_t best = 0;
        for (std::size_t c = 0; c < count; ++c) {
            if (values[c] > most) {
                most = values[c];
                best = c;
            }
        }
        return static_cast<std::int32_t>(best);
    }

    // Turns a tile's sums into bits and the next layer's source factors, out_scale * mean |h|.
    static void sign_tile(const float* sums, std::size_t sums_stride, std::size_t num_rows,
                          const float* row_scale, const float* scale, const float* shift,
                          std::size_t num_outputs, word* words, const float* out_scale,
                          float* factor) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            const float beta = Isa::sign_row(sums + r * sums_stride, row_scale[r], scale, shift,
                                             num_outputs, words + r * words_per_row(num_outputs)) /
                               static_cast<float>(num_outputs);
            factor[r] = bounded(out_scale ? out_scale[r] * bounded(beta) : beta);
        }
    }

    // Turns a tile's sums into classes; sums are overwritten.
    static void class_tile(float* sums, std::size_t sums_stride, std::size_t num_rows,
                           const float* row_scale, const float* scale, const float* shift,
                           std::size_t num_outputs, std::int64_t* classes) {
        for (std::size_t r = 0; r < num_rows; ++r) {
            float* row = sums + r * sums_stride;
            Isa::value_row(row, row_scale[r], scale, shift, num_outputs, row);
            classes[r] = Isa::first_largest(row, num_outputs);
        }
    }

    // See MoveSums in kernels.h.
    static void move_sums(std::int32_t* sums, std::size_t stride, const SumMove* moves,
                          std::size_t count, std::int32_t odd) {
        for (std::size_t m = 0; m < count; ++m) {
            const std::int8_t* pairs = moves[m].pairs;
            const std::int32_t after = moves[m].after, before = moves[m].before;
            for (std::size_t c = 0; c < stride; ++c) {
                sums[c] +=
                    2 * (after * pairs[2 * c] - before * pairs[2 * c + 1]) + odd * (after - before);
            }
        }
    }

    template <typename Value>
    static bool store_value(std::int64_t v, std::byte* record, std::size_t position) {
        reinterpret_cast<Value*>(record)[position] = static_cast<Value>(v);
        return static_cast<Value>(v) == v;
    }

    static bool store_record(std::int64_t v, std::size_t bytes_per_column, std::byte* record,
                             std::size_t position) {
        if (bytes_per_column == 1) return store_value<std::int8_t>(v, record, position);
        if (bytes_per_column == 2) return store_value<std::int16_t>(v, record, position);
        return store_value<std::int32_t>(v, record, position);
    }

    // --- Products of bits ----------------------------------------------------------------------

    // differing[lane] = popcount(row ^ column) for the columns of a panel.
    static void count_differing(const word* row, const half* panel, std::size_t num_words,
                                std::int32_t* differing) {
        for (std::size_t lane = 0; lane < panel_width; ++lane) differing[lane] = 0;
        for (std::size_t w = 0; w < 2 * num_words; ++w) {
            const auto bits = static_cast<half>(row[w / 2] >> (w % 2 * 32));
            for (std::size_t lane = 0; lane < panel_width; ++lane) {
                differing[lane] += __builtin_popcount(bits ^ panel[w * panel_width + lane]);
            }
        }
    }

    // See XnorRows in kernels.h.
    static void xnor_rows(const word* a, const half* panels, std::size_t begin, std::size_t end,
                          std::size_t num_columns, std::size_t num_bits, std::int32_t* out) {
        const std::size_t num_words = words_per_row(num_bits);
        for (std::size_t i = begin; i < end; ++i) {
            for (std::size_t j = 0; j < num_columns; j += panel_width) {
                std::int32_t differing[panel_width];
                Isa::count_differing(a + i * num_words, panels + j * 2 * num_words, num_words,
                                     differing);
                for (std::size_t lane = 0; lane < panel_width && j + lane < num_columns; ++lane) {
                    out[i * num_columns + j + lane] =
                        static_cast<std::int32_t>(num_bits) - 2 * differing[lane];
                }
            }
        }
    }

    // Adds the own parts of rows: sum = sum * row_scale * scale + dot * t * own_scale.
    static void add_own_rows(const word* rows, std::size_t num_rows, std::size_t num_inputs,
                             const Own& own, const float* factors, const float* row_scale,
                             const float* scale, std::size_t num_outputs, float* sums,
                             std::size_t sums_stride) {
        const std::size_t num_words = words_per_row(num_inputs);
        for (std::size_t r = 0; r < num_rows; ++r) {
            for (std::size_t j = 0; j < num_outputs; j += panel_width) {
                std::int32_t dots[panel_width];
                const std::size_t count =
                    num_outputs - j < panel_width ? num_outputs - j : panel_width;
                Isa::xnor_rows(rows + r * num_words, own.panels + j * 2 * num_words, 0, 1, count,
                               num_inputs, dots);
                for (std::size_t lane = 0; lane < count; ++lane) {
                    float* sum = sums + r * sums_stride + j + lane;
                    *sum = *sum * row_scale[r] * scale[j + lane] +
                           static_cast<float>(dots[lane]) * factors[r] * own.scale[j + lane];
                }
            }
        }
    }

    // Makes records of num_rows rows of bits; false when a value does not fit its bytes.
    static bool make_records(const word* rows, std::size_t num_rows, const Panels& panels,
                             std::byte* records) {
        const std::size_t num_words = words_per_row(panels.num_bits);
        const std::size_t num_panels = panels.stride / panels.bytes_per_column / panel_width;
        bool fits = true;
        for (std::size_t i = 0; i < num_rows; ++i) {
            for (std::size_t p = 0; p < num_panels; ++p) {
                std::int32_t differing[panel_width];
                Isa::count_differing(rows + i * num_words,
                                     panels.halves + p * panel_width * 2 * num_words, num_words,
                                     differing);
                for (std::size_t lane = 0; lane < panel_width; ++lane) {
                    const std::size_t position = p * panel_width + lane;
                    const bool fit = store_record(panels.base[position] - differing[lane],
                                                  panels.bytes_per_column,
                                                  records + i * panels.stride, position);
                    if (panels.valid[p] >> lane & 1) fits = fits && fit;
                }
            }
        }
        return fits;
    }

    // Makes the record of one row from its deviating inputs; false as above.
    static bool sparse_record(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                              std::byte* record) {
        const std::size_t num_positions = table.stride / table.bytes_per_column;
        bool fits = true;
        std::size_t first = 0;
        for (; first + 64 <= num_positions; first += 64) {
            fits &= sparse_part<Bytes64>(inputs, count, table, record, first);
        }
        for (; first < num_positions; first += 16) {
            fits &= sparse_part<Bytes16>(inputs, count, table, record, first);
        }
        return fits;
    }

    // Makes some positions of it. Signs are added up in bytes, which hold 127 of them.
    using Bytes16 = std::int8_t __attribute__((vector_size(16), aligned(1), may_alias));
    using Bytes64 = std::int8_t __attribute__((vector_size(64), aligned(1), may_alias));
    template <class Bytes>
    static bool sparse_part(const std::int32_t* inputs, std::size_t count, const SignTable& table,
                            std::byte* record, std::size_t first) {
        constexpr int width = sizeof(Bytes);
        const std::size_t num_positions = table.stride / table.bytes_per_column;
        std::int32_t sums[width] = {};
        for (std::size_t e = 0; e < count;) {
            const std::size_t stop = count - e < 127 ? count : e + 127;
            Bytes part = {};
            for (; e < stop; ++e) {
                const std::size_t row = static_cast<std::size_t>(inputs[e]) * num_positions;
                part += *reinterpret_cast<const Bytes*>(table.signs + row + first);
            }
            for (int p = 0; p < width; ++p) sums[p] += part[p];
        }
        bool fits = true;
        for (int p = 0; p < width; ++p) {
            const std::size_t position = first + static_cast<std::size_t>(p);
            fits &= store_record(sums[p], table.bytes_per_column, record, position);
        }
        return fits;
    }

    // See PackRows in kernels.h.
    static void pack_rows(const float* x, std::size_t num_rows, std::size_t num_bits, word* words) {
        for (std::size_t i = 0; i < num_rows; ++i) {
            for (std::size_t k = 0; k < num_bits; k += word_bits) {
                const std::size_t count = num_bits - k < word_bits ? num_bits - k : word_bits;
                word packed = 0;
                for (std::size_t bit = 0; bit < count; ++bit) {
                    packed |= static_cast<word>(x[k + bit] >= 0.0f) << bit;
                }
                *words++ = packed;
            }
            x += num_bits;
        }
    }

    // --- Training ------------------------------------------------------------------------------

    // A vector of floats that training adds up; + - * work on it lane by lane.
    using floats = float __attribute__((vector_size(16)));
    static constexpr std::size_t lanes = 4;
    static floats broadcast(float x) { return floats{x, x, x, x}; }

    // counts[c] = popcount(mask & (row ^ column c)) for the 16 columns of a panel.
    static void masked_counts(const word* row, const word* mask, const half* panel,
                              std::size_t num_words, std::int32_t* counts) {
        for (std::size_t c = 0; c < panel_width; ++c) counts[c] = 0;
        for (std::size_t w = 0; w < 2 * num_words; ++w, panel += panel_width) {
            const auto bits = static_cast<half>(row[w / 2] >> (w % 2 * 32));
            const auto kept = static_cast<half>(mask[w / 2] >> (w % 2 * 32));
            for (std::size_t c = 0; c < panel_width; ++c) {
                counts[c] += __builtin_popcount(kept & (bits ^ panel[c]));
            }
        }
    }

    // out = x where the mask has a 1, 0 elsewhere.
    static void keep_row(const float* x, const word* mask, std::size_t num_bits, float* out) {
        for (std::size_t k = 0; k < num_bits; ++k) {
            out[k] = mask[k / word_bits] >> k % word_bits & 1 ? x[k] : 0.0f;
        }
    }
};

}  // namespace bignn
