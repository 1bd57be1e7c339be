"""Graphs packed in another order: results are by the given numbers, the same to the last bit."""

import copy
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from packed_family import make_chain, make_floats, make_gin, make_jumping
from packed_files import changed_file, graphs, refused, version_1

from bignn import Graph, InputError, PackedGraph, PackedModel, kernels, pack_graph
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.runtime.node_order import renumbered

BINARY = {
    "gcn": make_chain(["gcn", "gcn", "gcn"]),
    "sage": make_chain(["sage", "sage"]),
    "gat": make_chain(["gat", "gat"]),
    "mixed": make_chain(["mean-gcn", "gat", "sage"]),
    "one layer": make_chain(["sage"]),
    "binary head": make_jumping("sage", binary_head=True),
}


def weighted(graph: Graph, seed: int = 0) -> Graph:
    rng = np.random.default_rng(seed)
    return replace(graph, edge_weight=rng.random(graph.num_edges).astype(np.float32))


def some_graphs() -> dict[str, Graph]:
    """Graphs of 70 features: skewed, weighted, with isolated nodes, without edges, of one node."""
    x = make_graph(1, 70).x
    nothing = np.zeros((2, 0), dtype=np.int64)
    return {
        "directed": make_graph(80, 70),
        "weighted": weighted(make_graph(80, 70, 1)),
        "weighted large": weighted(make_graph(700, 70, 2)),
        "no edges": replace(make_graph(9, 70), edge_index=nothing),
        "one node": Graph(x, nothing),
        "a loop": Graph(x, np.zeros((2, 1), dtype=np.int64)),
    }


def pair(graph: Graph, model: PackedModel) -> tuple[PackedGraph, PackedGraph]:
    plain, ordered = (pack_graph(graph, like=model, order=order) for order in (None, "locality"))
    assert plain.node_ids is None
    assert ordered.node_ids is not None
    return plain, ordered


@pytest.mark.parametrize("name", list(BINARY))
def test_results_are_the_same_to_the_last_bit(name: str) -> None:
    model = BINARY[name]
    for kind, graph in some_graphs().items():
        plain, ordered = pair(graph, model)
        if graph.num_nodes > 9:
            assert not np.array_equal(ordered.node_ids, np.arange(graph.num_nodes))  # type: ignore[arg-type]
        expected = model.predict(plain, output="logits")
        nodes = np.random.default_rng(0).integers(0, graph.num_nodes, 6)
        for backend in kernels.available_backends():
            options: dict[str, Any] = {"output": "logits", "backend": backend}
            got = model.predict(ordered, **options)
            assert got.tobytes() == expected.tobytes(), (kind, backend)
            some = model.predict(ordered, nodes, **options)
            assert some.tobytes() == expected[nodes].tobytes(), (kind, backend)
            for rows, values in model.stream(ordered, block=32, **options):
                assert values.tobytes() == expected[rows].tobytes(), (kind, backend)
        for output in ("classes", "probabilities"):
            wanted = model.predict(plain, output=output)
            assert np.array_equal(model.predict(ordered, output=output), wanted)
            blocks = [some for _, some in model.stream(ordered, output=output, block=50)]
            assert np.array_equal(np.concatenate(blocks), wanted)
        for plan in "TG":
            forced = model.predict(ordered, output="logits", plan=plan)
            assert forced.tobytes() == expected.tobytes()
        assert len(model.explain(ordered).layers) == len(model.network.layers)


@pytest.mark.parametrize("model", [make_gin(), make_floats("sage"), make_floats("gat")])
def test_sums_of_floats_differ_by_rounding_alone(model: PackedModel) -> None:
    plain, ordered = pair(weighted(make_graph(80, 70)), model)
    expected = model.predict(plain, output="logits")
    got = model.predict(ordered, output="logits")
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    some = model.predict(ordered, [7, 3, 7], output="logits")
    np.testing.assert_allclose(some, expected[[7, 3, 7]], rtol=1e-4, atol=1e-5)
    blocks = [values for _, values in model.stream(ordered, output="logits", block=9)]
    np.testing.assert_allclose(np.concatenate(blocks), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("like_words", [False, True])
def test_rows_move_with_all_they_have(like_words: bool) -> None:
    model = make_packed_model([300, 16, 3])
    plain, ordered = pair(weighted(make_graph(60, 300, like_words=like_words)), model)
    assert ordered.node_ids is not None
    assert ordered.node_ids.dtype == np.int32
    assert isinstance(ordered.features, SparseBits if like_words else DenseBits)
    assert not isinstance(plain.features, np.ndarray)
    words, moved = (
        some.dense().words if isinstance(some, SparseBits) else some.words
        for some in (plain.features, ordered.features)
    )
    assert np.array_equal(moved, words[ordered.node_ids])
    assert np.array_equal(ordered.degree_scale, plain.degree_scale[ordered.node_ids])
    for row, node in enumerate(ordered.node_ids.tolist()):
        here, there = (
            slice(some.offsets[at], some.offsets[at + 1])
            for some, at in ((ordered, row), (plain, node))
        )
        assert (np.diff(ordered.ids[here]) >= 0).all()
        assert plain.weights is not None
        assert ordered.weights is not None
        entries = sorted(
            zip(ordered.node_ids[ordered.ids[here]], ordered.weights[here], strict=True)
        )
        assert entries == sorted(zip(plain.ids[there], plain.weights[there], strict=True))
    assert np.array_equal(ordered.places[ordered.node_ids], np.arange(60))  # type: ignore[index]
    for array in (ordered.node_ids, ordered.places):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1  # type: ignore[index]
    assert "in an order of its own" in repr(ordered)


def test_rows_can_move_twice() -> None:
    model = make_packed_model([300, 16, 3])
    plain, ordered = pair(make_graph(60, 300), model)
    again = renumbered(ordered, np.random.default_rng(0).permutation(60))
    expected = model.predict(plain, output="logits")
    assert model.predict(again, output="logits").tobytes() == expected.tobytes()


def test_labels_are_by_the_given_numbers(graph: Graph) -> None:
    plain, ordered = pair(graph, make_packed_model([20, 3]))
    assert plain.labels.keys() == ordered.labels.keys() == {"y", "train_idx", "val_idx", "test_idx"}
    for key, values in plain.labels.items():
        assert np.array_equal(ordered.labels[key], values)


def test_files_pickles_and_copies_keep_the_order(tmp_path: Path) -> None:
    model = BINARY["gat"]
    plain, ordered = pair(weighted(make_graph(80, 70)), model)
    expected = model.predict(plain, output="logits")
    path = tmp_path / "graph.bigraph"
    ordered.save(path)
    copies = pickle.loads(pickle.dumps(ordered)), copy.deepcopy(ordered)
    for some in (PackedGraph.open(path), *copies):
        assert some.node_ids is not None
        assert ordered.node_ids is not None
        assert np.array_equal(some.node_ids, ordered.node_ids)
        assert model.predict(some, output="logits").tobytes() == expected.tobytes()
    plain.save(path)
    opened = PackedGraph.open(path)
    assert opened.node_ids is None
    assert b"node_ids" not in path.read_bytes()  # readers of before open it
    # Files of version 1 have no order, and an order that is none is refused.
    path.write_bytes(version_1(ordered, tmp_path))
    refused(path, "unknown part 'node_ids'")

    def twice(_: Any, arrays: dict[str, Any]) -> None:
        arrays["node_ids"][3] = arrays["node_ids"][4]

    refused(changed_file(ordered, path, twice), "'node_ids' does not have every node once")
    assert graphs()["in locality order"].node_ids is not None  # damaged in test_damage.py


@pytest.mark.parametrize("order", ["degree", 3, np.arange(9)])
def test_an_order_that_is_not_known_is_refused(order: Any) -> None:
    match = rf"^'order' must be None or one of \['locality'\], got {re.escape(repr(order))}"
    with pytest.raises(InputError, match=match):
        pack_graph(make_graph(9, 70), like=BINARY["gcn"], order=order)
