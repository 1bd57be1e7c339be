// The Python face of the native core: shapes and types are checked above (kernels/__init__.py),
// the GIL is released while kernels run, buffers belong to the caller.
//
// Threads: none are started here. Work comes in row ranges, and whoever calls decides how many
// ranges run at once, so that only one thread pool lives in the process.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <stdexcept>

#include "dispatch.h"

namespace nb = nanobind;
using namespace bignn;

namespace {

template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

const Kernels& kernels_named(const std::string& name) {
    if (name.empty()) return best_kernels();
    for (const InstructionSet& set : instruction_sets()) {
        if (name != set.kernels->name) continue;
        if (!set.supported) {
            throw std::invalid_argument("this CPU cannot run '" + name + "' kernels: it lacks " +
                                        set.missing);
        }
        return *set.kernels;
    }
    throw std::invalid_argument("there are no '" + name + "' kernels");
}

void pack(Matrix<const float> x, Matrix<word> words, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    nb::gil_scoped_release release;
    kernels.pack_rows(x.data(), x.shape(0), x.shape(1), words.data());
}

// Lays the columns of B (given as packed rows) out as kernels.h describes.
void make_panels(Matrix<const word> b, Matrix<word> panels) {
    const std::size_t num_columns = b.shape(0);
    const std::size_t num_words = b.shape(1);
    nb::gil_scoped_release release;
    for (std::size_t j = 0; j < num_columns; ++j) {
        word* panel = panels.data() + (j / panel_width) * panel_width * num_words;
        for (std::size_t w = 0; w < num_words; ++w) {
            panel[w * panel_width + j % panel_width] = b.data()[j * num_words + w];
        }
    }
}

void xnor(Matrix<const word> a, Matrix<const word> panels, std::size_t num_bits,
          Matrix<std::int32_t> out, std::size_t begin, std::size_t end, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    nb::gil_scoped_release release;
    kernels.xnor_rows(a.data(), panels.data(), begin, end, out.shape(1), num_bits, out.data());
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
    m.def("xnor", &xnor, nb::arg("a"), nb::arg("panels"), nb::arg("num_bits"), nb::arg("out"),
          nb::arg("begin"), nb::arg("end"), nb::arg("isa"));
}
