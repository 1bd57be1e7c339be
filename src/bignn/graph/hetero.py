"""Reads PyG's ``HeteroData``: features of each type of nodes, edges of each relation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bignn.errors import input_error
from bignn.graph.graph import Graph
from bignn.graph.pyg import array_of

#: A relation: type of its sources, name, type of its targets.
EdgeType = tuple[str, str, str]


class HeteroDataLike(Protocol):
    """The part of a PyG ``HeteroData`` that type checkers see."""

    @property
    def node_types(self) -> Any:
        """Types of nodes."""

    @property
    def edge_types(self) -> Any:
        """Types of edges."""


class HeteroArrays(NamedTuple):
    """Numbers of nodes and graphs of features by type, and edges [2, E_r] of each relation."""

    num_nodes: dict[str, int]
    features: dict[str, Graph]
    edges: list[NDArray[np.int64]]


def is_hetero(value: Any) -> bool:
    """Whether a value has what a PyG ``HeteroData`` has."""
    return hasattr(value, "node_types") and hasattr(value, "edge_types")


def read_hetero(
    data: Any, num_features: Mapping[str, int], relations: Sequence[EdgeType]
) -> HeteroArrays:
    """Read what a model needs of a ``HeteroData``, checked; other types may be there too.

    Args:
        data: a PyG ``HeteroData``.
        num_features: features per node, by type.
        relations: the types of edges that the model reads.

    """
    if not is_hetero(data):
        expected = f"a PyG HeteroData with nodes of {list(num_features)}"
        raise input_error("graph", expected, type(data).__name__)
    features = {kind: _features(data, kind, width) for kind, width in num_features.items()}
    counts = {kind: graph.num_nodes for kind, graph in features.items()}
    for kind in dict.fromkeys(kind for relation in relations for kind in relation[::2]):
        counts.setdefault(kind, _num_nodes(data, kind))
    edges = [_edges(data, relation, counts) for relation in relations]
    return HeteroArrays(counts, features, edges)


def _features(data: Any, kind: str, width: int) -> Graph:
    given = getattr(data[kind], "x", None) if kind in data.node_types else None
    if given is None:
        fix = f"set data[{kind!r}].x"
        raise input_error("graph", f"one with features of '{kind}' nodes", "none", fix)
    nothing = np.empty((2, 0), dtype=np.int64)
    graph = Graph(array_of("x", given, as_floats=True), nothing, name=f"nodes of '{kind}'")
    if graph.num_features != width:
        expected = f"one with {width} features per '{kind}' node"
        raise input_error("graph", expected, graph.num_features)
    return graph


def _num_nodes(data: Any, kind: str) -> int:
    count = data[kind].num_nodes if kind in data.node_types else None
    if count is None:
        raise input_error("graph", f"one with '{kind}' nodes", "none")
    return int(count)


def _edges(data: Any, relation: EdgeType, counts: Mapping[str, int]) -> NDArray[np.int64]:
    named = f"edges {relation}"
    given = getattr(data[relation], "edge_index", None) if relation in data.edge_types else None
    if given is None:
        raise input_error("graph", f"one with {named}", "none")
    edges = array_of("edge_index", given)
    if edges.ndim != 2 or len(edges) != 2 or edges.dtype.kind not in "iu":
        got = f"{edges.dtype} {list(edges.shape)}"
        raise input_error("graph", f"one with {named} as whole numbers [2, E]", got)
    for ids, kind in zip(edges, relation[::2], strict=True):
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < counts[kind]:
            expected = f"one with {named} between '{kind}' nodes in 0..{counts[kind] - 1}"
            raise input_error("graph", expected, f"{int(ids.min())}..{int(ids.max())}")
    return edges.astype(np.int64)
