// The native core as a Python module. Arguments are checked in Python, with readable messages
// (kernels/__init__.py); sizes are checked again here, since a wrong one would be read past its
// end. The GIL is released while kernels run, and buffers belong to the caller. Single products run
// on the calling thread, packed layers on the pool of threads.h.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <vector>

#include "arithmetic.h"
#include "arrays.h"
#include "dispatch.h"
#include "layer_weights.h"
#include "live_layers_module.h"
#include "packed_layers_module.h"
#include "sampling_module.h"
#include "store_module.h"
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

template <typename T>
using OptionalVector = std::optional<Vector<const T>>;

template <typename T>
const T* data_of(const OptionalVector<T>& array) {
    return array ? array->data() : nullptr;
}

bool has_size(const OptionalVector<float>& array, std::size_t size) {
    return !array || array->size() == size;
}

bool are_below(const Vector<const std::int64_t>& numbers, std::size_t limit) {
    const std::int64_t last = static_cast<std::int64_t>(limit) - 1;
    const std::int64_t* data = numbers.data();
    const std::size_t count = numbers.size();
    std::int64_t signs = 0;  // negative as soon as a number or its distance from the last is
    for (std::size_t e = 0; e < count; ++e) signs |= data[e] | (last - data[e]);
    return signs >= 0;
}

void check_rows(const Vector<const std::int64_t>& offsets, const Vector<const std::int64_t>& ids,
                std::size_t num_rows, std::size_t num_sources) {
    const std::int64_t* data = offsets.data();
    if (offsets.size() != num_rows + 1 || data[0] != 0 ||
        data[num_rows] != static_cast<std::int64_t>(ids.size()) ||
        !std::is_sorted(data, data + num_rows + 1) || !are_below(ids, num_sources)) {
        throw std::invalid_argument("rows or entries of the wrong number");
    }
}

std::size_t entries_per_row(std::size_t entries, std::size_t num_rows) {
    return 1 + entries / std::max<std::size_t>(1, num_rows);
}

void round_rows(Vector<const std::int64_t> offsets, Vector<const std::int64_t> ids,
                OptionalVector<float> weights, Vector<const float> beta,
                OptionalVector<float> column_factor, OptionalVector<float> row_factor,
                int edge_bits, Vector<float> q, Vector<float> scale, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    check_rows(offsets, ids, scale.size(), beta.size());
    if (!has_size(weights, ids.size()) || !has_size(column_factor, beta.size()) ||
        !has_size(row_factor, scale.size()) || q.size() != ids.size()) {
        throw std::invalid_argument("factors or weights of the wrong number");
    }
    nb::gil_scoped_release release;
    std::vector<float> factor(beta.size());
    for (std::size_t j = 0; j < factor.size(); ++j) {
        const float b = beta.data()[j];
        factor[j] = bounded(column_factor ? column_factor->data()[j] * b : b);
    }
    const FactoredRows rows = {offsets.data(), ids.data(), data_of(weights), factor.data(),
                               data_of(row_factor)};
    auto some = [&](std::size_t begin, std::size_t end) {
        kernels.round_rows(rows, edge_bits, begin, end, q.data(), scale.data());
    };
    run_in_pieces(scale.size(), grain_of(2'000 * entries_per_row(ids.size(), scale.size())), some);
}

void sum_rows(Vector<const std::int64_t> offsets, Vector<const std::int64_t> ids,
              OptionalVector<std::int64_t> places, Vector<const float> weights,
              Matrix<const float> x, OptionalVector<float> scale, std::size_t largest,
              Matrix<float> out, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    check_rows(offsets, ids, out.shape(0), x.shape(0));
    const std::size_t num_columns = x.shape(1);
    if (weights.size() != ids.size() || out.shape(1) != num_columns ||
        !has_size(scale, out.shape(0)) ||
        (places && (places->size() != ids.size() || !are_below(*places, weights.size())))) {
        throw std::invalid_argument("weights or columns of the wrong number");
    }
    nb::gil_scoped_release release;
    const WeightedRows rows = {offsets.data(), ids.data(),     data_of(places),
                               weights.data(), data_of(scale), x.shape(0)};
    auto some = [&](std::size_t begin, std::size_t end) {
        kernels.sum_rows(rows, x.data(), num_columns, largest, begin, end, out.data());
    };
    const std::size_t entries = entries_per_row(ids.size(), out.shape(0));
    run_in_pieces(out.shape(0), grain_of(entries * (1'000 + 50 * num_columns)), some);
}

void binarize(Matrix<const float> h, Matrix<word> words, Vector<float> beta,
              const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    const std::size_t num_columns = h.shape(1), num_words = words_per_row(num_columns);
    if (words.shape(0) != h.shape(0) || words.shape(1) != num_words || beta.size() != h.shape(0)) {
        throw std::invalid_argument("words or beta of the wrong shape");
    }
    nb::gil_scoped_release release;
    // A row's bits and its mean, one after the other, while the row is in cache.
    auto some = [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i) {
            kernels.pack_rows(h.data() + i * num_columns, 1, num_columns,
                              words.data() + i * num_words);
            kernels.row_means(h.data(), num_columns, i, i + 1, beta.data());
        }
    };
    run_in_pieces(beta.size(), grain_of(10'000 + 200 * num_columns), some);
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
    m.def("round_rows", &round_rows, nb::arg("offsets"), nb::arg("ids"), nb::arg("weights").none(),
          nb::arg("beta"), nb::arg("column_factor").none(), nb::arg("row_factor").none(),
          nb::arg("edge_bits"), nb::arg("q"), nb::arg("scale"), nb::arg("isa"));
    m.def("sum_rows", &sum_rows, nb::arg("offsets"), nb::arg("ids"), nb::arg("places").none(),
          nb::arg("weights"), nb::arg("x"), nb::arg("scale").none(), nb::arg("largest"),
          nb::arg("out"), nb::arg("isa"));
    m.def("binarize", &binarize, nb::arg("h"), nb::arg("words"), nb::arg("beta"), nb::arg("isa"));
    m.def("xnor", &xnor, nb::arg("a"), nb::arg("panels"), nb::arg("num_bits"), nb::arg("out"),
          nb::arg("begin"), nb::arg("end"), nb::arg("isa"));
    bind_packed_layers(m);
    bind_sampling(m);
    bind_store(m);
    bind_live_layers(m);
}
