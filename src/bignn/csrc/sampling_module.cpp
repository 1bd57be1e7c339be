// Values (ids in range, offsets rising) are checked above, once per graph (kernels/sampling.py);
// sizes and the nodes of a call are checked here: a wrong one would be read past an array's end.
// Results are as large as they turn out to be, so unlike other kernels' they are made here.
#include "sampling_module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "arrays.h"
#include "node_order.h"
#include "sampling.h"
#include "surroundings.h"

namespace nb = nanobind;

namespace bignn {
namespace {

using Ints = Vector<const std::int64_t>;
using Result = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

std::span<const std::int64_t> span_of(const Ints& values) { return {values.data(), values.size()}; }

template <class Id>
Adjacency<Id> adjacency(const Ints& offsets, const Vector<const Id>& ids,
                        const std::optional<Ints>& numbers) {
    if (offsets.size() == 0 ||
        offsets.data()[offsets.size() - 1] != static_cast<std::int64_t>(ids.size()) ||
        (numbers && numbers->size() != ids.size())) {
        throw std::invalid_argument("offsets, ids and numbers do not fit each other");
    }
    return {offsets.data(), ids.data(), numbers ? numbers->data() : nullptr, offsets.size() - 1};
}

void check_nodes(std::span<const std::int64_t> nodes, std::size_t num_nodes) {
    for (const std::int64_t node : nodes) {
        if (node < 0 || static_cast<std::size_t>(node) >= num_nodes) {
            throw std::invalid_argument("there is no such node");
        }
    }
}

template <class Id>
nb::tuple neighbours(Ints offsets, Vector<const Id> ids, std::optional<Ints> numbers, Ints seeds,
                     Ints fanouts, bool replace, std::uint64_t seed) {
    const Adjacency<Id> graph = adjacency(offsets, ids, numbers);
    Neighbourhood found;
    {
        nb::gil_scoped_release release;
        check_nodes(span_of(seeds), graph.num_nodes);
        found = sample_neighbours(graph, span_of(seeds), span_of(fanouts), replace, seed);
    }
    return nb::make_tuple(
        handed_over(std::move(found.nodes)), handed_over(std::move(found.edges.sources)),
        handed_over(std::move(found.edges.targets)), handed_over(std::move(found.edges.numbers)),
        found.nodes_per_hop, found.edges_per_hop);
}

// The first column of `walks` holds the roots.
template <class Id>
void walk(Ints offsets, Vector<const Id> ids, std::uint64_t seed,
          nb::ndarray<std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu> walks) {
    const Adjacency<Id> graph = adjacency(offsets, ids, std::nullopt);
    if (walks.shape(1) == 0) throw std::invalid_argument("walks without roots");
    nb::gil_scoped_release release;
    std::vector<std::int64_t> roots(walks.shape(0));
    for (std::size_t w = 0; w < roots.size(); ++w) roots[w] = walks.data()[w * walks.shape(1)];
    check_nodes(roots, graph.num_nodes);
    random_walks(graph, roots, walks.shape(1) - 1, seed, walks.data());
}

template <class Id>
nb::tuple between(Ints offsets, Vector<const Id> ids, std::optional<Ints> numbers, Ints rows,
                  Ints columns) {
    const Adjacency<Id> graph = adjacency(offsets, ids, numbers);
    SampledEdges edges;
    {
        nb::gil_scoped_release release;
        check_nodes(span_of(rows), graph.num_nodes);
        check_nodes(span_of(columns), graph.num_nodes);
        edges = edges_between(graph, span_of(rows), span_of(columns));
    }
    return nb::make_tuple(handed_over(std::move(edges.sources)),
                          handed_over(std::move(edges.targets)),
                          handed_over(std::move(edges.numbers)));
}

void sort(Ints rows, Ints columns, Vector<std::int64_t> offsets, Vector<std::int32_t> ids,
          Vector<std::int64_t> numbers) {
    if (columns.size() != rows.size() || ids.size() != rows.size() ||
        numbers.size() != rows.size() || offsets.size() == 0) {
        throw std::invalid_argument("rows, columns, ids and numbers do not fit each other");
    }
    nb::gil_scoped_release release;
    check_nodes(span_of(rows), offsets.size() - 1);
    sort_edges(span_of(rows), span_of(columns), {offsets.data(), offsets.size()}, ids.data(),
               numbers.data());
}

Result order(Ints offsets, Vector<const std::int32_t> ids) {
    const Adjacency<std::int32_t> graph = adjacency(offsets, ids, std::nullopt);
    Numbers nodes;
    {
        nb::gil_scoped_release release;
        nodes = locality_order(graph);
    }
    return handed_over(std::move(nodes));
}

template <class Id>
Result with_sources(Ints offsets, Vector<const Id> ids, Ints rows) {
    const Adjacency<Id> graph = adjacency(offsets, ids, std::nullopt);
    Numbers nodes;
    {
        nb::gil_scoped_release release;
        check_nodes(span_of(rows), graph.num_nodes);
        nodes = rows_and_sources(graph, span_of(rows));
    }
    return handed_over(std::move(nodes));
}

template <class Id>
nb::tuple taken_rows(Ints offsets, Vector<const Id> ids, std::optional<Vector<const float>> weights,
                     Ints rows, Ints taken) {
    const Adjacency<Id> graph = adjacency(offsets, ids, std::nullopt);
    if (weights && weights->size() != ids.size()) {
        throw std::invalid_argument("weights and ids do not fit each other");
    }
    TakenRows made;
    {
        nb::gil_scoped_release release;
        check_nodes(span_of(rows), graph.num_nodes);
        check_nodes(span_of(taken), graph.num_nodes);
        made = take_rows(graph, weights ? weights->data() : nullptr, span_of(rows), span_of(taken));
    }
    nb::object of_edges = nb::none();
    if (weights) of_edges = nb::cast(handed_over(std::move(made.weights)));
    return nb::make_tuple(handed_over(std::move(made.offsets)), handed_over(std::move(made.ids)),
                          of_edges, handed_over(std::move(made.own_ids)));
}

// Arrays are taken as they are: nanobind would silently convert and copy a graph at every call.
template <class Id>
void bind_for(nb::module_& m) {
    m.def("sample_neighbours", &neighbours<Id>, nb::arg("offsets").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("numbers").noconvert().none(),
          nb::arg("seeds").noconvert(), nb::arg("fanouts").noconvert(), nb::arg("replace"),
          nb::arg("seed"));
    m.def("random_walks", &walk<Id>, nb::arg("offsets").noconvert(), nb::arg("ids").noconvert(),
          nb::arg("seed"), nb::arg("walks").noconvert());
    m.def("edges_between", &between<Id>, nb::arg("offsets").noconvert(), nb::arg("ids").noconvert(),
          nb::arg("numbers").noconvert().none(), nb::arg("rows").noconvert(),
          nb::arg("columns").noconvert());
    m.def("rows_and_sources", &with_sources<Id>, nb::arg("offsets").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("rows").noconvert());
    m.def("take_rows", &taken_rows<Id>, nb::arg("offsets").noconvert(), nb::arg("ids").noconvert(),
          nb::arg("weights").noconvert().none(), nb::arg("rows").noconvert(),
          nb::arg("taken").noconvert());
}

}  // namespace

void bind_sampling(nb::module_& m) {
    bind_for<std::int32_t>(m);
    bind_for<std::int64_t>(m);
    m.def("sort_edges", &sort, nb::arg("rows").noconvert(), nb::arg("columns").noconvert(),
          nb::arg("offsets").noconvert(), nb::arg("ids").noconvert(),
          nb::arg("numbers").noconvert());
    m.def("locality_order", &order, nb::arg("offsets").noconvert(), nb::arg("ids").noconvert());
}

}  // namespace bignn
