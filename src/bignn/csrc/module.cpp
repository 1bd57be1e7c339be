// The Python face of the native core: shapes and types are checked above (kernels/__init__.py),
// the GIL is released while kernels run, buffers belong to the caller.
// Single products run on the calling thread; a program runs on the pool of threads.h.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dispatch.h"
#include "program.h"
#include "sampling_module.h"
#include "threads.h"

namespace nb = nanobind;
using namespace bignn;

namespace {

template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const Kernels& kernels_named(const std::string& name) {
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

void xnor(Matrix<const word> a, Matrix<const half> panels, std::size_t num_bits,
          Matrix<std::int32_t> out, std::size_t begin, std::size_t end, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
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
    const std::size_t padded = (out.shape(1) + panel_width - 1) / panel_width * panel_width;
    if (panels.shape(1) != 2 * rows.shape(1) || panels.shape(0) < padded ||
        out.shape(0) != rows.shape(0)) {
        throw std::invalid_argument("panels or out of the wrong shape");
    }
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

// The arrays and numbers of one step, by name. Arrays are checked for size here, since a wrong one
// would be read past its end; their values (ids in range, offsets rising) are trusted.
constexpr std::size_t far_bytes = std::size_t{1} << 19;

class Fields {
   public:
    explicit Fields(nb::dict fields) : fields_(std::move(fields)) {}

    std::size_t number(const char* name) const { return nb::cast<std::size_t>(fields_[name]); }

    // Null when there is no such field.
    template <typename T>
    T* array(const char* name, std::size_t size) const {
        if (!fields_.contains(name)) return nullptr;
        using Any = nb::ndarray<T, nb::c_contig, nb::device::cpu>;
        Any array;
        // No conversion: a converted copy would be gone when the program runs.
        if (!nb::try_cast(fields_[name], array, false) || array.size() < size) {
            throw std::invalid_argument(std::string("field '") + name +
                                        "' has the wrong type or "
                                        "fewer than " +
                                        std::to_string(size) + " items");
        }
        return array.data();
    }

    template <typename T>
    T* required(const char* name, std::size_t size) const {
        if (!fields_.contains(name)) {
            throw std::invalid_argument(std::string("field '") + name + "' is missing");
        }
        return array<T>(name, size);
    }

    bool has(const char* name) const { return fields_.contains(name); }

   private:
    nb::dict fields_;
};

std::size_t bytes_per_column_from(const Fields& fields) {
    const std::size_t bytes_per_column = fields.number("bytes_per_column");
    if (bytes_per_column != 1 && bytes_per_column != 2 && bytes_per_column != 4) {
        throw std::invalid_argument("field 'bytes_per_column' must be 1, 2 or 4");
    }
    return bytes_per_column;
}

// Records have a part per head, one without attention.
struct Columns {
    std::size_t heads, of_head;

    explicit Columns(const Fields& fields) : heads(1), of_head(fields.number("num_columns")) {
        if (!fields.has("heads")) return;
        heads = fields.number("heads");
        if (heads == 0 || of_head % heads != 0) {
            throw std::invalid_argument("heads do not share the columns evenly");
        }
        of_head /= heads;
    }

    std::size_t stride(std::size_t bytes_per_column) const {
        return heads * record_stride(of_head, bytes_per_column);
    }
};

Panels panels_from(const Fields& fields, std::size_t num_bits, std::size_t bytes_per_column) {
    const std::size_t stride = Columns(fields).stride(bytes_per_column);
    const std::size_t positions = stride / bytes_per_column;
    return {fields.required<const half>("panels", positions * 2 * words_per_row(num_bits)),
            num_bits,
            fields.required<const std::int32_t>("base", positions),
            fields.required<const std::uint16_t>("valid", positions / panel_width),
            stride,
            bytes_per_column};
}

Source source_from(const Fields& fields, std::size_t num_inputs) {
    Source source;
    if (!fields.has("source_rows")) return source;
    const std::size_t rows = source.num_rows = fields.number("source_rows");
    const std::size_t bytes_per_column = bytes_per_column_from(fields);
    const std::size_t stride = Columns(fields).stride(bytes_per_column);
    source.records =
        reinterpret_cast<std::byte*>(fields.required<std::uint8_t>("records", rows * stride));
    if (fields.has("feature_words")) {
        source.kind = Source::Kind::bits;
        source.words =
            fields.required<const word>("feature_words", rows * words_per_row(num_inputs));
        source.panels = panels_from(fields, num_inputs, bytes_per_column);
    } else {
        source.kind = Source::Kind::sparse;
        source.rows.offsets = fields.required<const std::int64_t>("feature_offsets", rows + 1);
        source.rows.inputs = fields.required<const std::int32_t>(
            "feature_inputs", static_cast<std::size_t>(source.rows.offsets[rows]));
        const auto count = static_cast<std::size_t>(source.rows.offsets[rows]);
        for (std::size_t e = 0; e < count; ++e) {
            if (static_cast<std::size_t>(source.rows.inputs[e]) >= num_inputs) {
                throw std::invalid_argument(
                    "field 'feature_inputs' names inputs that do not exist");
            }
        }
        source.table = {
            fields.required<const std::int8_t>("signs", num_inputs * stride / bytes_per_column),
            stride, bytes_per_column};
    }
    return source;
}

// Scores of all sources, and where a layer reads them.
void attention_from(const Fields& fields, std::size_t sources, Step& step) {
    const Columns columns(fields);
    Layer& layer = step.layer;
    const std::size_t count = 2 * columns.heads;
    const std::size_t num_words = words_per_row(layer.num_inputs);
    step.scores = {
        fields.required<const word>("words", sources * num_words),
        sources,
        layer.num_inputs,
        count,
        fields.required<const std::int32_t>("score_values", count * num_words * word_bits),
        fields.required<const float>("score_sigma", count),
        layer.neighbours.source_factor,
        fields.required<float>("scores", count * sources)};
    layer.attention = {columns.heads,
                       columns.of_head,
                       fields.number("averages") != 0,
                       *fields.required<const float>("slope", 1),
                       step.scores.out,
                       step.scores.out + columns.heads * sources,
                       sources,
                       layer.way == Way::bits ? fields.number("product_stride") : 0};
    if (layer.way == Way::bits &&
        columns.heads * fields.number("product_stride") > fields.number("product_bytes")) {
        throw std::invalid_argument("field 'product' does not hold all heads");
    }
}

Step step_from(const Fields& fields) {
    Step step;
    Layer& layer = step.layer;
    const std::size_t inputs = layer.num_inputs = fields.number("num_inputs");
    const std::size_t outputs = layer.num_outputs = fields.number("num_outputs");
    const std::size_t rows = layer.neighbours.num_rows = fields.number("num_rows");
    const std::size_t sources = fields.number("num_sources");
    const Columns columns(fields);
    if (outputs != columns.of_head && outputs != columns.heads * columns.of_head) {
        throw std::invalid_argument("outputs do not fit the columns");
    }
    auto& from = layer.neighbours;
    from.offsets = fields.required<const std::int64_t>("offsets", rows + 1);
    const auto entries = static_cast<std::size_t>(from.offsets[rows]);
    from.ids = fields.array<const std::int32_t>("ids", entries);
    from.long_ids = fields.array<const std::int64_t>("long_ids", entries);
    if (!from.ids && !from.long_ids) throw std::invalid_argument("field 'ids' is missing");
    from.weights = fields.array<const float>("weights", entries);
    from.source_factor = fields.required<const float>("source_factor", sources);
    from.target_factor = fields.required<const float>("target_factor", rows);
    const std::size_t edge_bits = fields.number("edge_bits");
    if (edge_bits < 1 || edge_bits > most_edge_bits) {
        throw std::invalid_argument("field 'edge_bits' is out of range");
    }
    layer.edge_bits = static_cast<int>(edge_bits);
    layer.scale = fields.required<const float>("scale", columns.heads * columns.of_head);
    layer.shift = fields.required<const float>("shift", outputs);
    layer.words = fields.array<const word>("words", sources * words_per_row(inputs));
    layer.own_ids = fields.array<const std::int32_t>("own_ids", rows);
    if (!layer.own_ids && rows > sources && (fields.has("own_panels") || fields.has("heads"))) {
        throw std::invalid_argument("rows are not sources");
    }
    if (fields.has("own_panels")) {
        const std::size_t padded = (outputs + panel_width - 1) / panel_width * panel_width;
        layer.own = {fields.required<const half>("own_panels", padded * 2 * words_per_row(inputs)),
                     fields.required<const float>("own_scale", outputs)};
        fields.required<const word>("words", sources * words_per_row(inputs));
    }
    if (fields.has("own_panels") || fields.has("heads")) {
        layer.end_scale = fields.required<const float>("end_scale", outputs);
    }
    if (fields.has("bytes_per_column")) {
        layer.way = Way::records;
        const std::size_t bytes_per_column = bytes_per_column_from(fields);
        const std::size_t record = columns.stride(bytes_per_column);
        // Vector code reads centers by whole registers.
        const std::size_t padded = columns.heads * ((columns.of_head + 63) / 64 * 64);
        layer.records = {reinterpret_cast<const std::byte*>(
                             fields.required<const std::uint8_t>("records", sources * record)),
                         record,
                         0,
                         record_stride(columns.of_head, bytes_per_column),
                         bytes_per_column,
                         fields.required<const std::int32_t>("center", padded),
                         static_cast<std::int32_t>(fields.number("max_center")),
                         sources * record > far_bytes};
    } else {
        layer.way = Way::bits;
        if (inputs > most_inputs_of_bits) {
            throw std::invalid_argument("too many inputs to gather bits");
        }
        fields.required<const word>("words", sources * words_per_row(inputs));
        layer.product = reinterpret_cast<const std::byte*>(
            fields.required<const std::uint8_t>("product", fields.number("product_bytes")));
    }
    if (fields.has("heads")) attention_from(fields, sources, step);
    layer.values = fields.array<float>("out_values", rows * outputs);
    layer.out_words = fields.array<word>("out_words", rows * words_per_row(outputs));
    layer.out_beta = fields.array<float>("out_beta", rows);
    layer.out_factor = fields.array<float>("out_factor", rows);
    layer.out_norm = fields.array<const float>("out_norm", rows);
    return step;
}

class BoundProgram {
   public:
    BoundProgram(nb::list steps, const std::string& isa)
        : program_(kernels_named(isa)), held_(steps) {
        for (nb::handle item : steps) {
            const Fields fields(nb::cast<nb::dict>(item));
            Step step = step_from(fields);
            step.source = source_from(fields, step.layer.num_inputs);
            program_.steps().push_back(step);
        }
        // A layer whose successor gathers records makes them; its panels are the successor's.
        std::vector<Step>& all = program_.steps();
        for (std::size_t i = 0; i + 1 < all.size(); ++i) {
            if (!all[i].layer.out_factor) throw std::invalid_argument("'out_factor' is missing");
            const Fields after(nb::cast<nb::dict>(steps[i + 1]));
            const Layer& next = all[i + 1].layer;
            if (next.num_inputs != all[i].layer.num_outputs) {
                throw std::invalid_argument("layers do not fit each other");
            }
            if (next.words && !all[i].layer.out_words) {
                throw std::invalid_argument("'out_words' is missing");
            }
            if (next.way != Way::records) continue;
            all[i].next = panels_from(after, next.num_inputs, next.records.bytes_per_column);
            all[i].layer.next_records = reinterpret_cast<std::byte*>(after.required<std::uint8_t>(
                "records", all[i].layer.neighbours.num_rows * next.records.step));
        }
        for (Step& step : all) {
            if (step.layer.next_records) step.layer.next = &step.next;
        }
    }

    // The last step's rows as classes int64 [rows] or, of another type, values float32 [rows,
    // outputs]: (number of the step whose records overflowed or -1, seconds per step)
    nb::tuple run(std::size_t num_steps, nb::handle out) {
        const std::vector<Step>& steps = program_.steps();
        if (steps.empty() || num_steps > steps.size()) {
            throw std::invalid_argument("no such step");
        }
        float* values = nullptr;
        std::int64_t* classes = nullptr;
        const Layer& last = steps.back().layer;
        // Rows may have places of their own to go to.
        const bool is_needed = !last.values && !last.out_factor;
        if (num_steps == steps.size() && (is_needed || !out.is_none())) {
            const std::size_t rows = last.neighbours.num_rows;
            Vector<std::int64_t> to_classes;
            Matrix<float> to_values;
            if (nb::try_cast(out, to_classes, false) && to_classes.size() == rows) {
                classes = to_classes.data();
            } else if (nb::try_cast(out, to_values, false) && to_values.shape(0) == rows &&
                       to_values.shape(1) == last.num_outputs) {
                values = to_values.data();
            } else {
                throw std::invalid_argument("'out' does not take the last step's rows");
            }
        }
        std::vector<double> seconds(steps.size());
        int overflowed;
        {
            nb::gil_scoped_release release;
            overflowed = program_.run(num_steps, values, classes, seconds.data());
        }
        nb::list times;
        for (const double time : seconds) times.append(time);
        return nb::make_tuple(overflowed, times);
    }

    void run_rows(std::size_t begin, std::size_t end, Matrix<float> values) {
        const Layer& last = program_.steps().back().layer;
        if (begin > end || end > last.neighbours.num_rows || values.shape(0) != end - begin ||
            values.shape(1) != last.num_outputs) {
            throw std::invalid_argument("no such rows");
        }
        nb::gil_scoped_release release;
        program_.run_rows(begin, end, values.data());
    }

   private:
    Program program_;
    nb::list held_;  // keeps the arrays alive
};

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
    nb::class_<BoundProgram>(m, "Program")
        .def(nb::init<nb::list, const std::string&>(), nb::arg("steps"), nb::arg("isa"))
        .def("run", &BoundProgram::run, nb::arg("num_steps"), nb::arg("out").none())
        .def("run_rows", &BoundProgram::run_rows, nb::arg("begin"), nb::arg("end"),
             nb::arg("values"));
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
    bind_sampling(m);
}
