// The native live graph in Python. Numbers of nodes and sizes of arrays are checked here, since a
// wrong one would be read past an array's end.
#include "live_layers_module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "arrays.h"
#include "dispatch.h"
#include "live_layers.h"

namespace nb = nanobind;

namespace bignn {
namespace {

using Ints = Vector<const std::int64_t>;

EdgeKind kind_of(const std::string& loops, const std::string& factor, bool is_weighted,
                 float own_weight) {
    EdgeKind kind{EdgeKind::Loops::given, EdgeKind::Factor::none, is_weighted, own_weight};
    if (loops == "added") {
        kind.loops = EdgeKind::Loops::added;
    } else if (loops == "removed") {
        kind.loops = EdgeKind::Loops::removed;
    } else if (loops != "given") {
        refuse("'loops' must be added, given or removed");
    }
    if (factor == "mean") {
        kind.factor = EdgeKind::Factor::mean;
    } else if (factor == "degree") {
        kind.factor = EdgeKind::Factor::degree;
    } else if (factor == "source_degree") {
        kind.factor = EdgeKind::Factor::source_degree;
    } else if (factor != "none") {
        refuse("'factor' must be none, mean, degree or source_degree");
    }
    return kind;
}

class PyLiveLayers {
   public:
    PyLiveLayers(const std::string& isa, Ints offsets, Vector<const std::int32_t> ids,
                 std::optional<Vector<const float>> weights, bool has_loops, bool keeps_sums,
                 Matrix<const word> words, Vector<const float> beta)
        : num_words_(words.shape(1)),
          layers_(kernels_named(isa), rows_of(offsets, ids, weights), has_loops, keeps_sums,
                  copied_items(words), copied("beta", beta, words.shape(0))) {
        if (words.shape(0) + 1 != offsets.size()) refuse("features and rows do not fit each other");
    }

    void add(std::shared_ptr<LayerWeights> weights, const std::string& loops,
             const std::string& factor, bool is_weighted, float own_weight) {
        const bool fits = weights_.empty() ? num_words_ == words_per_row(weights->num_inputs)
                                           : weights->num_inputs == weights_.back()->num_outputs();
        if (!fits || layers_.is_whole()) refuse("layers do not fit each other");
        if (weights->num_inputs > most_inputs_of_bits) refuse("too many inputs to gather bits");
        layers_.add(weights.get(), kind_of(loops, factor, is_weighted, own_weight));
        weights_.push_back(std::move(weights));
    }

    void refresh() {
        if (weights_.empty() || layers_.is_whole()) refuse("there are no layers, or they were run");
        nb::gil_scoped_release release;
        layers_.refresh();
    }

    auto update(Ints nodes, std::size_t num_added, Matrix<const word> words,
                Vector<const float> beta, Matrix<const std::int64_t> removed,
                Matrix<const std::int64_t> added, std::optional<Vector<const float>> weights,
                Ints removed_nodes) {
        check_whole();
        const std::size_t before = layers_.num_nodes(), after = before + num_added;
        if (after < before || after >= std::size_t{1} << 31) refuse("too many nodes");
        if (words.shape(0) != nodes.size() + num_added || words.shape(1) != num_words_) {
            refuse("'words' must have a row per node");
        }
        if (removed.shape(0) != 2 || added.shape(0) != 2) refuse("edges must be [2, n]");
        LiveChanges changes;
        changes.num_added = num_added;
        changes.nodes = checked_nodes(nodes.data(), nodes.size(), before);
        changes.words = copied_items(words);
        changes.beta = copied("beta", beta, words.shape(0));
        const std::size_t gone = removed.shape(1), more = added.shape(1);
        changes.removed_sources = checked_nodes(removed.data(), gone, after);
        changes.removed_targets = checked_nodes(removed.data() + gone, gone, after);
        changes.added_sources = checked_nodes(added.data(), more, after);
        changes.added_targets = checked_nodes(added.data() + more, more, after);
        if (weights) changes.added_weights = copied("weights", *weights, more);
        changes.removed_nodes = checked_nodes(removed_nodes.data(), removed_nodes.size(), after);
        std::vector<std::int64_t> found;
        {
            nb::gil_scoped_release release;
            found = layers_.update(changes);
        }
        return handed_over(std::move(found));
    }

    // The first of some edges that does not exist; -1 if all do.
    std::int64_t first_missing(Matrix<const std::int64_t> edges) const {
        if (edges.shape(0) != 2) refuse("edges must be [2, n]");
        const std::size_t count = edges.shape(1), nodes = layers_.num_nodes();
        const auto sources = checked_nodes(edges.data(), count, nodes);
        const auto targets = checked_nodes(edges.data() + count, count, nodes);
        for (std::size_t e = 0; e < count; ++e) {
            const auto source = static_cast<std::int32_t>(sources[e]);
            if (!layers_.rows().has(static_cast<std::size_t>(targets[e]), source)) {
                return static_cast<std::int64_t>(e);
            }
        }
        return -1;
    }

    void classes(Ints nodes, Vector<std::int64_t> out) const {
        if (out.size() != nodes.size()) refuse("'out' must have an item per node");
        nb::gil_scoped_release release;
        const std::shared_lock<std::shared_mutex> lock(layers_.mutex());
        check_whole();
        const auto rows = checked_nodes(nodes.data(), nodes.size(), layers_.num_nodes());
        for (std::size_t n = 0; n < rows.size(); ++n) {
            out.data()[n] = layers_.class_of(rows[n]);
        }
    }

    void values(Ints nodes, Matrix<float> out) const {
        if (weights_.empty()) refuse("there are no layers");
        if (out.shape(0) != nodes.size() || out.shape(1) != weights_.back()->num_outputs()) {
            refuse("'out' must be [nodes, outputs]");
        }
        nb::gil_scoped_release release;
        const std::shared_lock<std::shared_mutex> lock(layers_.mutex());
        check_whole();
        const auto rows = checked_nodes(nodes.data(), nodes.size(), layers_.num_nodes());
        layers_.values_of({rows.begin(), rows.end()}, out.data());
    }

    // Copies of the bits and scales that a layer reads.
    nb::tuple state(std::size_t number) const {
        if (number >= layers_.num_layers()) refuse("there is no such layer");
        const std::shared_lock<std::shared_mutex> lock(layers_.mutex());
        return nb::make_tuple(handed_over(LineVector<word>(layers_.words(number))),
                              handed_over(LineVector<float>(layers_.beta(number))));
    }

    // Copies of some rows or, without `nodes`, of all: offsets, ids, and weights or None.
    nb::tuple edges(std::optional<Ints> nodes) const {
        const std::shared_lock<std::shared_mutex> lock(layers_.mutex());
        const GrowingRows& rows = layers_.rows();
        std::vector<std::int64_t> wanted(nodes ? 0 : rows.num_rows());
        std::iota(wanted.begin(), wanted.end(), 0);
        if (nodes) wanted = checked_nodes(nodes->data(), nodes->size(), rows.num_rows());
        std::vector<std::int64_t> offsets(1, 0);
        std::vector<std::int32_t> ids;
        std::vector<float> weights;
        if (!nodes) ids.reserve(rows.num_entries());
        for (const std::int64_t node : wanted) {
            const auto row = static_cast<std::size_t>(node);
            const auto some = rows.ids(row);
            ids.insert(ids.end(), some.begin(), some.end());
            if (rows.is_weighted()) {
                weights.insert(weights.end(), rows.weights(row), rows.weights(row) + some.size());
            }
            offsets.push_back(static_cast<std::int64_t>(ids.size()));
        }
        nb::object of_edges = nb::none();
        if (rows.is_weighted()) of_edges = nb::cast(handed_over(std::move(weights)));
        return nb::make_tuple(handed_over(std::move(offsets)), handed_over(std::move(ids)),
                              of_edges);
    }

    // Copies of what the first layer reads of some nodes: bits, scales, and degree scales.
    nb::tuple inputs(Ints nodes, const std::string& loops, const std::string& factor,
                     bool is_weighted, float own_weight) const {
        const std::shared_lock<std::shared_mutex> lock(layers_.mutex());
        const EdgeKind kind = kind_of(loops, factor, is_weighted, own_weight);
        const auto wanted = checked_nodes(nodes.data(), nodes.size(), layers_.num_nodes());
        std::vector<word> words;
        std::vector<float> beta, scales;
        for (const std::int64_t node : wanted) {
            const auto begin =
                layers_.words(0).begin() + static_cast<std::ptrdiff_t>(num_words_) * node;
            words.insert(words.end(), begin, begin + static_cast<std::ptrdiff_t>(num_words_));
            beta.push_back(layers_.beta(0)[static_cast<std::size_t>(node)]);
            scales.push_back(layers_.scale_of(kind, static_cast<std::int32_t>(node)));
        }
        return nb::make_tuple(handed_over(std::move(words)), handed_over(std::move(beta)),
                              handed_over(std::move(scales)));
    }

    // What the last update did in each layer: see LiveLayers::Work.
    auto work() const {
        const std::shared_lock<std::shared_mutex> lock(layers_.mutex());
        std::vector<std::tuple<std::size_t, std::size_t, std::size_t, double>> found;
        for (const LiveLayers::Work& some : layers_.work()) {
            found.push_back({some.rows, some.changed, some.moved, some.seconds});
        }
        return found;
    }

    std::size_t num_nodes() const { return layers_.num_nodes(); }
    std::size_t nbytes() const {
        const std::shared_lock<std::shared_mutex> lock(layers_.mutex());
        return layers_.nbytes();
    }

   private:
    static GrowingRows rows_of(const Ints& offsets, const Vector<const std::int32_t>& ids,
                               const std::optional<Vector<const float>>& weights) {
        if (offsets.size() == 0) refuse("'offsets' is empty");
        const std::int64_t* begins = checked("offsets", offsets, offsets.size());
        const auto entries = static_cast<std::size_t>(begins[offsets.size() - 1]);
        const float* of_edges = weights ? checked("weights", *weights, entries) : nullptr;
        return {offsets.size() - 1, begins, checked("ids", ids, entries), of_edges};
    }

    static std::vector<word> copied_items(const Matrix<const word>& words) {
        const word* items = checked("words", words, words.size());
        return {items, items + words.size()};
    }

    static std::vector<std::int64_t> checked_nodes(const std::int64_t* nodes, std::size_t count,
                                                   std::size_t limit) {
        for (std::size_t n = 0; n < count; ++n) {
            if (nodes[n] < 0 || static_cast<std::size_t>(nodes[n]) >= limit) {
                refuse("there is no such node");
            }
        }
        return {nodes, nodes + count};
    }

    void check_whole() const {
        if (!layers_.is_whole()) refuse("the layers have not run, or an update failed half way");
    }

    std::size_t num_words_;
    std::vector<std::shared_ptr<LayerWeights>> weights_;
    LiveLayers layers_;
};

}  // namespace

void bind_live_layers(nb::module_& m) {
    nb::class_<PyLiveLayers>(m, "LiveLayers")
        .def(nb::init<const std::string&, Ints, Vector<const std::int32_t>,
                      std::optional<Vector<const float>>, bool, bool, Matrix<const word>,
                      Vector<const float>>(),
             nb::arg("isa"), nb::arg("offsets").noconvert(), nb::arg("ids").noconvert(),
             nb::arg("weights").noconvert().none(), nb::arg("has_loops"), nb::arg("keeps_sums"),
             nb::arg("words").noconvert(), nb::arg("beta").noconvert())
        .def("add", &PyLiveLayers::add, nb::arg("weights"), nb::arg("loops"), nb::arg("factor"),
             nb::arg("is_weighted"), nb::arg("own_weight"))
        .def("refresh", &PyLiveLayers::refresh)
        .def("update", &PyLiveLayers::update, nb::arg("nodes").noconvert(), nb::arg("num_added"),
             nb::arg("words").noconvert(), nb::arg("beta").noconvert(),
             nb::arg("removed").noconvert(), nb::arg("added").noconvert(),
             nb::arg("weights").noconvert().none(), nb::arg("removed_nodes").noconvert())
        .def("first_missing", &PyLiveLayers::first_missing, nb::arg("edges").noconvert())
        .def("classes", &PyLiveLayers::classes, nb::arg("nodes").noconvert(),
             nb::arg("out").noconvert())
        .def("values", &PyLiveLayers::values, nb::arg("nodes").noconvert(),
             nb::arg("out").noconvert())
        .def("state", &PyLiveLayers::state, nb::arg("number"))
        .def("edges", &PyLiveLayers::edges, nb::arg("nodes").noconvert().none() = nb::none())
        .def("inputs", &PyLiveLayers::inputs, nb::arg("nodes").noconvert(), nb::arg("loops"),
             nb::arg("factor"), nb::arg("is_weighted"), nb::arg("own_weight"))
        .def_prop_ro("work", &PyLiveLayers::work)
        .def_prop_ro("num_nodes", &PyLiveLayers::num_nodes)
        .def_prop_ro("nbytes", &PyLiveLayers::nbytes);
}

}  // namespace bignn
