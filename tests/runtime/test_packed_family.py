"""GCN, SAGE, GAT, jumping heads, GIN and SGC: what the formulas say, by every backend and plan, for
all nodes and for some.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph
from packed_family import SIZES, formula, make_chain, make_floats, make_gin, make_jumping

import bignn
from bignn import Graph, InputError, PackedModel, kernels, pack_graph
from bignn.kernels.layer import SparseBits

CHAINS = [
    ["gcn", "gcn"],
    ["mean-gcn", "mean-gcn"],
    ["sage", "sage"],
    ["gat", "gat"],
    ["sage"],
    ["gat"],
    ["sage", "sage", "sage"],
    ["gat", "gat", "gat"],
    ["gat", "sage", "gcn"],
    ["mean-gcn", "gat", "sage"],
]


def graphs() -> dict[str, Graph]:
    """Everything that edges can be; make_graph's have self-loops, repeats and isolated nodes."""
    x = make_graph(30, SIZES[0], seed=3).x
    assert isinstance(x, np.ndarray)
    nothing = np.zeros((2, 0), dtype=np.int64)
    star = np.stack([np.arange(1, 30), np.zeros(29, dtype=np.int64)])
    return {
        "random": make_graph(60, SIZES[0], seed=1),
        "no edges": Graph(x, nothing),
        "one node": Graph(x[:1], nothing),
        "one loop": Graph(x[:1], np.array([[0, 0], [0, 0]])),
        "star": Graph(x, np.concatenate([star, star[::-1], star[:, :4]], axis=1)),
    }


def agrees(model: PackedModel) -> None:
    """On every graph."""
    for name, graph in graphs().items():
        expected = formula(model, graph)
        logits = model.predict(pack_graph(graph, like=model), output="logits")
        assert logits.shape == expected.shape, name
        assert np.abs(logits - expected).max() <= 2e-5 * max(1, np.abs(expected).max()), name


@pytest.mark.parametrize("kinds", CHAINS, ids="-".join)
def test_chains_are_what_their_formulas_say(kinds: list[str]) -> None:
    model = make_chain(kinds)
    assert model.network.is_binary
    assert len(model.network.layers) == len(kinds)
    assert not model.network.rest
    agrees(model)


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_jumping_heads(kind: str) -> None:
    for binary_head in (False, True):
        model = make_jumping(kind, binary_head=binary_head)
        assert len(model.network.layers) == 2
        assert model.network.is_binary == binary_head
        forms = {"bits"} if binary_head else {"values"}
        assert {form for _, form in model.network.kept.values()} == forms
        agrees(model)


@pytest.mark.parametrize("kind", ["gin", "sgc", "sage", "gat"])
def test_what_has_float_sums(kind: str) -> None:
    model = make_gin() if kind == "gin" else make_floats(kind)
    assert not model.network.is_binary
    assert not model.network.layers
    agrees(model)


def everything(model: PackedModel, raw: Graph) -> None:
    """All backends, plans, choices of nodes, blocks and threads give the same bytes."""
    graph = pack_graph(raw, like=model)
    expected = model.predict(graph, output="logits", backend="reference")
    count = len(model.network.layers)
    plans = [None, "T", "G", "TGT"[:count], "GTG"[:count]]
    if isinstance(graph.features, SparseBits):
        plans.append("S")
    nodes = np.array([5, 3, 5, 29, 0])
    for backend in kernels.available_backends():
        for plan in plans:
            options: dict[str, Any] = {"plan": plan, "backend": backend}
            got = model.predict(graph, output="logits", **options)
            assert got.tobytes() == expected.tobytes(), options
            some = model.predict(graph, nodes, output="logits", **options)
            assert some.tobytes() == expected[nodes].tobytes(), options
            assert np.array_equal(model.predict(graph, **options), expected.argmax(axis=1))
            blocks = model.stream(graph, output="logits", block=7, **options)
            together = np.concatenate([values for _, values in blocks])
            assert together.tobytes() == expected.tobytes(), options
    before = bignn.get_num_threads()
    try:
        bignn.set_num_threads(3)
        assert model.predict(graph, output="logits").tobytes() == expected.tobytes()
    finally:
        bignn.set_num_threads(before)


@pytest.mark.parametrize("kinds", CHAINS[2:4] + CHAINS[8:], ids="-".join)
def test_chains_are_the_same_everywhere(kinds: list[str]) -> None:
    for like_words in (False, True):
        everything(make_chain(kinds), make_graph(40, SIZES[0], seed=2, like_words=like_words))


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat"])
def test_binary_heads_are_the_same_everywhere(kind: str) -> None:
    everything(make_jumping(kind, binary_head=True), make_graph(40, SIZES[0], seed=2))


@pytest.mark.parametrize("kind", ["jumping", "gin", "sgc", "sage", "gat"])
def test_some_nodes_of_models_with_floats(kind: str) -> None:
    if kind == "jumping":
        model = make_jumping("sage", binary_head=False)
    else:
        model = make_gin() if kind == "gin" else make_floats(kind)
    graph = pack_graph(make_graph(40, SIZES[0], seed=2), like=model)
    expected = model.predict(graph, output="logits")
    for nodes in ([0], [39], [5, 3, 5, 29, 0], list(range(40))):
        some = model.predict(graph, nodes, output="logits")
        np.testing.assert_allclose(some, expected[nodes], rtol=1e-4, atol=1e-5)
    for rows, values in model.stream(graph, output="logits", block=7):
        np.testing.assert_allclose(values, expected[rows], rtol=1e-5, atol=1e-6)
    if kind == "jumping":  # what is packed has plans
        for plan in ("T", "G", "TG"):
            got = model.predict(graph, output="logits", plan=plan)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
        assert len(model.explain(graph).layers) == 2


def test_models_and_graphs_survive_their_files(tmp_path: Path) -> None:
    paths = tmp_path / "model.bignn", tmp_path / "graph.bigraph"
    for kind, adjacency in (("sage", "plain"), ("gat", "gcn")):
        model = make_chain([kind, kind])
        graph = pack_graph(make_graph(40, SIZES[0], seed=2), like=model)
        assert graph.adjacency == adjacency
        model.save(paths[0])
        graph.save(paths[1])
        opened, mapped = (bignn.open(path) for path in paths)
        assert isinstance(opened, PackedModel)
        assert isinstance(mapped, bignn.PackedGraph)
        assert mapped.adjacency == adjacency
        expected = model.predict(graph, output="logits")
        assert opened.predict(mapped, output="logits").tobytes() == expected.tobytes(), kind


def test_edge_weights_count_in_gcn_alone() -> None:
    raw = make_graph(40, SIZES[0], seed=2)
    weights = np.random.default_rng(0).random((raw.edge_index.shape[1],), dtype=np.float32)
    weighted = Graph(raw.dense_x(), raw.edge_index, weights)
    for kinds in (["sage", "sage"], ["gat", "gat"], ["mean-gcn", "mean-gcn"], ["gcn", "gcn"]):
        model = make_chain(kinds)
        plain, other = (
            model.predict(pack_graph(graph, like=model), output="logits")
            for graph in (raw, weighted)
        )
        assert np.array_equal(plain, other) == (kinds[0] != "gcn"), kinds


def test_a_graph_without_its_own_loops_is_refused_where_they_matter() -> None:
    """Every node among its neighbours, once: what they were is not known any more."""
    raw = make_graph(40, SIZES[0], seed=2)
    gcn, sage = make_chain(["gcn", "gcn"]), make_chain(["sage", "sage"])
    assert gcn.input_digest == sage.input_digest
    with pytest.raises(InputError, match="'graph' must be one whose edges are as they were given"):
        sage.predict(pack_graph(raw, like=gcn))
    expected = gcn.predict(pack_graph(raw, like=gcn), output="logits")
    got = gcn.predict(pack_graph(raw, like=sage), output="logits")
    assert got.tobytes() == expected.tobytes()
