"""Renumbers the rows of a packed graph, so that neighbours are near each other in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bignn.errors import input_error
from bignn.kernels.compressed_rows import compress_edges, in_order_of_rows
from bignn.kernels.node_order import locality_order
from bignn.runtime.features import take_features

if TYPE_CHECKING:
    from bignn.runtime.packed_graph import PackedGraph

#: Orders that rows can be packed in; None is the order that nodes were given in.
Order = Literal["locality"]


def check_order(order: str | None) -> None:
    """Refuse an order that is not known."""
    if order is not None and not (isinstance(order, str) and order in get_args(Order)):
        raise input_error("order", f"None or one of {list(get_args(Order))}", repr(order))


def in_locality_order(graph: PackedGraph) -> PackedGraph:
    """Renumber a graph's rows by :func:`bignn.kernels.node_order.locality_order`."""
    return renumbered(graph, locality_order(graph.offsets, graph.ids))


def renumbered(graph: PackedGraph, order: NDArray[np.int64]) -> PackedGraph:
    """Move the row ``order[k]`` of a graph to row k, for every k; results stay as they are."""
    num_nodes = graph.num_nodes
    places = np.empty(num_nodes, dtype=np.int64)
    places[order] = np.arange(num_nodes)
    target = np.repeat(places, np.diff(graph.offsets))
    source, types = places[graph.ids], graph.edge_types
    offsets, ids, weights = compress_edges(source, target, graph.weights, num_nodes)
    if types is not None:
        types = in_order_of_rows(types, source, target, num_nodes)
    features = graph.features
    if isinstance(features, np.ndarray):
        features = features[order]
    else:
        features = take_features(features, order)
    node_ids = order if graph.node_ids is None else graph.node_ids[order]
    return replace(
        graph,
        features=features,
        beta=None if graph.beta is None else graph.beta[order],
        offsets=offsets,
        ids=ids,
        weights=weights,
        edge_types=types,
        degree_scale=graph.degree_scale[order],
        node_ids=node_ids.astype(graph.ids.dtype),
    )
