"""Live graphs that tests update, and how two of them are compared."""

from __future__ import annotations

from typing import Any

import numpy as np
from conftest import make_graph
from packed_family import SIZES, make_chain

from bignn import Graph, LiveGraph, PackedModel

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


def some_update(rng: np.random.Generator, num_nodes: int) -> dict[str, Any]:
    """An update that works in whatever state nodes 0 to 29 are never removed in."""
    return {
        "nodes": [int(rng.integers(0, 30))],
        "x": rng.standard_normal((1, SIZES[0])).astype(np.float32),
        "add_nodes": rng.standard_normal((1, SIZES[0])).astype(np.float32),
        "add_edges": np.concatenate([rng.integers(0, 30, (2, 3)), [[num_nodes], [2]]], axis=1),
        "edge_weight": rng.choice([1.0, 0.5], 4),
    }
