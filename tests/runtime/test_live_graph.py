"""Live graphs from outside: readers beside a writer, bad input, files, kills, and new nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph
from packed_family import SIZES, make_chain, make_floats, make_gin, make_jumping

import bignn
from bignn import FileError, Graph, InputError, LiveGraph, PackedModel, pack_graph
from bignn.graph import SparseRows
from bignn.kernels import native

GCN = make_chain(["gcn", "gcn", "gcn"])


def raw_graph(num_nodes: int = 40, seed: int = 0) -> Graph:
    return make_graph(num_nodes, SIZES[0], seed)


def live_graph(model: PackedModel = GCN, num_nodes: int = 40) -> LiveGraph:
    return model.live(raw_graph(num_nodes))


def same(one: LiveGraph, other: LiveGraph) -> bool:
    """Whether two live graphs have the same nodes, edges, bits, scales and answers."""
    if one.num_nodes != other.num_nodes:
        return False
    pairs = [
        *zip(one._layers.edges(), other._layers.edges(), strict=True),
        (one.predict(), other.predict()),
        (one.predict(output="logits"), other.predict(output="logits")),
        *(
            pair
            for number in range(len(one.model.network.layers))
            for pair in zip(one._layers.state(number), other._layers.state(number), strict=True)
        ),
    ]
    return all(
        (a is None and b is None) or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in pairs
    )


# --- Answers ------------------------------------------------------------------------------------


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


# --- Files --------------------------------------------------------------------------------------


def some_update(rng: np.random.Generator, num_nodes: int) -> dict[str, Any]:
    """An update that works in whatever state nodes 0 to 29 are never removed in."""
    return {
        "nodes": [int(rng.integers(0, 30))],
        "x": rng.standard_normal((1, SIZES[0])).astype(np.float32),
        "add_nodes": rng.standard_normal((1, SIZES[0])).astype(np.float32),
        "add_edges": np.concatenate([rng.integers(0, 30, (2, 3)), [[num_nodes], [2]]], axis=1),
        "edge_weight": rng.choice([1.0, 0.5], 4),
    }


def test_a_saved_graph_opens_with_every_update(tmp_path: Path) -> None:
    path = tmp_path / "g.biglive"
    live = make_chain(["sage", "gcn", "gat"]).live(pack_graph(
        raw_graph(), like=make_chain(["sage", "gcn", "gat"]), order="locality"))  # fmt: skip
    rng = np.random.default_rng(0)
    live.update(remove_nodes=[31])
    live.save(path)
    for turn in range(5):
        live.update(**some_update(rng, live.num_nodes))
        if turn == 2:
            live.save(path)  # starts the journal afresh
            live.update(remove_nodes=[33])
    live.close()
    opened = LiveGraph.open(path)
    assert same(opened, live)
    assert opened.removed.tolist() == [31, 33]
    opened.update(remove_nodes=[35])
    opened.close()
    again = bignn.open(path)
    assert isinstance(again, LiveGraph)
    assert same(again, opened)
    again.close()


def test_a_journal_cut_anywhere_loses_its_last_update_only(tmp_path: Path) -> None:
    path, journal = tmp_path / "g.biglive", tmp_path / "g.biglive.journal"
    live = live_graph()
    live.save(path)
    rng = np.random.default_rng(1)
    live.update(**some_update(rng, live.num_nodes))
    live.close()
    whole = journal.read_bytes()
    once = LiveGraph.open(path)
    once.update(remove_nodes=[39])
    once.close()
    twice = journal.read_bytes()
    for size in (len(whole) + 1, len(whole) + 23, len(whole) + 24, len(twice) - 1):
        journal.write_bytes(twice[:size])
        with pytest.warns(UserWarning, match="was not written to its end; it is dropped"):
            opened = LiveGraph.open(path)
        assert same(opened, live)
        assert journal.read_bytes() == whole
        opened.close()
    # A file system may have given the file its length and not yet its bytes.
    journal.write_bytes(whole + bytes(100))
    with pytest.warns(UserWarning, match="dropped"):
        LiveGraph.open(path).close()
    assert journal.read_bytes() == whole


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    path, journal = tmp_path / "g.biglive", tmp_path / "g.biglive.journal"
    live = live_graph()
    live.save(path)
    first = journal.stat().st_size
    for _ in range(2):
        live.update(**some_update(np.random.default_rng(2), live.num_nodes))
    live.close()
    content = bytearray(journal.read_bytes())
    content[first + 60] ^= 1
    journal.write_bytes(content)
    with pytest.raises(FileError, match=rf"is damaged from byte {first} on"):
        LiveGraph.open(path)
    journal.write_bytes(b"{}\n")
    with pytest.raises(FileError, match="is no journal of a live graph"):
        LiveGraph.open(path)
    journal.unlink()
    with pytest.raises(FileError, match="it holds the updates since the last save"):
        LiveGraph.open(path)


def test_a_live_graph_is_open_once(tmp_path: Path) -> None:
    path = tmp_path / "g.biglive"
    live = live_graph()
    live.save(path)
    code = f"import bignn\nbignn.LiveGraph.open({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is in use: one process at a time" in done.stderr
    with pytest.raises(InputError, match=r"ending in \.biglive"):
        live.save(tmp_path / "g.bigraph")
    with pytest.raises(FileError, match=r"does not exist; make one with LiveGraph\.save"):
        LiveGraph.open(tmp_path / "none.biglive")


CHILD = """
import sys
sys.path[:0] = {paths!r}
import numpy as np
import bignn
from test_live_graph import live_graph, some_update
live = live_graph()
live.save(sys.argv[1])
print("saved", flush=True)
for number in range(10**6):
    live.update(**some_update(np.random.default_rng(number), live.num_nodes))
    if number % 7 == 6:
        live.save(sys.argv[1])
    print(number, flush=True)
"""


def test_a_killed_process_loses_no_update_that_returned(tmp_path: Path) -> None:
    path = tmp_path / "g.biglive"
    paths = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD.format(paths=paths), str(path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        acknowledged = -1
        while acknowledged < 60:
            line = child.stdout.readline()
            acknowledged = acknowledged if line == "saved\n" else int(line)
        os.kill(child.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, child.stdout.read().split())])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a record under way is dropped
        opened = LiveGraph.open(path)
    # One more update may be on disk than was acknowledged.
    done = opened.num_nodes - 40
    assert done in (acknowledged + 1, acknowledged + 2)
    expected = live_graph()
    for number in range(done):
        expected.update(**some_update(np.random.default_rng(number), expected.num_nodes))
    assert same(opened, expected)
    opened.close()


# --- New nodes ----------------------------------------------------------------------------------


def enlarged(graph: Graph, x: Any, edges: Any, weights: Any) -> Graph:
    """A graph with nodes and edges added."""
    old = np.ones(graph.num_edges, np.float32) if graph.edge_weight is None else graph.edge_weight
    new = np.ones(edges.shape[1], np.float32) if weights is None else weights
    return Graph(
        np.concatenate([graph.dense_x(), x]),
        np.concatenate([graph.edge_index, edges], axis=1),
        np.concatenate([old, new]),
    )


KINDS = [
    ["gcn", "gcn", "gcn"],
    ["sage", "sage"],
    ["gat", "gat", "gat"],
    ["mean-gcn", "weighted_mean"],
    ["gcn_plain", "gcn_source"],
]


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("order", [None, "locality"])
def test_new_nodes_have_the_answers_of_the_enlarged_graph(kinds: list[str], order: Any) -> None:
    model = make_chain(kinds)
    for seed, weighted in ((0, False), (1, True), (2, True)):
        rng = np.random.default_rng(seed)
        graph = make_graph(150, SIZES[0], seed)
        if seed == 2:
            of_edges = rng.choice([0.5, 1.0, 2.0], graph.num_edges).astype(np.float32)
            graph = Graph(graph.x, graph.edge_index, of_edges)
        x = rng.standard_normal((3, SIZES[0])).astype(np.float32)
        into, out = rng.integers(0, 150, (2, 5)), rng.integers(150, 153, (2, 5))
        among = np.array([[150, 151, 152, 152], [151, 151, 150, 152]])
        edges = np.concatenate([[into[0], out[0]], [out[1], into[1]], among, among[:, :2]], axis=1)
        weights = rng.choice([0.25, 1.0], edges.shape[1]).astype(np.float32) if weighted else None
        packed = pack_graph(graph, like=model, order=order)
        whole = pack_graph(enlarged(graph, x, edges, weights), like=model)
        found = model.predict_new(packed, x, edges, edge_weight=weights, output="logits")
        expected = model.predict(whole, [150, 151, 152], output="logits")
        np.testing.assert_array_equal(found, expected)
        classes = model.predict_new(graph, x, edges, edge_weight=weights)
        np.testing.assert_array_equal(classes, expected.argmax(axis=1))
        assert packed.num_nodes == graph.num_nodes == 150


def test_new_nodes_of_models_with_floats() -> None:
    rng = np.random.default_rng(0)
    graph = make_graph(60, SIZES[0], 3)
    x = rng.standard_normal((2, SIZES[0])).astype(np.float32)
    edges = np.array([[5, 60, 61, 7], [60, 9, 60, 61]])
    for model in (make_gin(), make_jumping("sage", binary_head=False), make_floats("gat")):
        whole = enlarged(graph, x, edges, None)
        found = model.predict_new(graph, x, edges, output="logits")
        expected = model.predict(whole, [60, 61], output="logits")
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_a_new_node_without_edges() -> None:
    graph = raw_graph()
    x = np.ones((1, SIZES[0]), dtype=np.float32)
    nothing = np.empty((2, 0), dtype=np.int64)
    found = GCN.predict_new(graph, x, nothing, output="logits")
    expected = GCN.predict(enlarged(graph, x, nothing, None), [40], output="logits")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("x", "edges", "line"),
    [
        (NEW, [[1], [2]], "'edges' must be edges with a new node .from 40 on.*got 1 -> 2"),
        (NEW, [[1], [41]], "'edges' must be node ids in 0..40, got 41"),
        (NEW, [1, 40], r"'edges' must be edges \[2, n\]"),
        (NEW[:, :3], [[1], [40]], "'x' must be rows of 70 features, got rows of 3"),
    ],
)
def test_bad_new_nodes(x: Any, edges: Any, line: str) -> None:
    with pytest.raises(InputError, match=line):
        GCN.predict_new(raw_graph(), x, edges)


def test_without_the_extension_live_graphs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_native", None)
    monkeypatch.setattr(native, "_import_error", "none", raising=False)
    with pytest.raises(InputError, match="a live graph needs the native kernels"):
        GCN.live(raw_graph())
