// Steps come as dictionaries. Arrays are checked for type and size here, since a wrong one would be
// read past its end; their values (ids in range, offsets rising) are trusted.
#include "program_module.h"

#include <nanobind/stl/string.h>

#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.h"
#include "dispatch.h"
#include "program.h"

namespace nb = nanobind;

namespace bignn {
namespace {

// Records of more bytes than this do not stay in the nearer caches.
constexpr std::size_t far_bytes = std::size_t{1} << 19;

// The arrays and numbers of one step, by name.
class Fields {
   public:
    explicit Fields(nb::dict fields) : fields_(std::move(fields)) {}

    std::size_t number(const char* name) const { return nb::cast<std::size_t>(fields_[name]); }

    // Null when there is no such field.
    template <typename T>
    T* array(const char* name, std::size_t size) const {
        if (!fields_.contains(name)) return nullptr;
        nb::ndarray<T, nb::c_contig, nb::device::cpu> array;
        // No conversion: a converted copy would be gone when the program runs.
        if (!nb::try_cast(fields_[name], array, false) || array.size() < size) {
            throw std::invalid_argument(std::string("field '") + name +
                                        "' has the wrong type or fewer than " +
                                        std::to_string(size) + " items");
        }
        if (reinterpret_cast<std::uintptr_t>(array.data()) % alignof(T) != 0) {
            throw std::invalid_argument(std::string("field '") + name + "' is not aligned");
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
    return {
        .halves = fields.required<const half>("panels", positions * 2 * words_per_row(num_bits)),
        .num_bits = num_bits,
        .base = fields.required<const std::int32_t>("base", positions),
        .valid = fields.required<const std::uint16_t>("valid", positions / panel_width),
        .stride = stride,
        .bytes_per_column = bytes_per_column,
    };
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
        const auto count = static_cast<std::size_t>(source.rows.offsets[rows]);
        source.rows.inputs = fields.required<const std::int32_t>("feature_inputs", count);
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
        .words = fields.required<const word>("words", sources * num_words),
        .num_rows = sources,
        .num_bits = layer.num_inputs,
        .count = count,
        .values =
            fields.required<const std::int32_t>("score_values", count * num_words * word_bits),
        .sigma = fields.required<const float>("score_sigma", count),
        .factor = layer.neighbours.source_factor,
        .out = fields.required<float>("scores", count * sources),
    };
    layer.attention = {
        .heads = columns.heads,
        .channels = columns.of_head,
        .averages = fields.number("averages") != 0,
        .slope = *fields.required<const float>("slope", 1),
        .source = step.scores.out,
        .target = step.scores.out + columns.heads * sources,
        .num_sources = sources,
        .product_stride = layer.way == Way::bits ? fields.number("product_stride") : 0,
    };
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
        layer.own = {
            .panels = fields.required<const half>("own_panels", padded * 2 * words_per_row(inputs)),
            .scale = fields.required<const float>("own_scale", outputs),
        };
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
        layer.records = {
            .data = reinterpret_cast<const std::byte*>(
                fields.required<const std::uint8_t>("records", sources * record)),
            .step = record,
            .offset = 0,
            .stride = record_stride(columns.of_head, bytes_per_column),
            .bytes_per_column = bytes_per_column,
            .center = fields.required<const std::int32_t>("center", padded),
            .max_center = static_cast<std::int32_t>(fields.number("max_center")),
            .far = sources * record > far_bytes,
        };
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
        if (program_.steps().empty()) throw std::invalid_argument("no such step");
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

}  // namespace

void bind_program(nb::module_& m) {
    nb::class_<BoundProgram>(m, "Program")
        .def(nb::init<nb::list, const std::string&>(), nb::arg("steps"), nb::arg("isa"))
        .def("run", &BoundProgram::run, nb::arg("num_steps"), nb::arg("out").none())
        .def("run_rows", &BoundProgram::run_rows, nb::arg("begin"), nb::arg("end"),
             nb::arg("values"));
}

}  // namespace bignn
