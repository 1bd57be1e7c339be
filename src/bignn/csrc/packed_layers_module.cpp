// The native model in Python: each Py... class is the Python face of the thing it names. Types,
// sizes and alignment of arrays are checked here, since a wrong one would be read past its end;
// their values (ids in range, offsets rising) are checked above, once per graph, whose arrays are
// read-only from then on.
#include "packed_layers_module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <stdexcept>
#include <variant>

#include "arrays.h"
#include "dispatch.h"
#include "interrupts.h"
#include "packed_layers.h"

namespace nb = nanobind;

namespace bignn {
namespace {

struct PyAttention {
    std::size_t heads;
    bool averages;
    float slope;
    Matrix<const std::int32_t> values;
    Vector<const float> sigma;
    Vector<const float> end_scale;
};

struct PyOwnPart {
    Matrix<const word> words;
    Vector<const float> scale;
};

// Weights are small, so they are copied: nobody can change them while the engine reads them.
std::shared_ptr<LayerWeights> weights_from(const Matrix<const word>& words, std::size_t num_inputs,
                                           const Vector<const float>& scale,
                                           const Vector<const float>& shift, int edge_bits,
                                           const std::optional<PyOwnPart>& own,
                                           const std::optional<PyAttention>& attention) {
    if (edge_bits < 1 || edge_bits > most_edge_bits) refuse("'edge_bits' is out of range");
    if (num_inputs == 0 || words.shape(0) == 0) refuse("a layer has no inputs or no columns");
    auto weights = std::make_shared<LayerWeights>();
    weights->num_inputs = num_inputs;
    weights->edge_bits = edge_bits;
    weights->words = copied_words("words", words, words.shape(0), num_inputs);
    weights->scale = copied("scale", scale, words.shape(0));
    weights->shift = copied("shift", shift, shift.size());
    const std::size_t outputs = shift.size();
    if (own) {
        weights->own_words = copied_words("own words", own->words, outputs, num_inputs);
        weights->own_scale = copied("own scale", own->scale, outputs);
        weights->end_scale.assign(outputs, 1.0f);
    }
    if (attention) {
        const std::size_t heads = attention->heads, count = 2 * heads;
        if (heads == 0 || words.shape(0) % heads != 0) {
            refuse("heads do not share the columns evenly");
        }
        const std::size_t padded = words_per_row(num_inputs) * word_bits;
        const auto& given = attention->values;
        if (given.shape(0) != count || given.shape(1) != num_inputs) {
            refuse("attention's 'values' must be [2 heads, inputs]");
        }
        const std::int32_t* values = checked("values", given, given.size());
        AttentionWeights& made = weights->attention;
        made = {heads, attention->averages, attention->slope, {}, {}};
        made.values.assign(count * padded, 0);
        for (std::size_t n = 0; n < count; ++n) {
            std::copy(values + n * num_inputs, values + (n + 1) * num_inputs,
                      made.values.begin() + static_cast<std::ptrdiff_t>(n * padded));
        }
        made.sigma = copied("sigma", attention->sigma, count);
        weights->end_scale = copied("end_scale", attention->end_scale, outputs);
    }
    const bool averages = attention && attention->averages;
    if (outputs != (averages ? weights->channels() : weights->num_columns())) {
        refuse("outputs do not fit the columns");
    }
    if (own && attention) refuse("a layer has an own part or attention, not both");
    return weights;
}

// Which sources each row takes from. Holds the arrays, which may be as large as a graph.
class PyEdges {
   public:
    using Ids = std::variant<Vector<const std::int32_t>, Vector<const std::int64_t>>;

    PyEdges(Vector<const std::int64_t> offsets, Ids ids, std::optional<Vector<const float>> weights,
            Vector<const float> target_factor, std::optional<Vector<const std::int32_t>> own_ids,
            std::size_t num_sources)
        : num_sources(num_sources), held_{offsets, ids, weights, target_factor, own_ids} {
        if (offsets.size() == 0) refuse("'offsets' is empty");
        const std::size_t rows = edges.num_rows = offsets.size() - 1;
        edges.offsets = checked("offsets", offsets, rows + 1);
        const auto entries = static_cast<std::size_t>(edges.offsets[rows]);
        if (const auto* narrow = std::get_if<Vector<const std::int32_t>>(&ids)) {
            edges.ids = checked("ids", *narrow, entries);
        } else {
            edges.long_ids = checked("ids", std::get<Vector<const std::int64_t>>(ids), entries);
        }
        if (weights) edges.weights = checked("weights", *weights, entries);
        edges.target_factor = checked("target_factor", target_factor, rows);
        if (own_ids) this->own_ids = checked("own_ids", *own_ids, rows);
    }

    Edges edges{};
    const std::int32_t* own_ids = nullptr;
    std::size_t num_sources;

   private:
    struct {
        Vector<const std::int64_t> offsets;
        Ids ids;
        std::optional<Vector<const float>> weights;
        Vector<const float> target_factor;
        std::optional<Vector<const std::int32_t>> own_ids;
    } held_;
};

class PyDenseBits {
   public:
    explicit PyDenseBits(Matrix<const word> words) : words_(words) {
        features.num_rows = words.shape(0);
        features.words = checked("words", words, words.size());
        num_words = words.shape(1);
        // Distinguishes dense features of no rows from sparse ones.
        if (!features.words) features.words = reinterpret_cast<const word*>(alignof(word));
    }

    Features features;
    std::size_t num_words;

   private:
    Matrix<const word> words_;
};

class PySparseBits {
   public:
    PySparseBits(Vector<const std::int64_t> offsets, Vector<const std::int32_t> inputs,
                 Vector<const word> base, std::size_t num_bits)
        : offsets_(offsets), inputs_(inputs) {
        if (offsets.size() == 0) refuse("'offsets' is empty");
        features.num_rows = offsets.size() - 1;
        features.offsets = checked("offsets", offsets, offsets.size());
        const auto count = static_cast<std::size_t>(features.offsets[features.num_rows]);
        features.inputs = checked("inputs", inputs, count);
        for (std::size_t e = 0; e < count; ++e) {
            if (static_cast<std::size_t>(features.inputs[e]) >= num_bits) {
                refuse("'inputs' names bits that do not exist");
            }
        }
        features.base = copied("base", base, words_per_row(num_bits));
        num_words = features.base.size();
    }

    Features features;
    std::size_t num_words;

   private:
    Vector<const std::int64_t> offsets_;
    Vector<const std::int32_t> inputs_;
};

// True when Ctrl-C was pressed: the interpreter's signal handler has raised its exception.
bool was_ctrl_c_pressed() {
    nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
}

class PyPackedLayers {
   public:
    using AnyFeatures = std::variant<std::shared_ptr<PyDenseBits>, std::shared_ptr<PySparseBits>>;

    PyPackedLayers(const std::string& isa, AnyFeatures features, Vector<const float> source_factor)
        : features_(std::move(features)),
          source_factor_(source_factor),
          layers_(kernels_named(isa),
                  std::visit([](auto& some) { return some->features; }, features_),
                  source_factor.data()) {
        std::visit(
            [&](auto& some) {
                checked("source_factor", source_factor, some->features.num_rows);
                num_sources_ = some->features.num_rows;
                num_words_ = some->num_words;
                is_sparse_ = some->features.words == nullptr;
            },
            features_);
    }

    void add(std::shared_ptr<LayerWeights> weights, std::shared_ptr<PyEdges> edges,
             const std::string& way, std::optional<Vector<const float>> out_scale,
             bool keeps_values, bool keeps_bits, std::optional<std::size_t> block_shift) {
        if (block_shift && *block_shift > 16) refuse("'block_shift' is over 16");
        const bool is_first = weights_.empty();
        const bool fits = is_first ? num_words_ == words_per_row(weights->num_inputs)
                                   : weights->num_inputs == weights_.back()->num_outputs();
        if (!fits) refuse("layers do not fit each other");
        if (edges->num_sources != num_sources_) refuse("edges do not fit the rows before them");
        const std::size_t rows = edges->edges.num_rows;
        if (!edges->own_ids && weights->reads_bits() && rows > num_sources_) {
            refuse("rows are not sources");
        }
        LayerSpec::Way chosen = LayerSpec::Way::transform;
        if (way == "G") {
            if (weights->num_inputs > most_inputs_of_bits) refuse("too many inputs to gather bits");
            chosen = LayerSpec::Way::gather;
        } else if (way == "S") {
            if (!is_first || !is_sparse_) refuse("only a first layer of sparse bits goes way 'S'");
            chosen = LayerSpec::Way::sparse;
        } else if (way != "T") {
            refuse("'way' must be T, G or S");
        }
        const float* scale = out_scale ? checked("out_scale", *out_scale, rows) : nullptr;
        layers_.add({weights.get(), edges->edges, edges->own_ids, edges->num_sources, chosen, scale,
                     keeps_values, keeps_bits, block_shift});
        weights_.push_back(std::move(weights));
        edges_.push_back(std::move(edges));
        out_scales_.push_back(std::move(out_scale));
        num_sources_ = rows;
    }

    void run_to_classes(Vector<std::int64_t> classes) {
        if (classes.size() != last().edges.num_rows) refuse("'classes' must have an item per row");
        run(size(), nullptr, checked("classes", classes, classes.size()));
    }

    void run_to_values(Matrix<float> values) {
        if (values.shape(0) != last().edges.num_rows ||
            values.shape(1) != last().weights->num_outputs()) {
            refuse("'values' must be [rows, outputs]");
        }
        run(size(), checked("values", values, values.size()), nullptr);
    }

    void run_kept() { run(size(), nullptr, nullptr); }

    void run_hidden() {
        last();
        run(size() - 1, nullptr, nullptr);
        has_hidden_ = true;
    }

    void run_rows(std::size_t begin, std::size_t end, Matrix<float> values) {
        if (begin > end || end > last().edges.num_rows || values.shape(0) != end - begin ||
            values.shape(1) != last().weights->num_outputs()) {
            refuse("there are no such rows");
        }
        if (!has_hidden_) refuse("run_hidden comes first");
        released([&] { layers_.run_rows(begin, end, checked("values", values, values.size())); });
    }

    void block_to_classes(const PyEdges& edges, Vector<std::int64_t> classes) {
        if (classes.size() != edges.edges.num_rows) refuse("'classes' must have an item per row");
        run_block(edges, {.classes = checked("classes", classes, classes.size())});
    }

    void block_to_values(const PyEdges& edges, Matrix<float> values) {
        if (values.shape(0) != edges.edges.num_rows ||
            values.shape(1) != last().weights->num_outputs()) {
            refuse("'values' must be [rows, outputs]");
        }
        run_block(edges, {.values = checked("values", values, values.size())});
    }

    void block_to_bits(const PyEdges& edges, Matrix<word> words, Vector<float> beta) {
        const std::size_t rows = edges.edges.num_rows;
        if (words.shape(0) != rows ||
            words.shape(1) != words_per_row(last().weights->num_outputs())) {
            refuse("'words' must be packed rows of the outputs");
        }
        run_block(edges, {.words = checked("words", words, words.size()),
                          .beta = checked("beta", beta, rows)});
    }

    double seconds(std::size_t layer) const {
        check_number(layer);
        return layers_.seconds(layer);
    }

    std::size_t bytes_per_column(std::size_t layer) const {
        check_number(layer);
        return layers_.bytes_per_column(layer);
    }

    bool in_blocks(std::size_t layer) const {
        check_number(layer);
        return layers_.in_blocks(layer);
    }

    nb::ndarray<nb::numpy, const float> kept_values(std::size_t layer) const {
        const LayerSpec& spec = kept(layer, true);
        return nb::ndarray<nb::numpy, const float>(
            layers_.kept_values(layer), {spec.edges.num_rows, spec.weights->num_outputs()},
            nb::find(this));
    }

    nb::ndarray<nb::numpy, const word> kept_words(std::size_t layer) const {
        const LayerSpec& spec = kept(layer, false);
        const std::size_t width = words_per_row(spec.weights->num_outputs());
        return nb::ndarray<nb::numpy, const word>(layers_.kept_words(layer),
                                                  {spec.edges.num_rows, width}, nb::find(this));
    }

    nb::ndarray<nb::numpy, const float> kept_beta(std::size_t layer) const {
        const LayerSpec& spec = kept(layer, false);
        return nb::ndarray<nb::numpy, const float>(layers_.kept_beta(layer), {spec.edges.num_rows},
                                                   nb::find(this));
    }

   private:
    void run_block(const PyEdges& edges, const RowOutputs& out) {
        if (!has_hidden_) refuse("run_hidden comes first");
        const LayerSpec& spec = last();
        if (edges.num_sources != spec.num_sources) refuse("edges do not fit the sources");
        if (spec.weights->reads_bits() && !edges.own_ids &&
            edges.edges.num_rows > spec.num_sources) {
            refuse("rows are not sources");
        }
        if (edges.edges.num_rows == 0) return;
        released([&] { layers_.run_block(edges.edges, edges.own_ids, out); });
    }

    std::size_t size() const { return layers_.specs().size(); }

    const LayerSpec& last() const {
        if (size() == 0) refuse("there are no layers");
        return layers_.specs().back();
    }

    void check_number(std::size_t layer) const {
        if (layer >= size() || !has_run_) refuse("no such layer has run");
    }

    const LayerSpec& kept(std::size_t layer, bool values) const {
        check_number(layer);
        const LayerSpec& spec = layers_.specs()[layer];
        if (!(values ? spec.keeps_values : spec.keeps_bits))
            refuse("the layer keeps no such thing");
        return spec;
    }

    void run(std::size_t count, float* values, std::int64_t* classes) {
        last();
        released([&] { layers_.run(count, values, classes); });
        has_run_ = true;
    }

    // Runs without the interpreter's lock; Ctrl-C is raised as Python's exception.
    template <class Work>
    void released(Work work) {
        bool was_interrupted = false;
        {
            nb::gil_scoped_release release;
            const Interruptible watch(was_ctrl_c_pressed);
            try {
                work();
            } catch (const Interrupted&) {
                was_interrupted = true;
            }
        }
        if (was_interrupted) throw nb::python_error();
    }

    AnyFeatures features_;
    Vector<const float> source_factor_;
    PackedLayers layers_;
    std::vector<std::shared_ptr<LayerWeights>> weights_;
    std::vector<std::shared_ptr<PyEdges>> edges_;
    std::vector<std::optional<Vector<const float>>> out_scales_;
    std::size_t num_sources_ = 0, num_words_ = 0;
    bool is_sparse_ = false, has_run_ = false, has_hidden_ = false;
};

}  // namespace

// Arrays are taken as they are: nanobind would silently make a converted copy at every call.
void bind_packed_layers(nb::module_& m) {
    m.def(
        "blocks_pay",
        [](const std::string& isa, int edge_bits, std::size_t num_columns, std::size_t num_rows,
           std::size_t num_sources, std::size_t num_entries) {
            return blocks_pay(kernels_named(isa), edge_bits, record_stride(num_columns, 1),
                              num_rows, num_sources, num_entries);
        },
        nb::arg("isa"), nb::arg("edge_bits"), nb::arg("num_columns"), nb::arg("num_rows"),
        nb::arg("num_sources"), nb::arg("num_entries"));
    nb::class_<PyAttention>(m, "Attention")
        .def(nb::init<std::size_t, bool, float, Matrix<const std::int32_t>, Vector<const float>,
                      Vector<const float>>(),
             nb::arg("heads"), nb::arg("averages"), nb::arg("slope"), nb::arg("values").noconvert(),
             nb::arg("sigma").noconvert(), nb::arg("end_scale").noconvert());
    nb::class_<PyOwnPart>(m, "OwnPart")
        .def(nb::init<Matrix<const word>, Vector<const float>>(), nb::arg("words").noconvert(),
             nb::arg("scale").noconvert());
    nb::class_<LayerWeights>(m, "LayerWeights")
        .def(nb::new_(&weights_from), nb::arg("words").noconvert(), nb::arg("num_inputs"),
             nb::arg("scale").noconvert(), nb::arg("shift").noconvert(), nb::arg("edge_bits"),
             nb::arg("own").none() = nb::none(), nb::arg("attention").none() = nb::none())
        .def_prop_ro("bytes_per_column", &LayerWeights::bytes_per_column)
        .def("widen", &LayerWeights::widen, nb::arg("overflowed"));
    nb::class_<PyEdges>(m, "Edges")
        .def(
            nb::init<Vector<const std::int64_t>, PyEdges::Ids, std::optional<Vector<const float>>,
                     Vector<const float>, std::optional<Vector<const std::int32_t>>, std::size_t>(),
            nb::arg("offsets").noconvert(), nb::arg("ids").noconvert(),
            nb::arg("weights").noconvert().none(), nb::arg("target_factor").noconvert(),
            nb::arg("own_ids").noconvert().none(), nb::arg("num_sources"));
    nb::class_<PyDenseBits>(m, "DenseBits")
        .def(nb::init<Matrix<const word>>(), nb::arg("words").noconvert());
    nb::class_<PySparseBits>(m, "SparseBits")
        .def(nb::init<Vector<const std::int64_t>, Vector<const std::int32_t>, Vector<const word>,
                      std::size_t>(),
             nb::arg("offsets").noconvert(), nb::arg("inputs").noconvert(),
             nb::arg("base").noconvert(), nb::arg("num_bits"));
    nb::class_<PyPackedLayers>(m, "PackedLayers")
        .def(nb::init<const std::string&, PyPackedLayers::AnyFeatures, Vector<const float>>(),
             nb::arg("isa"), nb::arg("features"), nb::arg("source_factor").noconvert())
        .def("add", &PyPackedLayers::add, nb::arg("weights"), nb::arg("edges"), nb::arg("way"),
             nb::arg("out_scale").noconvert().none(), nb::arg("keeps_values"),
             nb::arg("keeps_bits"), nb::arg("block_shift").none() = nb::none())
        .def("run_to_classes", &PyPackedLayers::run_to_classes, nb::arg("classes").noconvert())
        .def("run_to_values", &PyPackedLayers::run_to_values, nb::arg("values").noconvert())
        .def("run_kept", &PyPackedLayers::run_kept)
        .def("run_hidden", &PyPackedLayers::run_hidden)
        .def("run_rows", &PyPackedLayers::run_rows, nb::arg("begin"), nb::arg("end"),
             nb::arg("values").noconvert())
        .def("block_to_classes", &PyPackedLayers::block_to_classes, nb::arg("edges"),
             nb::arg("classes").noconvert())
        .def("block_to_values", &PyPackedLayers::block_to_values, nb::arg("edges"),
             nb::arg("values").noconvert())
        .def("block_to_bits", &PyPackedLayers::block_to_bits, nb::arg("edges"),
             nb::arg("words").noconvert(), nb::arg("beta").noconvert())
        .def("seconds", &PyPackedLayers::seconds, nb::arg("layer"))
        .def("bytes_per_column", &PyPackedLayers::bytes_per_column, nb::arg("layer"))
        .def("in_blocks", &PyPackedLayers::in_blocks, nb::arg("layer"))
        .def("kept_values", &PyPackedLayers::kept_values, nb::arg("layer"))
        .def("kept_words", &PyPackedLayers::kept_words, nb::arg("layer"))
        .def("kept_beta", &PyPackedLayers::kept_beta, nb::arg("layer"));
}

}  // namespace bignn
