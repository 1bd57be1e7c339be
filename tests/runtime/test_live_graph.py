"""Live graphs from outside: answers, readers beside a writer, and bad input."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import make_graph
from live_graphs import GCN, live_graph, raw_graph, same
from packed_family import SIZES, make_floats, make_gin, make_jumping

from bignn import InputError, pack_graph
from bignn.graph import SparseRows
from bignn.graph.names import Names
from bignn.kernels import native


def test_every_output_is_the_models() -> None:
    graph = raw_graph()
    live = GCN.live(graph)
    nodes = [3, 39, 3, 0]
    for output in ("classes", "probabilities", "labels", "label_probabilities", "logits", "values"):
        for asked in (None, nodes, []):
            np.testing.assert_array_equal(
                live.predict(asked, output=output), GCN.predict(graph, asked, output=output)
            )
    assert "LiveGraph" in repr(live)
    assert live.nbytes > 4 * pack_graph(graph, like=GCN).num_entries


def test_a_removed_node_has_no_answer_and_keeps_its_number() -> None:
    live = live_graph()
    assert live.update(remove_nodes=[7]).tolist().count(7) == 1
    assert live.predict([7, 8])[0] == -1
    assert live.predict([8])[0] >= 0
    assert np.isnan(live.predict([7], output="probabilities")).all()
    assert not live.predict([7], output="labels").any()
    assert live.num_nodes == 40
    assert live.removed.tolist() == [7]
    live.update(add_nodes=np.ones((1, SIZES[0])), add_edges=[[40], [1]])
    assert live.num_nodes == 41
    assert live.predict([40])[0] >= 0


def test_a_change_that_changes_nothing_computes_nothing_further() -> None:
    live = live_graph()
    row = raw_graph().dense_x()[5:6]
    assert live.update(nodes=[5], x=row).size == 0
    assert [work.rows for work in live.work] == [0, 0, 0]
    assert live.update().size == 0
    assert live.update(nodes=[], x=[], add_nodes=[], add_edges=[], remove_edges=[]).size == 0
    # Signs and absolute sum are the row's own, so bits and scale are.
    row = row[:, :].copy()
    first, second = np.flatnonzero(row[0] > 0)[:2]
    row[0, [first, second]] = row[0, [second, first]]
    live.update(nodes=[5], x=row)
    assert live.work[0].rows == 0


def test_rows_in_any_order() -> None:
    """A packed graph that was not made by ``pack_graph`` may have its neighbours in any order."""
    graph = pack_graph(raw_graph(), like=GCN)
    ids = graph.ids.copy()
    for row in range(graph.num_nodes):
        part = slice(*graph.offsets[row : row + 2])
        ids[part] = ids[part][::-1]
    source, target = raw_graph().edge_index[:, :1].T[0]
    one, other = GCN.live(graph), GCN.live(replace(graph, ids=ids))
    for live in (one, other):
        live.update(remove_edges=[[source], [target]])
    assert same(one, other)


def test_features_in_scipy_matrices_are_those_given_dense() -> None:
    dense = np.zeros((2, SIZES[0]), dtype=np.float32)
    dense[0, [1, 4]], dense[1, 2] = 1, 0.5
    one, other = live_graph(), live_graph()
    one.update(nodes=[1, 2], x=dense, add_nodes=dense[:1])
    other.update(nodes=[1, 2], x=sp.coo_matrix(dense), add_nodes=sp.csr_array(dense[:1]))
    assert same(one, other)
    assert other.update(add_nodes=sp.csr_array((0, SIZES[0]))).size == 0
    edges = [[3, 4], [-1, -2]]
    expected = one.predict_new(dense, edges, output="logits")
    found = other.predict_new(sp.csc_array(dense), edges, output="logits")
    np.testing.assert_array_equal(found, expected)
    packed = one.model.predict_new(raw_graph(), sp.csr_matrix(dense), edges)
    np.testing.assert_array_equal(packed, one.model.predict_new(raw_graph(), dense, edges))
    with pytest.raises(InputError, match=rf"'x' must be rows of {SIZES[0]} features, got rows of"):
        other.predict_new(sp.csr_array((1, SIZES[0] + 1)), [[3], [-1]])
    dense[0, 1] = np.nan
    with pytest.raises(InputError, match=r"^'add_nodes' must be finite, got nan at"):
        other.update(add_nodes=sp.csr_array(dense))


def test_features_given_sparse_are_those_given_dense() -> None:
    model = GCN
    one, other = live_graph(model), live_graph(model)
    x = np.zeros((2, SIZES[0]), dtype=np.float32)
    x[0, 3], x[1, 60] = 2.0, -1.0
    sparse = SparseRows(
        np.array([0, 1, 2]), np.array([3, 60]), np.array([2, -1], np.float32), (2, SIZES[0])
    )
    one.update(nodes=[1, 2], x=x)
    other.update(nodes=[1, 2], x=sparse)
    assert same(one, other)


def test_readers_see_whole_states_only() -> None:
    """One thread swaps the features of all nodes; others must see either answer, never a mix."""
    rng = np.random.default_rng(0)
    graph = make_graph(3000, SIZES[0], 1)
    live = GCN.live(graph)
    other_x = rng.standard_normal((3000, SIZES[0])).astype(np.float32)
    states = [live.predict(output="logits")]
    nodes = np.arange(3000)
    live.update(nodes=nodes, x=other_x)
    states.append(live.predict(output="logits"))
    seen: list[Any] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            classes, logits = live.predict(), live.predict(output="logits")
            is_known = any(np.array_equal(logits, state) for state in states)
            seen.append(is_known)
            seen.append(any(np.array_equal(classes, state.argmax(1)) for state in states))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(12):
        live.update(nodes=nodes, x=graph.dense_x() if turn % 2 == 0 else other_x)
    stop.set()
    for reader in readers:
        reader.join()
    assert len(seen) > 2
    assert np.array(seen).all()


def test_updates_by_name_are_those_by_number() -> None:
    """Numbers may stand among names, and new nodes are -1, -2, ... or numbered on."""
    names = Names.of([f"paper_{number}" for number in range(40)])
    one, other = (GCN.live(replace(raw_graph(), node_names=names)) for _ in range(2))
    x = np.random.default_rng(1).standard_normal((4, SIZES[0])).astype(np.float32)
    source, target = (int(end) for end in raw_graph().edge_index[:, 5])
    changed = one.update(
        nodes=[7, 2],
        x=x[:2],
        add_nodes=x[2:],
        remove_edges=[[source], [target]],
        add_edges=[[40, 3, 41, 8], [3, 40, 40, 9]],
        remove_nodes=[30],
    )
    edges: Any = [[-1, "paper_3", 41, 8], ["paper_3", -1, -1, "paper_9"]]
    changed_by_name = other.update(
        nodes=np.array(["paper_7", "paper_2"]),
        x=x[:2],
        add_nodes=x[2:],
        remove_edges=[[names[source]], [names[target]]],
        add_edges=edges,
        remove_nodes="paper_30",
    )
    assert same(one, other)
    assert (changed == changed_by_name).all()
    question = x[:1], [[3, 42], [42, 5]]
    named: Any = x[:1], [["paper_3", -1], [-1, "paper_5"]]
    logits = one.predict_new(*question, output="logits")
    assert np.array_equal(other.predict_new(*named, output="logits"), logits)
    mixed: list[Any] = ["paper_1", 1]
    with pytest.raises(InputError, match="'nodes' must be free of repetitions, got node 1"):
        one.update(nodes=mixed, x=x[:2])
    wrong: list[Any] = [["paper_1"], [1.5]]
    with pytest.raises(InputError, match=r"'add_edges' must be names or node ids, got 1\.5"):
        one.update(add_edges=wrong)
    absent: list[Any] = [["paper_1"], [41]]
    with pytest.raises(InputError, match="edges that exist, got 'paper_1' -> 41"):
        one.update(remove_edges=absent)


# --- Bad input ----------------------------------------------------------------------------------

NEW = np.ones((1, SIZES[0]), dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"nodes": [1]}, "'x' must be given together with 'nodes'"),
        ({"x": NEW}, "'x' must be given together with 'nodes'"),
        ({"nodes": [1, 2], "x": NEW}, r"'x' must be a row per node \(2\), got 1 rows"),
        ({"nodes": [1], "x": NEW[:, :9]}, "'x' must be rows of 70 features, got rows of 9"),
        ({"nodes": [1], "x": NEW * np.nan}, "'x' must be finite"),
        ({"nodes": [1, 1], "x": np.ones((2, 70))}, "'nodes' must be free of repetitions"),
        ({"nodes": [40], "x": NEW}, r"'nodes' must be node ids in 0..39, got 40"),
        ({"add_nodes": np.ones((1, 9))}, "'add_nodes' must be rows of 70 features"),
        ({"add_nodes": [[1.0], [1.0, 2.0]]}, "'add_nodes' must be an array"),
        ({"add_edges": [[1, 2]]}, r"'add_edges' must be edges \[2, n\], got shape \[1, 2\]"),
        ({"add_edges": [[1], [40]]}, "'add_edges' must be node ids in 0..39, got 40"),
        ({"add_edges": [[1.5], [2.0]]}, "'add_edges' must be a list of node ids"),
        ({"add_edges": [["a"], ["b"]]}, "'add_edges' must be node ids: the graph has no names"),
        ({"add_edges": [[1], [-1]]}, "'add_edges' must be node ids from 0 on, got -1"),
        ({"add_edges": [[1], [-1]], "add_nodes": []}, "node ids from 0 on, got -1"),
        (
            {"add_edges": [[1], [-3]], "add_nodes": np.ones((2, 70))},
            "node ids from 0 on, and -1 to -2 for the new nodes, got -3",
        ),
        ({"add_edges": [[1], [2]], "edge_weight": [1, 2]}, "'edge_weight' must be one number"),
        ({"add_edges": [[1], [2]], "edge_weight": [-1.0]}, "'edge_weight' must be finite and not"),
        ({"add_nodes": NEW, "remove_edges": [[40], [1]]}, "'remove_edges' must be node ids in"),
        ({"remove_edges": [[3], [14]]}, "'remove_edges' must be edges that exist, got 3 -> 14"),
        ({"remove_nodes": [-1]}, "'remove_nodes' must be node ids in 0..39, got -1"),
        ({"remove_nodes": [9]}, "'remove_nodes' must be nodes that were not removed, got node 9"),
        ({"nodes": [9], "x": NEW}, "'nodes' must be nodes that were not removed, got node 9"),
        ({"add_edges": [[1], [9]]}, "'add_edges' must be nodes that were not removed, got node 9"),
    ],
)
def test_bad_changes_are_one_line_and_change_nothing(changes: dict[str, Any], line: str) -> None:
    live, before = live_graph(), live_graph()
    for some in (live, before):
        some.update(remove_nodes=[9])
    with pytest.raises(InputError, match=line):
        live.update(**changes)
    assert same(live, before)


def test_models_that_are_not_all_native_are_named() -> None:
    for model, named in (
        (make_floats("sgc"), "'linear'"),
        (make_gin(), "'aggregate'"),
        (make_jumping("gcn", binary_head=False), "'concat'"),
    ):
        with pytest.raises(InputError, match=f"layers all run on bits.*{named}"):
            model.live(raw_graph())


def test_bad_questions() -> None:
    live = live_graph()
    with pytest.raises(InputError, match=r"'nodes' must be node ids in 0..39"):
        live.predict([40])
    with pytest.raises(InputError, match="'output' must be one of"):
        live.predict(output="class")  # type: ignore[arg-type]


def test_native_live_layers_refuse_what_would_be_read_past_the_end() -> None:
    live = live_graph()
    none, edges = np.empty(0, np.int64), np.empty((2, 0), np.int64)
    words, beta = np.empty((0, 2), np.uint64), np.empty(0, np.float32)
    good = (none, 0, words, beta, edges, edges, None, none)
    assert live._layers.update(*good).size == 0
    for place, bad in (
        (0, np.array([40])),
        (1, 2**31),
        (2, np.empty((0, 3), np.uint64)),
        (4, np.array([[40], [0]])),
        (5, np.array([[0], [-1]])),
        (6, np.empty(3, np.float32)),
        (7, np.array([99])),
    ):
        with pytest.raises(ValueError, match=r"node|words|must"):
            live._layers.update(*good[:place], bad, *good[place + 1 :])
    with pytest.raises(ValueError, match="no such node"):
        live._layers.classes(np.array([40]), np.empty(1, np.int64))


def test_without_the_extension_live_graphs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_native", None)
    monkeypatch.setattr(native, "_import_error", "none", raising=False)
    with pytest.raises(InputError, match="a live graph needs the native kernels"):
        GCN.live(raw_graph())
