// The Python face of the native core: arguments are checked above, with words for people
// (kernels/__init__.py), and sizes again here, since a wrong one would be read past its end. The
// GIL is released while kernels run, buffers belong to the caller. Single products run on the
// calling thread; a program runs on the pool of threads.h.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "dispatch.h"
#include "program_module.h"
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

// Lays the rows of b (columns of B), taken in the given order, out as kernels.h describes Panels;
// numbers past the last row are padding.
void make_panels(Matrix<const word> b, Vector<const std::int64_t> order, Matrix<half> panels) {
    const std::size_t num_halves = 2 * b.shape(1);
    if (panels.shape(1) != num_halves || panels.shape(0) % panel_width != 0 ||
        order.size() > panels.shape(0)) {
        throw std::invalid_argument("panels of the wrong shape");
    }
    nb::gil_scoped_release release;
    for (std::size_t position = 0; position < order.size(); ++position) {
        const auto row = static_cast<std::size_t>(order.data()[position]);
        half* panel = panels.data() + (position / panel_width) * panel_width * num_halves;
        for (std::size_t w = 0; w < num_halves; ++w) {
            panel[w * panel_width + position % panel_width] =
                row < b.shape(0)
                    ? static_cast<half>(b.data()[(row * num_halves + w) / 2] >> (w % 2 * 32))
                    : 0;
        }
    }
}

nb::tuple record_layout(std::size_t num_columns, std::size_t bytes_per_column) {
    const std::size_t stride = record_stride(num_columns, bytes_per_column);
    nb::list order;
    for (std::size_t position = 0; position < stride / bytes_per_column; ++position) {
        order.append(record_column(position, stride, bytes_per_column));
    }
    return nb::make_tuple(stride, order);
}

std::size_t product_bytes(std::size_t num_inputs, std::size_t num_outputs, const std::string& isa) {
    return kernels_named(isa).product_bytes(num_inputs, num_outputs);
}

void make_product(Matrix<const word> b, std::size_t num_inputs, Vector<std::uint8_t> product,
                  const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    if (b.shape(1) != words_per_row(num_inputs) ||
        product.size() < kernels.product_bytes(num_inputs, b.shape(0))) {
        throw std::invalid_argument("product of the wrong size");
    }
    nb::gil_scoped_release release;
    kernels.make_product(b.data(), num_inputs, b.shape(0),
                         reinterpret_cast<std::byte*>(product.data()));
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

// Items that make a piece of work worth a thread's wake-up, some tens of microseconds, when an item
// takes so many picoseconds.
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
    m.def("make_panels", &make_panels, nb::arg("b"), nb::arg("order"), nb::arg("panels"));
    m.def("record_layout", &record_layout, nb::arg("num_columns"), nb::arg("bytes_per_column"));
    m.def("product_bytes", &product_bytes, nb::arg("num_inputs"), nb::arg("num_outputs"),
          nb::arg("isa"));
    m.def("make_product", &make_product, nb::arg("b"), nb::arg("num_inputs"), nb::arg("product"),
          nb::arg("isa"));
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
    m.def("xnor", &xnor, nb::arg("a"), nb::arg("panels"), nb::arg("num_bits"), nb::arg("out"),
          nb::arg("begin"), nb::arg("end"), nb::arg("isa"));
    bind_program(m);
    bind_sampling(m);
}
