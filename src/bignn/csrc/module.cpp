// The native core as a Python module. Arguments are checked in Python, with readable messages
// (kernels/__init__.py); sizes are checked again here, since a wrong one would be read past its
// end. The GIL is released while kernels run, and buffers belong to the caller. Single products run
// on the calling thread, packed layers on the pool of threads.h.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "arithmetic.h"
#include "arrays.h"
#include "dispatch.h"
#include "layer_weights.h"
#include "packed_layers_module.h"
#include "sampling_module.h"
#include "threads.h"

namespace nb = nanobind;
using namespace bignn;

namespace {

void pack(Matrix<const float> x, Matrix<word> words, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    if (words.shape(0) != x.shape(0) || words.shape(1) != words_per_row(x.shape(1))) {
        throw std::invalid_argument("words of the wrong shape");
    }
    nb::gil_scoped_release release;
    kernels.pack_rows(x.data(), x.shape(0), x.shape(1), words.data());
}

// Lays out the rows of b (columns of B) as panels in natural order.
void make_panels(Matrix<const word> b, Matrix<half> panels) {
    const std::size_t count = b.shape(0);
    const std::size_t padded = (count + panel_width - 1) / panel_width * panel_width;
    if (panels.shape(1) != 2 * b.shape(1) || panels.shape(0) != padded) {
        throw std::invalid_argument("panels of the wrong shape");
    }
    nb::gil_scoped_release release;
    std::vector<std::size_t> order(count);
    for (std::size_t row = 0; row < count; ++row) order[row] = row;
    fill_panels(b.data(), count, b.shape(1), order.data(), count, panels.data());
}

void check_panels(const Matrix<const half>& panels, std::size_t num_words,
                  std::size_t num_columns) {
    const std::size_t padded = (num_columns + panel_width - 1) / panel_width * panel_width;
    if (panels.shape(1) != 2 * num_words || panels.shape(0) < padded) {
        throw std::invalid_argument("panels of the wrong shape");
    }
}

void xnor(Matrix<const word> a, Matrix<const half> panels, std::size_t num_bits,
          Matrix<std::int32_t> out, std::size_t begin, std::size_t end, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    check_panels(panels, a.shape(1), out.shape(1));
    if (a.shape(1) != words_per_row(num_bits) || begin > end || end > a.shape(0) ||
        end > out.shape(0)) {
        throw std::invalid_argument("rows of the wrong shape");
    }
    nb::gil_scoped_release release;
    kernels.xnor_rows(a.data(), panels.data(), begin, end, out.shape(1), num_bits, out.data());
}

// Number of items whose work is worth waking a thread for (some tens of microseconds), when one
// item takes so many picoseconds.
std::size_t grain_of(std::size_t picoseconds) {
    return std::max<std::size_t>(1, 50'000'000 / std::max<std::size_t>(1, picoseconds));
}

void draw_masks(std::uint64_t seed, std::uint32_t keep, Matrix<const word> among,
                Matrix<word> masks, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    if (keep == 0 || keep > 1u << keep_bits || masks.shape(0) != among.shape(0) ||
        masks.shape(1) != among.shape(1)) {
        throw std::invalid_argument("masks of the wrong shape, or nothing to keep");
    }
    nb::gil_scoped_release release;
    auto words = [&](std::size_t begin, std::size_t end) {
        kernels.draw_masks(seed, keep, among.data(), begin, end, masks.data());
    };
    run_in_pieces(masks.size(), grain_of(10'000), words);
}

void check_masked(const Matrix<const word>& rows, const Matrix<const word>& masks,
                  std::size_t num_bits) {
    if (rows.shape(1) != words_per_row(num_bits) || masks.shape(0) != rows.shape(0) ||
        masks.shape(1) != rows.shape(1)) {
        throw std::invalid_argument("rows and masks do not fit each other");
    }
}

void masked_rows(Matrix<const word> rows, Matrix<const word> masks, Matrix<const half> panels,
                 std::size_t num_bits, Matrix<float> out, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    check_masked(rows, masks, num_bits);
    check_panels(panels, rows.shape(1), out.shape(1));
    if (out.shape(0) != rows.shape(0)) throw std::invalid_argument("out of the wrong shape");
    nb::gil_scoped_release release;
    auto some = [&](std::size_t begin, std::size_t end) {
        kernels.masked_rows(rows.data(), masks.data(), panels.data(), begin, end, out.shape(1),
                            num_bits, out.data());
    };
    run_in_pieces(out.shape(0), grain_of(2 * num_bits * out.shape(1)), some);
}

void masked_gradient(Matrix<const word> rows, Matrix<const word> masks, std::size_t num_bits,
                     Matrix<const float> g, Matrix<float> out, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    check_masked(rows, masks, num_bits);
    if (g.shape(0) != rows.shape(0) || out.shape(0) != g.shape(1) || out.shape(1) != num_bits) {
        throw std::invalid_argument("g or out of the wrong shape");
    }
    nb::gil_scoped_release release;
    auto words = [&](std::size_t begin, std::size_t end) {
        std::vector<float> sums((end - begin) * gradient_floats_per_word);
        kernels.masked_gradient(rows.data(), masks.data(), rows.shape(0), num_bits, g.data(),
                                g.shape(1), begin, end, sums.data(), out.data());
    };
    // A few words at a time, since every piece makes the tables of all rows.
    const std::size_t pieces = 2 * static_cast<std::size_t>(num_threads());
    run_in_pieces(rows.shape(1), std::clamp<std::size_t>(rows.shape(1) / pieces, 1, 16), words);
}

void keep_masked(Matrix<const float> x, Matrix<const word> masks, Matrix<float> out,
                 const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    if (masks.shape(0) != x.shape(0) || masks.shape(1) != words_per_row(x.shape(1)) ||
        out.shape(0) != x.shape(0) || out.shape(1) != x.shape(1)) {
        throw std::invalid_argument("masks or out of the wrong shape");
    }
    nb::gil_scoped_release release;
    auto some = [&](std::size_t begin, std::size_t end) {
        kernels.keep_masked(x.data(), masks.data(), begin, end, x.shape(1), out.data());
    };
    run_in_pieces(x.shape(0), grain_of(500 * x.shape(1)), some);
}

// A fingerprint of bytes that any change of them changes, but for a chance of 2^-64. It compares an
// array with itself later, is not the same on machines of another byte order, and keeps no secret.
std::uint64_t checksum(Vector<const std::uint8_t> octets) {
    constexpr std::size_t piece = std::size_t{1} << 20;
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
    std::atomic<std::uint64_t> total{0};
    const std::uint8_t* data = octets.data();
    const auto mixed = [](std::uint64_t hash, std::uint64_t word) {
        hash = (hash ^ word) * odd;
        return hash ^ hash >> 29;
    };
    nb::gil_scoped_release release;
    auto pieces = [&](std::size_t begin, std::size_t end) {
        for (std::size_t n = begin; n < end; ++n) {
            const std::size_t first = n * piece, last = std::min(first + piece, octets.size());
            std::uint64_t lanes[4] = {n, n + 1, n + 2, n + 3};
            std::size_t at = first;
            for (; at + 32 <= last; at += 32) {
                std::uint64_t words[4];
                __builtin_memcpy(words, data + at, sizeof words);
                for (int lane = 0; lane < 4; ++lane) lanes[lane] = mixed(lanes[lane], words[lane]);
            }
            for (; at < last; ++at) lanes[at % 4] = mixed(lanes[at % 4], data[at] + 1u);
            const std::uint64_t both = mixed(mixed(lanes[0], lanes[1]), mixed(lanes[2], lanes[3]));
            total += mixed(both, n);
        }
    };
    run_in_pieces((octets.size() + piece - 1) / piece, 1, pieces);
    return mixed(total, octets.size());
}

// Rounds the weights of rows as packed layers do (arithmetic.h): q_e, whole numbers as floats, and
// what each row's sum is multiplied by.
void round_row_weights(Vector<const std::int64_t> offsets, Vector<const float> x,
                       Vector<const float> row_factor, int edge_bits, Vector<float> q,
                       Vector<float> scale) {
    const std::size_t num_rows = scale.size();
    if (offsets.size() != num_rows + 1 || row_factor.size() != num_rows || q.size() != x.size() ||
        offsets.data()[0] != 0 || offsets.data()[num_rows] != static_cast<std::int64_t>(x.size()) ||
        !std::is_sorted(offsets.data(), offsets.data() + num_rows + 1)) {
        throw std::invalid_argument("rows or entries of the wrong number");
    }
    nb::gil_scoped_release release;
    auto rows = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            const auto first = static_cast<std::size_t>(offsets.data()[i]);
            const auto stop = static_cast<std::size_t>(offsets.data()[i + 1]);
            float most = 0;
            for (std::size_t e = first; e < stop; ++e) most = std::max(most, x.data()[e]);
            const RowWeights weights =
                row_weights(most, stop - first, row_factor.data()[i], edge_bits);
            const auto limit = static_cast<float>(weights.limit);
            for (std::size_t e = first; e < stop; ++e) {
                const float rounded = __builtin_rintf(x.data()[e] * weights.two_to_e);
                q.data()[e] = std::min(rounded, limit);
            }
            scale.data()[i] = weights.scale;
        }
    };
    run_in_pieces(num_rows, grain_of(20 * (1 + x.size() / std::max<std::size_t>(1, num_rows))),
                  rows);
}

nb::list instruction_set_report() {
    nb::list report;
    for (const InstructionSet& set : instruction_sets()) {
        report.append(nb::make_tuple(set.kernels->name, set.supported, set.missing));
    }
    return report;
}

}  // namespace

NB_MODULE(_native, m) {
    m.attr("panel_width") = panel_width;
    m.attr("best") = best_kernels().name;
    m.def("instruction_sets", &instruction_set_report);
    m.def("pack", &pack, nb::arg("x"), nb::arg("words"), nb::arg("isa"));
    m.def("make_panels", &make_panels, nb::arg("b"), nb::arg("panels"));
    m.def("checksum", &checksum, nb::arg("octets").noconvert());
    m.def("set_num_threads", &set_num_threads, nb::arg("count"));
    m.def("num_threads", &num_threads);
    m.attr("keep_bits") = keep_bits;
    m.def("draw_masks", &draw_masks, nb::arg("seed"), nb::arg("keep"), nb::arg("among"),
          nb::arg("masks"), nb::arg("isa"));
    m.def("masked_rows", &masked_rows, nb::arg("rows"), nb::arg("masks"), nb::arg("panels"),
          nb::arg("num_bits"), nb::arg("out"), nb::arg("isa"));
    m.def("masked_gradient", &masked_gradient, nb::arg("rows"), nb::arg("masks"),
          nb::arg("num_bits"), nb::arg("g"), nb::arg("out"), nb::arg("isa"));
    m.def("keep_masked", &keep_masked, nb::arg("x"), nb::arg("masks"), nb::arg("out"),
          nb::arg("isa"));
    m.def("round_row_weights", &round_row_weights, nb::arg("offsets"), nb::arg("x"),
          nb::arg("row_factor"), nb::arg("edge_bits"), nb::arg("q"), nb::arg("scale"));
    m.def("xnor", &xnor, nb::arg("a"), nb::arg("panels"), nb::arg("num_bits"), nb::arg("out"),
          nb::arg("begin"), nb::arg("end"), nb::arg("isa"));
    bind_packed_layers(m);
    bind_sampling(m);
}
