"""Packed models: any nodes, outputs, plans and backends, from memory or from a file."""

import copy
import pickle
import pickletools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model

import bignn
from bignn import FileError, Graph, InputError, PackedGraph, PackedModel, kernels, pack_graph
from bignn.kernels import checked_backend
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.runtime import Output, Plan, executor, planner
from bignn.runtime.backends import cpu
from bignn.runtime.operations import checked

NODES = 60
OUTPUTS: tuple[Output, ...] = ("classes", "logits", "probabilities")


def as_floats(model: PackedModel) -> PackedModel:
    """The same model with its last weight as floats, so that nothing of it runs packed."""
    operations = [dict(step) for step in model.operations]
    number = max(n for n, step in enumerate(operations) if step["op"] == "binary_linear")
    name = operations[number].pop("words")
    unused = operations[number].pop("alpha")
    signs = bignn.bits.unpack(model.arrays[name], model.network.layers[-1].num_inputs)
    weight = signs * model.arrays[unused][:, None]
    operations[number] |= {"op": "linear", "weight": name}
    arrays = {key: values for key, values in model.arrays.items() if key != unused}
    arrays[name] = weight.astype(np.float32)
    return PackedModel(operations, arrays, model.num_features)


@pytest.fixture(scope="module", params=["1 dense", "2 sparse", "3 dense", "3 sparse", "floats"])
def case(request: pytest.FixtureRequest) -> str:
    """The number of layers and the form of the features; "floats" is not all bits."""
    return str(request.param)


@pytest.fixture(scope="module")
def model(case: str) -> PackedModel:
    if case == "floats":
        return as_floats(make_packed_model([300, 20, 5]))
    sizes = {"1": [300, 5], "2": [300, 20, 5], "3": [300, 20, 33, 5]}[case[0]]
    return make_packed_model(sizes, batch_norm=True)


@pytest.fixture(scope="module")
def graph(case: str, model: PackedModel) -> PackedGraph:
    is_sparse = case in ("2 sparse", "3 sparse", "floats")
    packed = pack_graph(make_graph(NODES, 300, like_words=is_sparse), like=model)
    assert isinstance(packed.features, SparseBits) == is_sparse
    return packed


@pytest.fixture(scope="module")
def binary() -> PackedModel:
    return make_packed_model([300, 20, 5])


@pytest.fixture(scope="module")
def binary_graph(binary: PackedModel) -> PackedGraph:
    return pack_graph(make_graph(NODES, 300, like_words=True), like=binary)


def refused(call: Callable[[], Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as error:
        call()
    assert "\n" not in str(error.value)


# --- What is predicted -------------------------------------------------------------------------


def test_logits_are_those_of_the_formula_in_floats(model: PackedModel, graph: PackedGraph) -> None:
    steps = checked(model.operations, model.arrays, 300)
    start = next(number for number, step in enumerate(steps) if step.op == "binarize") + 1
    assert isinstance(graph.features, DenseBits | SparseBits)
    assert graph.beta is not None
    dense = graph.features if isinstance(graph.features, DenseBits) else graph.features.dense()
    expected = executor.run(
        steps[start:],
        {steps[start - 1].out: executor.Bits(dense.words, graph.beta, 300)},
        None,
        lambda aggr, taken, made: graph.edges(aggr),
        "reference",
    )
    logits = model.predict(graph, output="logits")
    assert logits.dtype == np.float32
    assert logits.shape == (NODES, 5)
    assert np.abs(logits - expected).max() <= 1e-4 * np.abs(expected).max()


def test_outputs_fit_each_other(model: PackedModel, graph: PackedGraph) -> None:
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


def test_some_nodes_are_predicted_as_among_all(model: PackedModel, graph: PackedGraph) -> None:
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


def test_no_nodes_give_empty_results(model: PackedModel, graph: PackedGraph) -> None:
    outputs: tuple[Any, ...] = ("logits", "probabilities")
    nothing: list[Any] = [[], np.array([], dtype=np.int64), np.array([], dtype=np.int32)]
    for nodes in nothing:
        assert model.predict(graph, nodes).shape == (0,)
        assert model.predict(graph, nodes).dtype == np.int64
        for output in outputs:
            got = model.predict(graph, nodes, output=output)
            assert got.shape == (0, 5)
            assert got.dtype == np.float32


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


def test_streams_of_other_models(model: PackedModel, graph: PackedGraph) -> None:
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
    before = len(binary._cpu._idle)
    graph = pack_graph(make_graph(9, 300), like=binary)
    binary.predict(graph)
    assert len(binary._cpu._idle) == before + 1
    del graph
    assert len(binary._cpu._idle) == before


# --- Files -------------------------------------------------------------------------------------


def test_a_file_gives_the_same_model_back(
    model: PackedModel, graph: PackedGraph, tmp_path: Path
) -> None:
    model.about["trained on"] = "toys"
    path = tmp_path / "model.bignn"
    model.save(path)
    opened = PackedModel.open(path)
    assert opened.operations == model.operations
    assert opened.about == model.about
    assert opened.num_features == model.num_features
    assert opened.input_digest == model.input_digest
    assert opened.nbytes == model.nbytes
    assert opened.arrays.keys() == model.arrays.keys()
    assert all(np.array_equal(opened.arrays[key], model.arrays[key]) for key in model.arrays)
    path.unlink()  # an opened model does not depend on its file
    logits = model.predict(graph, output="logits")
    assert opened.predict(graph, output="logits").tobytes() == logits.tobytes()
    opened.save(str(path))
    again = bignn.open(str(path))
    assert isinstance(again, PackedModel)
    assert again.predict(graph, output="logits").tobytes() == logits.tobytes()


def test_what_is_opened_as_another_kind_is_refused(
    binary: PackedModel, binary_graph: PackedGraph, tmp_path: Path
) -> None:
    model, graph = tmp_path / "model.bignn", tmp_path / "graph.bigraph"
    binary.save(model)
    binary_graph.save(graph)
    assert isinstance(PackedModel.open(model), PackedModel)
    assert isinstance(PackedGraph.open(graph), PackedGraph)
    with pytest.raises(FileError, match="h' holds a packed graph, expected a packed model"):
        PackedModel.open(graph)
    with pytest.raises(FileError, match="n' holds a packed model, expected a packed graph"):
        PackedGraph.open(model)
    with pytest.raises(FileError, match="does not exist"):
        PackedGraph.open(tmp_path / "nothing")


def test_a_deployment_needs_no_torch(
    binary: PackedModel, binary_graph: PackedGraph, tmp_path: Path
) -> None:
    other = as_floats(binary)
    raw = make_graph(NODES, 300, like_words=True)
    np.savez(tmp_path / "raw.npz", x=raw.dense_x(), edge_index=raw.edge_index)
    binary.save(tmp_path / "binary.bignn")
    other.save(tmp_path / "floats.bignn")
    binary_graph.save(tmp_path / "graph.bigraph")
    code = """
import sys
sys.modules.update(torch=None, torch_geometric=None, tqdm=None)
import bignn, numpy as np
graph = bignn.open("graph.bigraph")
raw = bignn.load("raw.npz")
for name in ("binary", "floats"):
    model = bignn.open(f"{name}.bignn")
    assert model.num_classes == 5
    again = bignn.pack_graph(raw, like=model)
    np.save(f"{name}.npy", model.predict(graph, output="logits"))
    np.save(f"{name}-some.npy", model.predict(again, [4, 2], output="logits"))
assert not any(name == "torch" and module for name, module in sys.modules.items())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    expected = binary.predict(binary_graph, output="logits")
    assert np.load(tmp_path / "binary.npy").tobytes() == expected.tobytes()
    assert np.load(tmp_path / "binary-some.npy").tobytes() == expected[[4, 2]].tobytes()
    np.testing.assert_allclose(np.load(tmp_path / "floats.npy"), expected, rtol=1e-3, atol=1e-3)


def test_pickles_and_copies_go_through_the_models_own_bytes(
    model: PackedModel, graph: PackedGraph
) -> None:
    """So that a pickle is checked as a file is, and carries nothing but the model."""
    expected = model.predict(graph, output="logits")
    function, arguments = model.__reduce__()
    assert [type(argument) for argument in arguments] == [bytes]
    content = pickle.dumps(model)
    names = [opcode.name for opcode, *_ in pickletools.genops(content)]
    assert sum("BYTES" in name for name in names) == names.count("REDUCE") == 1
    assert not {"BUILD", "NEWOBJ", "EMPTY_DICT", "EMPTY_LIST"} & set(names)
    for again in (pickle.loads(content), copy.deepcopy(model), copy.copy(model)):
        assert again is not model
        assert (again.operations, again.about) == (model.operations, model.about)
        assert again.predict(graph, output="logits").tobytes() == expected.tobytes()
    for place in range(0, len(arguments[0]), 97):
        damaged = bytearray(arguments[0])
        damaged[place] ^= 4
        with pytest.raises(FileError) as error:
            function(bytes(damaged))
        assert "\n" not in str(error.value)


# --- What is explained -------------------------------------------------------------------------


def test_a_graph_is_planned_once(
    binary: PackedModel, binary_graph: PackedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str | None] = []

    def counted(*arguments: Any, forced: str | None, **options: Any) -> Plan:
        calls.append(forced)
        return planner.plan_layers(*arguments, forced=forced, **options)

    monkeypatch.setattr(cpu, "plan_layers", counted)
    graph = replace(binary_graph)
    for _ in range(2):
        for output in OUTPUTS:
            binary.predict(graph, output=output)
        list(binary.stream(graph))
    assert calls == [None]
    binary.explain(graph)
    assert calls == [None]
    binary.predict(graph, plan="T")
    assert calls == [None, "T"]
    before = bignn.get_num_threads()
    try:  # plans are for a number of threads
        bignn.set_num_threads(before + 1)
        binary.predict(graph)
    finally:
        bignn.set_num_threads(before)
    assert calls == [None, "T", None]
    binary.predict(replace(graph))
    assert len(calls) == 4


def test_the_backend_is_resolved_once(
    binary: PackedModel, binary_graph: PackedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[str | None] = []

    def counted(backend: str | None) -> str:
        resolved.append(backend)
        return checked_backend(backend)

    monkeypatch.setattr(kernels, "checked_backend", counted)
    binary.predict(binary_graph)
    binary.predict(binary_graph, [1, 2], backend="reference")
    list(binary.stream(binary_graph, backend="reference"))
    binary.explain(binary_graph)
    assert resolved == [None, "reference", "reference", None]


def test_explaining_leaves_the_plan_of_predictions_alone(
    binary: PackedModel, binary_graph: PackedGraph
) -> None:
    chosen = kernels.checked_backend(None)
    kept = binary._cpu.plan(binary_graph, None, chosen)
    explained = binary.explain(binary_graph)
    assert explained is not kept
    assert all(layer.measured is not None for layer in explained.layers)
    explained.layers[0].way = "G" if explained.layers[0].way != "G" else "T"
    assert binary._cpu.plan(binary_graph, None, chosen) is kept
    assert all(layer.measured is layer.record_bytes is None for layer in kept.layers)
    assert kept.ways == binary.explain(binary_graph, measure=False).ways


def test_a_plan_is_explained(binary: PackedModel, binary_graph: PackedGraph) -> None:
    plan = binary.explain(binary_graph)
    assert len(plan.layers) == 2
    assert [(layer.num_inputs, layer.num_columns) for layer in plan.layers] == [(300, 20), (20, 5)]
    assert set(plan.layers[0].seconds) == {"T", "G", "S"}
    assert set(plan.layers[1].seconds) == {"T", "G"}
    assert plan.threads == bignn.get_num_threads()
    for layer in plan.layers:
        assert layer.way in layer.seconds
        assert all(seconds > 0 for seconds in layer.seconds.values())
        assert all(touched > 0 for touched in layer.bytes_touched.values())
        assert layer.measured is not None
        assert layer.measured > 0
        # Two where another run of the model has met a value that needs them.
        assert layer.record_bytes in ((None,) if layer.way == "G" else (1, 2))
    header, *rows = str(plan).splitlines()
    assert "measured ms" in header
    assert len(rows) == 2
    assert f"{plan.layers[0].way} (" in rows[0]
    assert "300x20" in rows[0]
    unmeasured = binary.explain(binary_graph, measure=False)
    assert unmeasured.ways == plan.ways
    assert all(layer.measured is None for layer in unmeasured.layers)


def test_forced_plans_are_explained_as_forced(
    binary: PackedModel, binary_graph: PackedGraph
) -> None:
    logits = binary.predict(binary_graph, output="logits")
    for forced in ("TT", "SG", "g,t"):
        plan = binary.explain(binary_graph, plan=forced)
        assert plan.ways == forced.upper().replace(",", "")
        assert all(layer.measured for layer in plan.layers)
        got = binary.predict(binary_graph, output="logits", plan=forced)
        assert got.tobytes() == logits.tobytes()


def test_the_reference_can_be_explained(binary: PackedModel, binary_graph: PackedGraph) -> None:
    assert len(binary.explain(binary_graph, backend="reference").layers) == 2


def test_its_text_shows_widths_and_bytes(binary: PackedModel) -> None:
    assert repr(binary).startswith("PackedModel(300 -> 20 -> 5, binary, ")
    # Words and α of each output, biases.
    weights, biases = 20 * 5 * 8 + 20 * 4 + 5 * 8 + 5 * 4, (20 + 5) * 4
    assert f" {weights + biases:,} bytes of weights)" in repr(binary)
    assert "with floats" in repr(as_floats(binary))
    assert binary.sizes == (weights, biases, 2 * 4 * 300)
    assert binary.nbytes == weights + biases + 2 * 4 * 300
    assert (binary.num_hops, binary.num_classes, binary.num_features) == (2, 5, 300)


# --- Bad arguments -----------------------------------------------------------------------------


def test_nodes_that_are_none_are_refused(model: PackedModel, graph: PackedGraph) -> None:
    mask = np.zeros(NODES, dtype=np.bool_)
    cases: list[tuple[Any, str]] = [
        (-1, r"^'nodes' must be node ids in 0\.\.59, got -1$"),
        ([3, -7, 60], r"^'nodes' must be node ids in 0\.\.59, got -7$"),
        ([3, 60], r"^'nodes' must be node ids in 0\.\.59, got 60$"),
        (np.array([2**63], dtype=np.uint64), r"^'nodes' .* got 9223372036854775808$"),
        (1.0, r"^'nodes' must be a list of node ids, got float64 of shape \[1\]"),
        ([0.5, 2], r"^'nodes' must be a list of node ids, got float64 of shape \[2\]"),
        (mask, r"^'nodes' .* got bool of shape \[60\]; .* np\.flatnonzero\(mask\)$"),
        (True, r"^'nodes' must be a list of node ids, got bool"),
        ([[1, 2]], r"^'nodes' must be a list of node ids, got int64 of shape \[1, 2\]"),
        (["a"], r"^'nodes' must be a list of node ids, got <U1"),
    ]
    for nodes, match in cases:
        refused(lambda nodes=nodes: model.predict(graph, nodes), match)  # type: ignore[misc]


def test_wrong_graphs_are_refused(binary: PackedModel, binary_graph: PackedGraph) -> None:
    something: Any
    for something in ({"x": 1}, None, "cora", np.ones((3, 300)), PackedGraph):
        match = rf"^'graph' must be a .*Graph.*, got {type(something).__name__}; see bignn\.load"
        refused(lambda some=something: binary.predict(some), match)  # type: ignore[misc]
        refused(lambda some=something: binary.explain(some), match)  # type: ignore[misc]
        refused(lambda some=something: binary.stream(some), match)  # type: ignore[misc]
    match = r"^'graph' must be one with 300 features per node, got 20"
    refused(lambda: binary.predict(make_graph(9, 20)), match)
    other = make_packed_model([300, 20, 5], seed=1)
    match = r"^'graph' must be packed with this model's input statistics, got .* like=model\)$"
    refused(lambda: other.predict(binary_graph), match)
    refused(lambda: other.predict(binary_graph, [1]), match)
    refused(lambda: other.explain(binary_graph), match)
    refused(lambda: next(other.stream(binary_graph)), match)
    # Other weights with the same statistics are fine.
    arrays = {
        key: binary.arrays[key] if key.startswith("input.") else values
        for key, values in other.arrays.items()
    }
    assert PackedModel(other.operations, arrays, 300).predict(binary_graph).shape == (NODES,)


def test_names_that_are_not_known_are_refused(
    binary: PackedModel, binary_graph: PackedGraph
) -> None:
    name: Any
    for name in ("class", "", None, 3, ["logits"]):
        match = r"^'output' must be one of \['classes', 'probabilities', 'logits'\], got "
        refused(lambda name=name: binary.predict(binary_graph, output=name), match)  # type: ignore[misc]
        refused(lambda name=name: next(binary.stream(binary_graph, output=name)), match)  # type: ignore[misc]
    for name in ("mmx", "", "AVX2"):
        match = r"^'backend' must be one of \['reference'.*\], got "
        refused(lambda name=name: binary.predict(binary_graph, backend=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.predict(binary_graph, [1], backend=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.explain(binary_graph, backend=name), match)  # type: ignore[misc]
    for name in ("X", "TTT", "TS"):
        match = r"^'plan' must be "
        refused(lambda name=name: binary.predict(binary_graph, plan=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.predict(binary_graph, [1], plan=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.explain(binary_graph, plan=name), match)  # type: ignore[misc]
    for size in (0, -1, 1.5, "7", None):
        match = r"^'block' must be a number of nodes, at least 1, got "
        refused(lambda size=size: next(binary.stream(binary_graph, block=size)), match)  # type: ignore[misc]


def test_float_models_have_no_plans(binary: PackedModel) -> None:
    arrays: dict[str, Any] = {"w": np.ones((4, 300), dtype=np.float32)}
    steps: list[dict[str, Any]] = [
        {"op": "linear", "in": ["x"], "out": "a", "weight": "w"},
        {"op": "aggregate", "in": ["a"], "out": "b", "aggr": "gcn", "edge_bits": 17},
    ]
    other = PackedModel(steps, arrays, 300)
    graph = pack_graph(make_graph(9, 300), like=other)
    match = r"^'plan' must be None for a model that is not all bits, got 'T'$"
    refused(lambda: other.predict(graph, plan="T"), match)
    refused(lambda: other.predict(graph, [1], plan="T"), match)
    refused(lambda: other.explain(graph), "^only a model with binary features and weights has ways")


def test_plans_are_of_the_layers_that_run_packed(binary: PackedModel) -> None:
    half = as_floats(binary)
    graph = pack_graph(make_graph(9, 300), like=half)
    assert len(half.explain(graph).layers) == 1
    expected = half.predict(graph, output="logits", plan="T")
    assert np.array_equal(half.predict(graph, output="logits", plan="G"), expected)
    refused(lambda: half.predict(graph, plan="TT"), "'plan' must be one of T, G, S, or 1 of them")


def test_sparse_plans_of_dense_bits_are_refused(binary: PackedModel) -> None:
    graph = pack_graph(make_graph(9, 300), like=binary)
    refused(lambda: binary.predict(graph, plan="S"), r"^'plan' must be 'T' or 'G' .* dense bits")
    refused(lambda: binary.predict(graph, [1], plan="ST"), r"^'plan' must be 'T' or 'G'")


def test_a_graph_of_one_node(binary: PackedModel) -> None:
    x = np.ones((1, 300), dtype=np.float32)
    graph = pack_graph(Graph(x, np.empty((2, 0), dtype=np.int64)), like=binary)
    expected = binary.predict(graph, output="logits", backend="reference")
    for backend in kernels.available_backends():
        got = binary.predict(graph, output="logits", backend=backend)
        assert got.tobytes() == expected.tobytes()
        assert binary.predict(graph, 0, output="logits", backend=backend).tobytes() == got.tobytes()
