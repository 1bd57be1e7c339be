"""What packed models predict: any nodes, outputs and backends, whole or in blocks."""

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from conftest import make_graph
from packed_models import NODES, OUTPUTS, as_floats, for_each_case, packed_case

from bignn import Graph, PackedGraph, PackedModel, kernels, pack_graph
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.runtime import executor, neighbourhood
from bignn.runtime.backends.bound_layers import run_once
from bignn.runtime.operations import checked
from bignn.runtime.values import Bits


@for_each_case
def test_logits_are_those_of_the_formula_in_floats(case: str) -> None:
    model, graph = packed_case(case)
    steps = checked(model.operations, model.arrays, 300)
    start = next(number for number, step in enumerate(steps) if step.op == "binarize") + 1
    assert isinstance(graph.features, DenseBits | SparseBits)
    assert graph.beta is not None
    dense = graph.features if isinstance(graph.features, DenseBits) else graph.features.dense()
    expected = executor.run(
        steps[start:],
        {steps[start - 1].out: Bits(dense.words, graph.beta, 300)},
        None,
        lambda aggr, taken, made: graph.edges(aggr),
        run_once("reference"),
        "reference",
    )
    logits = model.predict(graph, output="logits")
    assert logits.dtype == np.float32
    assert logits.shape == (NODES, 5)
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()


@for_each_case
def test_outputs_fit_each_other(case: str) -> None:
    model, graph = packed_case(case)
    logits = model.predict(graph, output="logits")
    classes = model.predict(graph)
    assert classes.dtype == np.int64
    assert np.array_equal(classes, logits.argmax(axis=1))
    assert len(np.unique(logits, axis=0)) > 20
    assert isinstance(graph.features, SparseBits) or len(np.unique(classes)) > 2
    probabilities = model.predict(graph, output="probabilities")
    assert probabilities.dtype == np.float32
    assert (probabilities >= 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    exact = np.exp(logits.astype(np.float64))
    np.testing.assert_allclose(
        probabilities, exact / exact.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7
    )


def test_probabilities_of_large_logits_do_not_overflow(binary: PackedModel) -> None:
    arrays = dict(binary.arrays)
    arrays["layers.1.bias"] = np.array([3e4, -3e4, 0, 3e4, 1], dtype=np.float32)
    arrays["layers.1.alpha"] = np.zeros(5, dtype=np.float32)
    large = PackedModel(binary.operations, arrays, 300)
    graph = pack_graph(make_graph(3, 300), like=large)
    probabilities = large.predict(graph, output="probabilities")
    assert np.array_equal(probabilities, [[0.5, 0, 0, 0.5, 0]] * 3)


@pytest.fixture(params=["part", "either"])
def some_nodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are mostly predicted whole; as a part, whatever that costs."""
    if request.param == "part":
        monkeypatch.setattr(neighbourhood.Surroundings, "_check", lambda *_: None)


def test_as_few_nodes_as_possible_are_computed(binary: PackedModel) -> None:
    graph = pack_graph(make_graph(5000, 300, like_words=True), like=binary)
    few = neighbourhood.find_surroundings(graph, binary.network, np.array([3, 4000]), 1e-2)
    assert few is not None
    assert 2 <= len(few.layers[0]) <= len(few.first) < 2500
    # Operations in NumPy have no plan, and take longer than cutting a part out.
    floats = as_floats(binary).network
    assert neighbourhood.find_surroundings(graph, floats, np.array([3]), 0.0) is not None
    most = np.arange(4000)
    assert neighbourhood.find_surroundings(graph, binary.network, most, 1e-2) is None
    # Where all nodes take long, even most of them are a part; of many rows some are tried first.
    large = pack_graph(make_graph(20000, 300, like_words=True), like=binary)
    many = np.arange(0, 20000, 4)
    around = neighbourhood.find_surroundings(large, binary.network, many, 10.0)
    assert around is not None
    assert set(many) < set(around.layers[0])
    assert len(around.first) < 20000
    assert neighbourhood.find_surroundings(large, binary.network, many, 5e-4) is None


@pytest.mark.usefixtures("some_nodes")
@for_each_case
def test_some_nodes_are_predicted_as_among_all(case: str) -> None:
    model, graph = packed_case(case)
    rng = np.random.default_rng(0)
    isolated = int(np.flatnonzero(np.diff(graph.offsets) == 1)[0])
    cases: list[Any] = [
        [0],
        [NODES - 1],
        [isolated],
        [5, 3, 5, 5, 59, 0, 3],
        list(range(NODES)),
        range(NODES - 1, -1, -1),
        np.array([7, 7], dtype=np.int32),
        np.array([200 % NODES, 3], dtype=np.uint8),
        np.array([4, 9, 13], dtype=np.int64)[::2],
        (1, 2, 3),
        *[rng.integers(0, NODES, size) for size in (1, 2, 10, 100)],
    ]
    for output in OUTPUTS:
        everything = model.predict(graph, output=output)
        # Floats are added in another order where other nodes are neighbours; bits never.
        exact = model.network.is_binary or output == "classes"
        for nodes in cases:
            got = model.predict(graph, nodes, output=output)
            expected = everything[np.asarray(nodes)]
            assert got.dtype == expected.dtype
            assert got.shape == expected.shape
            if exact:
                assert got.tobytes() == expected.tobytes(), (output, nodes)
            else:
                np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    classes = model.predict(graph)
    for node in (0, 17, np.int32(17), np.int64(59)):  # a number is a list of one
        one = model.predict(graph, node)
        assert one.shape == (1,)
        assert one[0] == classes[node]


@for_each_case
def test_no_nodes_give_empty_results(case: str) -> None:
    model, graph = packed_case(case)
    outputs: tuple[Any, ...] = ("logits", "probabilities")
    nothing: list[Any] = [[], np.array([], dtype=np.int64), np.array([], dtype=np.int32)]
    for nodes in nothing:
        assert model.predict(graph, nodes).shape == (0,)
        assert model.predict(graph, nodes).dtype == np.int64
        for output in outputs:
            got = model.predict(graph, nodes, output=output)
            assert got.shape == (0, 5)
            assert got.dtype == np.float32


@pytest.mark.usefixtures("some_nodes")
def test_some_nodes_by_every_plan_and_backend(
    binary: PackedModel, binary_graph: PackedGraph
) -> None:
    everything = binary.predict(binary_graph, output="logits", backend="reference")
    nodes = [3, 58, 3, 0, 20]
    for backend in kernels.available_backends():
        for plan in map("".join, product("STG", "TG")):
            for some, expected in ((None, everything), (nodes, everything[nodes])):
                got = binary.predict(
                    binary_graph, some, output="logits", plan=plan, backend=backend
                )
                assert got.tobytes() == expected.tobytes(), (plan, backend, some)


def test_a_stream_gives_what_predict_gives(binary: PackedModel, binary_graph: PackedGraph) -> None:
    cases = product(OUTPUTS, [1, 7, NODES, 1000], kernels.available_backends())
    for output, block, backend in cases:
        expected = binary.predict(binary_graph, output=output)
        blocks = list(binary.stream(binary_graph, output=output, block=block, backend=backend))
        places = [place for place, _ in blocks]
        assert places[0].start == 0
        assert places[-1].stop == NODES
        assert all(a.stop == b.start for a, b in pairwise(places))
        assert all(place.stop - place.start == len(some) <= block for place, some in blocks)
        got = np.concatenate([some for _, some in blocks])
        assert got.dtype == expected.dtype
        assert got.tobytes() == expected.tobytes(), (output, block, backend)


@for_each_case
def test_streams_of_other_models(case: str) -> None:
    model, graph = packed_case(case)
    expected = model.predict(graph, output="logits")
    plans = ["T", "G", None] if model.network.is_binary else [None]
    for plan in plans:
        blocks = [some for _, some in model.stream(graph, output="logits", block=7, plan=plan)]
        assert np.concatenate(blocks).tobytes() == expected.tobytes()
        for place, some in model.stream(graph, block=13, plan=plan):
            assert np.array_equal(some, expected[place].argmax(axis=1))


def test_results_belong_to_the_caller(binary: PackedModel, binary_graph: PackedGraph) -> None:
    for output in OUTPUTS:
        first = binary.predict(binary_graph, output=output)
        kept = first.copy()
        second = binary.predict(binary_graph, output=output)
        second[:] = 7
        assert np.array_equal(first, kept), output
        assert np.array_equal(binary.predict(binary_graph, output=output), kept), output


def test_one_model_serves_several_graphs_in_turn(binary: PackedModel) -> None:
    graphs = [
        pack_graph(make_graph(nodes, 300, seed=nodes), like=binary) for nodes in (1, 5, 60, 200)
    ]
    expected = [binary.predict(some, output="logits", backend="reference") for some in graphs]
    for _ in range(2):
        for some, wanted in zip(graphs, expected, strict=True):
            assert binary.predict(some, output="logits").tobytes() == wanted.tobytes()


def test_graphs_that_are_gone_leave_nothing_behind(binary: PackedModel) -> None:
    before = len(binary._runner.cpu._idle)
    graph = pack_graph(make_graph(9, 300), like=binary)
    binary.predict(graph)
    assert len(binary._runner.cpu._idle) == before + 1
    del graph
    assert len(binary._runner.cpu._idle) == before


def test_its_text_shows_widths_and_bytes(binary: PackedModel) -> None:
    assert repr(binary).startswith("PackedModel(300 -> 20 -> 5, binary, ")
    # Words and α of each output, biases.
    weights, biases = 20 * 5 * 8 + 20 * 4 + 5 * 8 + 5 * 4, (20 + 5) * 4
    assert f" {weights + biases:,} bytes of weights)" in repr(binary)
    assert "with floats" in repr(as_floats(binary))
    assert binary.sizes == (weights, biases, 2 * 4 * 300)
    assert binary.nbytes == weights + biases + 2 * 4 * 300
    assert (binary.num_hops, binary.num_classes, binary.num_features) == (2, 5, 300)


def test_a_graph_of_one_node(binary: PackedModel) -> None:
    x = np.ones((1, 300), dtype=np.float32)
    graph = pack_graph(Graph(x, np.empty((2, 0), dtype=np.int64)), like=binary)
    expected = binary.predict(graph, output="logits", backend="reference")
    for backend in kernels.available_backends():
        got = binary.predict(graph, output="logits", backend=backend)
        assert got.tobytes() == expected.tobytes()
        assert binary.predict(graph, 0, output="logits", backend=backend).tobytes() == got.tobytes()
