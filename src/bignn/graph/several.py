"""Many graphs as one: their nodes side by side, and where each graph begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, input_error
from bignn.graph.graph import Graph, SparseRows
from bignn.graph.pyg import GraphLike, array_of, as_graph, is_dataset

#: One graph, or many: a list of graphs, or a PyG ``Batch``.
Graphs = GraphLike | Sequence[GraphLike]

Ints = NDArray[np.int64]

_EXPECTED = "a bignn.Graph, a PyG Data or Batch, or a list of graphs"


def join(graphs: Graphs) -> tuple[Graph, Ints | None]:
    """Put graphs side by side; of a PyG ``Batch``, whose graphs are, find where each begins.

    Labels come along with a single graph alone.

    Returns:
        The graph, and the first node of each of its graphs, with the number of nodes at the end;
        None for a single graph.

    """
    if is_dataset(graphs) and len(graphs) != 1:  # type: ignore[arg-type]
        graphs = list(graphs)  # type: ignore[arg-type]
    if not isinstance(graphs, list | tuple):
        graph = as_graph(graphs, _EXPECTED, needs_labels=False)  # type: ignore[arg-type]
        return graph, None if graphs is graph else _offsets_of_batch(graphs, graph)
    if not graphs:
        raise input_error("graph", "at least one graph", "an empty list")
    parts = [_part(number, graph) for number, graph in enumerate(graphs)]
    widths = {graph.num_features for graph, _ in parts}
    if len(widths) > 1:
        raise input_error("graph", "graphs with equally many features per node", sorted(widths))
    sizes = np.array([0, *(graph.num_nodes for graph, _ in parts)], dtype=np.int64)
    starts = np.cumsum(sizes)
    ends = [
        start + (np.array([graph.num_nodes]) if offsets is None else offsets[1:])
        for start, (graph, offsets) in zip(starts[:-1], parts, strict=True)
    ]
    return _side_by_side([graph for graph, _ in parts], starts), np.concatenate([[0], *ends])


def _part(number: int, graph: Graphs) -> tuple[Graph, Ints | None]:
    """Join what one entry of a list holds; an error names the entry."""
    try:
        return join(graph)
    except InputError as error:
        raise type(error)(f"graph {number}: {str(error).removeprefix('data: ')}") from None


def _side_by_side(graphs: list[Graph], starts: Ints) -> Graph:
    edges = [graph.edge_index + start for graph, start in zip(graphs, starts[:-1], strict=True)]
    weight = None
    if any(graph.edge_weight is not None for graph in graphs):
        weight = np.concatenate(
            [
                np.ones(graph.num_edges, np.float32)
                if graph.edge_weight is None
                else graph.edge_weight
                for graph in graphs
            ]
        )
    types = [graph.edge_type for graph in graphs if graph.edge_type is not None]
    if 0 < len(types) < len(graphs):
        got = f"{len(types)} of {len(graphs)} that have it"
        raise input_error("graph", "graphs that all have 'edge_type', or none", got)
    return Graph(
        _features_of_all([graph.x for graph in graphs]),
        np.concatenate(edges, axis=1),
        weight,
        name=f"{len(graphs)} graphs",
        edge_type=np.concatenate(types) if types else None,
    )


def _features_of_all(parts: list[NDArray[np.float32] | SparseRows]) -> Any:
    sparse = [part for part in parts if isinstance(part, SparseRows)]
    if len(sparse) < len(parts):
        return np.concatenate(
            [part.toarray() if isinstance(part, SparseRows) else part for part in parts]
        )
    counts = np.concatenate([np.diff(part.indptr) for part in sparse])
    return SparseRows(
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([part.indices for part in sparse]),
        np.concatenate([part.values for part in sparse]),
        (len(counts), sparse[0].shape[1]),
    )


def check_edges_within(graph_ids: NDArray[Any], edge_index: NDArray[Any]) -> None:
    """Refuse an edge from one graph of a ``Batch`` to another, by a node id that was too large."""
    graph_of_source, graph_of_target = graph_ids[edge_index]
    across = np.flatnonzero(graph_of_source != graph_of_target)
    if across.size:
        ends = f"an edge between nodes of graphs {graph_of_source[across[0]]} and "
        fix = "before batching, ids must be below the graph's own number of nodes"
        got = f"{ends}{graph_of_target[across[0]]}"
        raise input_error("edge_index", "edges within one graph each", got, fix)


def _offsets_of_batch(data: Any, graph: Graph) -> Ints | None:
    """Return where the graphs of a PyG ``Batch`` begin; None where there is only one graph."""
    num_nodes = graph.num_nodes
    given = getattr(data, "batch", None)
    if given is None:
        return None
    graph_ids = array_of("batch", given)
    expected = f"the graph of each node [{num_nodes}], rising from 0"
    if graph_ids.shape != (num_nodes,) or graph_ids.dtype.kind not in "iu":
        raise input_error("batch", expected, f"{graph_ids.dtype} {list(graph_ids.shape)}")
    if graph_ids[0] != 0 or (np.diff(graph_ids) < 0).any():
        raise input_error("batch", expected, "ids in another order", "sort the nodes by graph")
    counts = np.bincount(graph_ids)
    if (counts == 0).any():
        got = f"graph {int(np.flatnonzero(counts == 0)[0])} without any"
        raise input_error("graph", "graphs with at least one node each", got)
    check_edges_within(graph_ids, graph.edge_index)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
