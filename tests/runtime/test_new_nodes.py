"""Predictions for nodes that are not in the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import make_graph
from live_graphs import GCN, raw_graph
from packed_family import SIZES, make_chain, make_floats, make_gin, make_jumping

from bignn import Graph, InputError, pack_graph

NEW = np.ones((1, SIZES[0]), dtype=np.float32)


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
        (
            NEW,
            [[1], [2]],
            "'edges' must be edges with a new node .-1, -2, .*from 40 on.*got 1 -> 2",
        ),
        (NEW, [[1], [41]], "'edges' must be node ids in 0..40, got 41"),
        (NEW, [1, 40], r"'edges' must be edges \[2, n\]"),
        (NEW[:, :3], [[1], [40]], "'x' must be rows of 70 features, got rows of 3"),
    ],
)
def test_bad_new_nodes(x: Any, edges: Any, line: str) -> None:
    with pytest.raises(InputError, match=line):
        GCN.predict_new(raw_graph(), x, edges)
