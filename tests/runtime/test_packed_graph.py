"""Packed graphs: GCN's neighbours, arrays that fit and are read-only, files that give all back."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model

import bignn
from bignn import FileError, Graph, InputError, PackedGraph, PackedModel, pack_graph
from bignn.kernels import compressed_rows
from bignn.kernels.compressed_rows import order_of_entries
from bignn.kernels.layer import DenseBits, SparseBits

FORMS = ["dense bits", "sparse bits", "floats"]


@pytest.fixture(scope="module")
def model() -> PackedModel:
    return make_packed_model([300, 16, 3])


@pytest.fixture(scope="module")
def float_model() -> PackedModel:
    """The same layers on floats: ReLU in place of signs, no statistics."""
    rng = np.random.default_rng(0)
    arrays = {
        "a.weight": rng.standard_normal((16, 300)).astype(np.float32),
        "b.weight": rng.standard_normal((3, 16)).astype(np.float32),
    }
    steps: list[dict[str, Any]] = [
        {"op": "linear", "weight": "a.weight"},
        {"op": "aggregate", "aggr": "gcn", "edge_bits": 17},
        {"op": "relu"},
        {"op": "linear", "weight": "b.weight"},
        {"op": "aggregate", "aggr": "gcn", "edge_bits": 17},
    ]
    for number, step in enumerate(steps):
        step |= {"in": [f"v{number - 1}" if number else "x"], "out": f"v{number}"}
    return PackedModel(steps, arrays, 300)


def packed(form: str, model: PackedModel, float_model: PackedModel) -> PackedGraph:
    graph = make_graph(50, 300, like_words=form == "sparse bits")
    some = pack_graph(graph, like=float_model if form == "floats" else model)
    kind = {"dense bits": DenseBits, "sparse bits": SparseBits, "floats": np.ndarray}[form]
    assert isinstance(some.features, kind)
    return some


def words_of(graph: PackedGraph) -> Any:
    assert not isinstance(graph.features, np.ndarray)
    some = graph.features
    return some.dense().words if isinstance(some, SparseBits) else some.words


@pytest.mark.parametrize("weighted", [False, True])
def test_neighbours_are_those_of_gcn(model: PackedModel, weighted: bool) -> None:
    """A dense matrix gives the same A + I; of a node's self-loops the last counts in I's place."""
    rng = np.random.default_rng(1)
    edges = rng.integers(0, 12, (2, 40))
    edges = np.concatenate([edges, edges[:, :9], [[2, 2], [2, 2]]], axis=1)
    weight = rng.random((len(edges.T),), dtype=np.float32) if weighted else None
    if weight is not None:
        weight[-2:] = [5, 0.25]
    x = np.ones((15, 300), dtype=np.float32)
    graph = pack_graph(Graph(x, edges, weight), like=model)
    expected = np.zeros((15, 15))
    loops = np.ones(15)
    for number, (source, target) in enumerate(edges.T):
        value = 1.0 if weight is None else float(weight[number])
        if source == target:
            loops[source] = value
        else:
            expected[target, source] += value
    expected += np.diag(loops)
    got = np.zeros((15, 15))
    for i in range(15):
        entries = slice(graph.offsets[i], graph.offsets[i + 1])
        assert (np.diff(graph.ids[entries]) >= 0).all()
        values = (
            np.ones(len(graph.ids[entries])) if graph.weights is None else graph.weights[entries]
        )
        np.add.at(got[i], graph.ids[entries], values)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    np.testing.assert_allclose(graph.degree_scale, expected.sum(axis=1) ** -0.5, rtol=1e-6)
    assert (graph.weights is None) == (not weighted)
    assert graph.num_entries == len(graph.ids)
    assert graph.ids.dtype == np.int32


def test_a_node_of_no_weight_has_degree_scale_0(model: PackedModel) -> None:
    x = np.ones((3, 300), dtype=np.float32)
    edges = np.array([[0, 1, 2], [0, 1, 1]])
    graph = pack_graph(Graph(x, edges, np.array([0, 0, 0], dtype=np.float32)), like=model)
    assert graph.degree_scale.tolist() == [0, 0, 1]
    logits = model.predict(graph, output="logits")
    assert np.array_equal(logits[0], model.arrays["layers.1.bias"])


def test_weights_that_are_all_1_are_left_out(model: PackedModel) -> None:
    graph = make_graph(50, 300)
    ones = np.ones(graph.num_edges, dtype=np.float32)
    a, b = (pack_graph(some, like=model) for some in (graph, replace(graph, edge_weight=ones)))
    assert b.weights is None
    assert np.array_equal(a.ids, b.ids)
    assert np.array_equal(a.degree_scale, b.degree_scale)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_gives_everything_back(
    form: str, model: PackedModel, float_model: PackedModel, tmp_path: Path
) -> None:
    some = packed(form, model, float_model)
    labels = {"y": np.arange(50) % 3, "train_idx": np.array([4, 2]), "test_idx": np.array([7])}
    weights = np.random.default_rng(0).random(some.num_entries).astype(np.float32)
    some = replace(some, labels=labels, weights=weights)
    some.save(tmp_path / "graph.bigraph")
    opened = bignn.open(tmp_path / "graph.bigraph")
    assert isinstance(opened, PackedGraph)
    assert type(opened.features) is type(some.features) or form == "floats"
    if form == "floats":
        assert np.array_equal(np.asarray(opened.features), np.asarray(some.features))
    else:
        assert np.array_equal(words_of(opened), words_of(some))
        assert np.array_equal(opened.beta, some.beta)  # type: ignore[arg-type]
    for key in ("offsets", "ids", "weights", "degree_scale"):
        got, wanted = getattr(opened, key), getattr(some, key)
        assert got.dtype == wanted.dtype
        assert np.array_equal(got, wanted)
    assert opened.input_digest == some.input_digest
    assert opened.num_features == 300
    assert opened.labels.keys() == labels.keys()
    assert all(np.array_equal(opened.labels[key], values) for key, values in labels.items())
    assert opened.feature_bytes == some.feature_bytes
    predictor = float_model if form == "floats" else model
    expected = predictor.predict(some, output="logits")
    assert np.array_equal(predictor.predict(opened, output="logits"), expected)
    nodes = [3, 49, 3]
    some_logits = predictor.predict(opened, nodes, output="logits")
    if form == "floats":  # a product of fewer rows may add up in another order
        assert np.allclose(some_logits, expected[nodes], rtol=1e-5)
    else:
        assert np.array_equal(some_logits, expected[nodes])


def test_a_file_may_have_long_ids(model: PackedModel, tmp_path: Path) -> None:
    some = pack_graph(make_graph(50, 300), like=model)
    expected = model.predict(some, output="logits")
    replace(some, ids=some.ids.astype(np.int64)).save(tmp_path / "graph.bigraph")
    opened = PackedGraph.open(tmp_path / "graph.bigraph")
    assert opened.ids.dtype == np.int64
    assert np.array_equal(model.predict(opened, output="logits"), expected)
    assert np.array_equal(model.predict(opened, [5], output="logits"), expected[[5]])


def test_labels_travel_with_the_graph(graph: Graph) -> None:
    some = pack_graph(graph, like=make_packed_model([20, 3]))
    assert set(some.labels) == {"y", "train_idx", "val_idx", "test_idx"}
    assert np.array_equal(some.labels["y"], graph.y)  # type: ignore[arg-type]
    assert some.name == "toy"


def test_its_text_shows_form_and_sizes(model: PackedModel, float_model: PackedModel) -> None:
    for form, word in (("dense bits", "DenseBits"), ("sparse bits", "SparseBits"), ("floats", "x")):
        some = packed(form, model, float_model)
        text = repr(some)
        assert f"nodes=50, entries={some.num_entries}, features=300 ({word}, " in text
    dense = packed("dense bits", model, float_model)
    assert dense.feature_bytes == 50 * (5 * 8 + 4)
    assert packed("floats", model, float_model).feature_bytes == 50 * 300 * 4


def test_a_graph_whose_arrays_do_not_fit_cannot_be_made(
    model: PackedModel, float_model: PackedModel
) -> None:
    """Not only files are checked: native code relies on the arrays."""
    dense = packed("dense bits", model, float_model)
    sparse = packed("sparse bits", model, float_model)
    assert isinstance(dense.features, DenseBits)
    assert isinstance(sparse.features, SparseBits)
    twice, past, unsorted = (sparse.features.inputs.copy() for _ in range(3))
    row = int(np.flatnonzero(np.diff(sparse.features.offsets) > 1)[0])
    first = int(sparse.features.offsets[row])
    twice[first + 1] = twice[first]
    unsorted[first : first + 2] = unsorted[first : first + 2][::-1]
    past[-1] = 300
    changes: list[tuple[PackedGraph, dict[str, Any], str]] = [
        (
            dense,
            {"degree_scale": dense.degree_scale.astype(np.float64)},
            "'degree_scale' must be float32",
        ),
        (dense, {"degree_scale": dense.degree_scale[:-1]}, "'offsets' must be int64"),
        (dense, {"ids": dense.ids + 50}, "'ids' has numbers that are not in"),
        (dense, {"degree_scale": np.full_like(dense.degree_scale, np.nan)}, "not finite"),
        (dense, {"ids": dense.ids[:-1]}, "'offsets' does not rise"),
        (dense, {"ids": dense.ids.astype(np.float32)}, "'ids' must be int32"),
        (dense, {"offsets": dense.offsets[:-1]}, "'offsets' must be int64"),
        (dense, {"weights": np.ones(3, dtype=np.float32)}, "'weights' must be float32"),
        (dense, {"labels": {"y": np.zeros(3, dtype=np.int64)}}, "'labels.y' has 3 values"),
        (dense, {"offsets": dense.offsets[::-1]}, "'offsets' does not rise"),
        (dense, {"beta": None}, "'beta' is missing"),
        (dense, {"beta": -dense.beta}, "'beta' has negative values"),  # type: ignore[operator]
        (dense, {"num_features": 200}, "'features.words' must be uint64"),
        (dense, {"num_features": 0}, "number of features is out of range"),
        (dense, {"num_features": 400}, "'features.words' must be uint64"),
        (dense, {"features": DenseBits(dense.features.words[:-1])}, "'features.words' must be"),
        (dense, {"features": DenseBits(dense.features.words[:, :4])}, "'features.words' must be"),
        (dense, {"features": DenseBits(~dense.features.words)}, "padding bits"),
        (dense, {"node_ids": np.arange(49, dtype=np.int32)}, "'node_ids' must be int32"),
        (dense, {"node_ids": np.arange(50, dtype=np.uint32)}, "'node_ids' must be int32"),
        (dense, {"node_ids": np.arange(1, 51)}, "'node_ids' has numbers that are not nodes"),
        (dense, {"node_ids": np.arange(-1, 49)}, "'node_ids' has numbers that are not nodes"),
        (dense, {"node_ids": np.arange(50) // 2}, "'node_ids' does not have every node once"),
        (sparse, {"features": replace(sparse.features, inputs=past)}, "not in 0..299"),
        (sparse, {"features": replace(sparse.features, inputs=twice)}, "does not rise within"),
        (sparse, {"features": replace(sparse.features, inputs=unsorted)}, "does not rise within"),
    ]
    for graph, change, match in changes:
        with pytest.raises(InputError, match=match) as error:
            replace(graph, **change)
        assert "\n" not in str(error.value)
    # So many features fit the arrays, but not the model.
    for other in (replace(dense, num_features=320), replace(sparse, num_features=301)):
        match = r"^'graph' must be one with 300 features as bits, got 3.. as bits$"
        with pytest.raises(InputError, match=match):
            model.predict(other)
        with pytest.raises(InputError, match=match):
            model.predict(other, [0], plan="T")
    x = np.zeros((50, 300), dtype=np.float32)
    with pytest.raises(InputError, match=r"as bits, got 300 as floats$"):
        model.predict(replace(dense, features=x, beta=None))
    bits_of = replace(dense, input_digest=float_model.input_digest)
    with pytest.raises(InputError, match=r"as floats, got 300 as bits$"):
        float_model.predict(bits_of)


def test_arrays_are_read_only(model: PackedModel, float_model: PackedModel) -> None:
    """They were checked once; an id written later would be read past the end of a table."""
    for form in FORMS:
        given = np.arange(50) % 3
        weights = np.ones(packed(form, model, float_model).num_entries, dtype=np.float32)
        some = replace(packed(form, model, float_model), labels={"y": given}, weights=weights)
        arrays = {
            key: getattr(some, key) for key in ("offsets", "ids", "degree_scale", "weights", "beta")
        } | {"labels": some.labels["y"]}
        if isinstance(some.features, np.ndarray):
            arrays["features"] = some.features
        else:
            arrays |= vars(some.features)
        for key, values in arrays.items():
            if values is None:
                assert (key, form) == ("beta", "floats")
                continue
            with pytest.raises(ValueError, match="read-only"):
                values.flat[5 % values.size] = 1
            with pytest.raises(ValueError, match="read-only"):
                values[...] = 2
    with pytest.raises(ValueError, match="read-only"):
        pack_graph(make_graph(50, 300), like=model).ids[5] = 2**30


def test_no_other_name_of_an_array_writes_to_a_graph(model: PackedModel) -> None:
    some = pack_graph(make_graph(50, 300), like=model)
    plain = replace(some, adjacency="plain")
    made = [plain.edges("gcn").ids, plain.edges("mean").target_factor, plain.edges("gcn").offsets]
    for array in (some.ids, some.offsets, some.beta, some.degree_scale, *made):
        assert array is not None
        while isinstance(array, np.ndarray):
            assert not array.flags.writeable
            array = array.base
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        some.ids.flags.writeable = True
    # Arrays of the caller's are copied, also where a view of them is read-only.
    given = some.ids.copy()
    view = given.view()
    view.flags.writeable = False
    of_view = replace(some, ids=view)
    given[:] = 2**30
    assert np.array_equal(of_view.ids, some.ids)
    for form in ("dense bits", "sparse bits"):
        bits = packed(form, model, model).features
        own = {name: values.copy() for name, values in vars(bits).items()}
        of_own = replace(packed(form, model, model), features=type(bits)(**own))
        for name, values in own.items():
            values[...] = 2**30
            assert np.array_equal(getattr(of_own.features, name), getattr(bits, name)), name
    apart = replace(some, ids=np.repeat(some.ids, 2)[::2])
    assert apart.ids.flags.c_contiguous
    assert np.array_equal(model.predict(apart), model.predict(some))


def test_edges_are_sorted_once(model: PackedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = make_graph(50, 300)
    sorted_entries: list[int] = []

    def counted(rows: Any, columns: Any, shape: tuple[int, int]) -> Any:
        sorted_entries.append(len(rows))
        return order_of_entries(rows, columns, shape)

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("edges are sorted by order_of_entries alone")

    monkeypatch.setattr(compressed_rows, "order_of_entries", counted)
    for name in ("sort", "argsort", "lexsort"):
        monkeypatch.setattr(np, name, never)
    some = pack_graph(graph, like=model)
    model.predict(some)
    assert sorted_entries == [some.num_entries]


def test_pickles_and_copies_are_the_same_graph(
    model: PackedModel, float_model: PackedModel
) -> None:
    for form in FORMS:
        some = packed(form, model, float_model)
        predictor = float_model if form == "floats" else model
        expected = predictor.predict(some, output="logits")  # also caches its edges
        for again in (pickle.loads(pickle.dumps(some)), copy.deepcopy(some), copy.copy(some)):
            assert again is not some
            assert (again.name, again.adjacency) == (some.name, some.adjacency)
            assert not again.ids.flags.writeable
            assert np.array_equal(predictor.predict(again, output="logits"), expected), form
    # A pickle of arrays that do not fit is refused as a file of them is.
    arguments = list(some.__reduce__()[1])
    arguments[4] = arguments[4] + 50
    with pytest.raises(FileError, match="'ids' has numbers that are not in"):
        PackedGraph(*arguments)


def test_a_graphs_file_is_named_so(model: PackedModel, tmp_path: Path) -> None:
    some = pack_graph(make_graph(50, 300), like=model)
    for name in ("graph.bignn", "graph", "bigraph", "graph.bigraph.npz"):
        with pytest.raises(
            InputError, match=r"^'path' must be a file name ending in \.bigraph, got"
        ):
            some.save(tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_bad_arguments_name_themselves(model: PackedModel, graph: Graph) -> None:
    with pytest.raises(
        InputError, match=r"^'graph' must be one with 300 features per node, got 20"
    ):
        pack_graph(graph, like=model)
    some: Any = {"x": 1}
    with pytest.raises(
        InputError,
        match=r"a bignn\.Graph, a PyG Data or Batch, or a list of graphs, got dict; see",
    ):
        pack_graph(some, like=model)
    with pytest.raises(
        InputError, match=r"^'like' must be a packed model, got dict; .*bignn\.pack"
    ):
        pack_graph(graph, like=some)
