"""The part of a graph that new nodes depend on, with these nodes in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.errors import input_error
from bignn.graph.names import Names
from bignn.kernels.compressed_rows import (
    compress_edges,
    entries_of,
    is_among,
    rows_and_sources,
    take_rows,
)
from bignn.kernels.edge_kinds import EDGE_KINDS
from bignn.kernels.gcn_degrees import gcn_degree_scale
from bignn.kernels.layer import DenseBits, dense_words
from bignn.runtime.features import take_features
from bignn.runtime.live.changes import (
    checked_features,
    read_edges,
    read_rows,
    read_weights,
    with_new_numbers,
)
from bignn.runtime.network import Network
from bignn.runtime.operations import GRAPHWIDE, Operation
from bignn.runtime.packed_graph import PackedGraph

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class NewNodes(NamedTuple):
    """Nodes that are not in a graph, checked.

    Attributes:
        features: what the model reads of them, bits or floats, a row per node.
        beta: scales of the rows of bits; None with floats.
        edges: int64 [2, m]; the graph's nodes by their given numbers, new ones after them.
        weights: float32 [m]; None for all ones.

    """

    features: NDArray[Any]
    beta: Floats | None
    edges: Ints
    weights: Floats | None


def read_new_nodes(
    network: Network,
    num_old: int,
    names: Names | None,
    x: Any,
    edges: Any,
    edge_weight: ArrayLike | None,
) -> NewNodes:
    """Check new nodes of a graph that has ``num_old``, some or all of them with names."""
    features, beta = _new_features(network, x)
    edges = with_new_numbers("edges", edges, num_old, len(features), names)
    given = read_edges("edges", edges, num_old + len(features))
    weights = read_weights("edge_weight", edge_weight, given.shape[1], network.edge_weight)
    if (given < num_old).all(axis=0).any():
        source, target = given[:, (given < num_old).all(axis=0)][:, 0].tolist()
        expected = f"edges with a new node (-1, -2, ..., or from {num_old} on) at one end or both"
        raise input_error("edges", expected, f"{source} -> {target}")
    return NewNodes(features, beta, given, weights)


def with_new_nodes(
    network: Network, graph: PackedGraph, added: NewNodes
) -> tuple[PackedGraph, Ints]:
    """Cut out what new nodes depend on, and add them and their edges; return their rows too.

    Rows at the border have no neighbours: only their features and degree scales are read.
    """
    num_old = graph.num_nodes
    features, beta, given, weights = added
    num_new = len(features)
    if graph.places is not None:
        is_old = given < num_old
        given = given.copy()
        given[is_old] = graph.places[given[is_old]]
    of_new_edges = weights
    if weights is None and graph.weights is not None:
        weights = np.ones(given.shape[1], dtype=np.float32)
    computed, kept = _surroundings(network, graph, given)
    # Old rows keep their order, and new ones follow.
    new = np.arange(len(kept), len(kept) + num_new)
    offsets, ids, of_edges, own = take_rows(graph.offsets, graph.ids, graph.weights, computed, kept)
    is_read = (given[1] >= num_old) | is_among(given[1], computed)
    source, target = (_places(ends[is_read], kept, num_old) for ends in given)
    if of_edges is None and weights is not None:
        of_edges = np.ones(len(ids), dtype=np.float32)
    if weights is not None:
        weights = weights[is_read]
    if graph.adjacency == "gcn":
        source, target, weights = _with_own_loops(source, target, weights, new)
    if of_edges is not None and weights is not None:
        of_edges = np.concatenate([of_edges, weights])
    compressed = compress_edges(
        np.concatenate([ids.astype(np.int64), source]),
        np.concatenate([np.repeat(own.astype(np.int64), np.diff(offsets)), target]),
        of_edges,
        len(kept) + num_new,
    )
    part = replace(
        graph,
        features=_joined_features(graph, kept, features),
        beta=None if graph.beta is None else np.concatenate([graph.beta[kept], beta]),
        offsets=compressed[0],
        ids=compressed[1],
        weights=compressed[2],
        degree_scale=_degree_scales(graph, kept, given, of_new_edges, num_new),
        labels={},
        node_ids=None,
        graph_offsets=None,
        node_names=None,
    )
    return part, new


def _new_features(network: Network, x: Any) -> tuple[NDArray[Any], Floats | None]:
    """Return features of new nodes as the model reads them: bits with scales, or floats."""
    if network.input.binarize:
        return read_rows(network.input, x, "x")
    graph = checked_features(network.input, x, "x")
    if graph is None:
        return np.empty((0, network.input.num_columns), dtype=np.float32), None
    return network.input.normalized(graph.dense_x()), None


def _surroundings(network: Network, graph: PackedGraph, edges: Ints) -> tuple[Ints, Ints]:
    """Return old rows that some layer computes, and those that are read at all, both rising."""
    if reads_all(network):
        every = np.arange(graph.num_nodes)
        return every, every
    computed, kept = np.empty(0, dtype=np.int64), sources_of_new(edges, graph.num_nodes)
    for _ in range(network.num_hops - 1):
        computed, kept = kept, rows_and_sources(graph.offsets, graph.ids, kept)
    return computed, kept


def reads_all(network: Network) -> bool:
    """Whether an answer depends on all of a graph, or on degrees that are not kept."""
    is_wide = any(isinstance(step, Operation) and step.op in GRAPHWIDE for step in network.rest)
    # Other degrees than GCN's are counted anew over all edges.
    return is_wide or any(
        EDGE_KINDS[aggr].factor in ("degree", "source_degree")
        for aggr in network.aggregations - {"gcn"}
    )


def sources_of_new(edges: Ints, num_old: int) -> Ints:
    """Return the rows of a graph that new nodes read, rising."""
    return np.unique(edges[0][(edges[1] >= num_old) & (edges[0] < num_old)])


def _places(ends: Ints, kept: Ints, num_old: int) -> Ints:
    """Return the places of nodes in the part: old ones among ``kept``, new ones after them."""
    places: Ints = np.where(ends < num_old, np.searchsorted(kept, ends), ends - num_old + len(kept))
    return places


def _with_own_loops(
    source: Ints, target: Ints, weights: Floats | None, new: Ints
) -> tuple[Ints, Ints, Floats | None]:
    """Give every new node one self-loop, with the weight of the last one given, or 1."""
    is_loop = source == target
    if weights is not None:
        own = np.ones(len(new), dtype=np.float32)
        own[source[is_loop] - (new[0] if len(new) else 0)] = weights[is_loop]
        weights = np.concatenate([weights[~is_loop], own])
    return (
        np.concatenate([source[~is_loop], new]),
        np.concatenate([target[~is_loop], new]),
        weights,
    )


def _joined_features(graph: PackedGraph, kept: Ints, new: NDArray[Any]) -> DenseBits | Floats:
    features = graph.features
    if isinstance(features, np.ndarray):
        return np.concatenate([features[kept], new])
    return DenseBits(np.concatenate([dense_words(take_features(features, kept)), new]))


def _degree_scales(
    graph: PackedGraph, kept: Ints, edges: Ints, edge_weight: Floats | None, num_new: int
) -> Floats:
    """Return GCN's degree scales of a part: the graph's own, but where new edges end."""
    num_old = graph.num_nodes
    old = np.unique(edges[1][(edges[1] < num_old) & is_among(edges[1], kept)])
    offsets, entries = entries_of(graph.offsets, old)
    ends = np.concatenate([old, np.arange(num_old, num_old + num_new)])
    is_counted = is_among(edges[1], ends)
    source = np.concatenate([graph.ids[entries], edges[0][is_counted]])
    target = np.concatenate([np.repeat(old, np.diff(offsets)), edges[1][is_counted]])
    weights = None
    if graph.weights is not None or edge_weight is not None:
        parts = [
            np.ones(len(entries)) if graph.weights is None else graph.weights[entries],
            np.ones(edges.shape[1]) if edge_weight is None else edge_weight,
        ]
        weights = np.concatenate([parts[0], parts[1][is_counted]]).astype(np.float32)
    place = np.searchsorted(ends, target)
    # Only whether an edge is a self-loop counts of its source.
    scales = gcn_degree_scale(np.where(source == target, place, -1), place, weights, len(ends))
    made = np.concatenate([graph.degree_scale[kept], scales[len(old) :]])
    made[np.searchsorted(kept, old)] = scales[: len(old)]
    return made
