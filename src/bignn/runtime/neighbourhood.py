"""The part of a graph that a few nodes' predictions depend on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.layers import DenseBits, Edges, Features, SparseBits
from bignn.runtime.packed_graph import PackedGraph


def surroundings(
    graph: PackedGraph, nodes: NDArray[np.int64], num_hops: int
) -> tuple[NDArray[np.int64], list[Edges], list[NDArray[np.int64]]]:
    """What is needed to compute ``nodes`` (rising, unique) through ``num_hops`` layers.

    Returns:
        The nodes whose features are read, and for each layer, first to last, its edges, whose ids
        number the rows of the layer before, and its rows.

    """
    edges: list[Edges] = []
    rows = [nodes]
    for _ in range(num_hops):
        block, sources = _take(graph, rows[0])
        edges.insert(0, block)
        rows.insert(0, sources)
    return rows[0], edges, rows[1:]


def take_features(features: Features, nodes: NDArray[np.int64]) -> Features:
    """The features of some nodes, in the same form."""
    if isinstance(features, DenseBits):
        return DenseBits(np.ascontiguousarray(features.words[nodes]))
    assert isinstance(features, SparseBits)
    offsets, entries = _entries(features.offsets, nodes)
    return SparseBits(offsets, features.inputs[entries], features.base)


def _take(graph: PackedGraph, nodes: NDArray[np.int64]) -> tuple[Edges, NDArray[np.int64]]:
    offsets, entries = _entries(graph.offsets, nodes)
    sources, ids = np.unique(graph.ids[entries], return_inverse=True)
    weights = None if graph.weights is None else graph.weights[entries]
    block = Edges(offsets, ids.astype(np.int32), weights, graph.norm[nodes], len(sources))
    return block, sources.astype(np.int64)


def _entries(
    offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets of some rows put together, and the numbers of their entries."""
    counts = offsets[rows + 1] - offsets[rows]
    taken = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(counts, out=taken[1:])
    entries = np.arange(taken[-1]) + np.repeat(offsets[rows] - taken[:-1], counts)
    return taken, entries
