"""Who owns which node: the parts of a graph, by METIS or by ranges of numbers."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from bignn.errors import input_error
from bignn.graph import Graph
from bignn.kernels.compressed_rows import order_of_entries

#: How nodes are assigned to parts: METIS where it is installed and the graph not too large for it,
#: METIS, or ranges of node numbers.
By = Literal["auto", "metis", "ranges"]

#: METIS takes some 50 bytes of memory per entry, and an hour for a billion.
MOST_EDGES_OF_METIS = 200_000_000
#: More parts than any machine room; a number beyond is a mistake.
MOST_PARTS = 4096


def assign(graph: Graph, num_parts: int, by: By = "auto") -> tuple[NDArray[np.int32], str]:
    """Assign every node to a part, and name the way it was done.

    Parts have about the same number of edges and nodes together, and at least one node each.

    Args:
        graph: the graph.
        num_parts: k.
        by: ``"metis"`` cuts few edges; ``"ranges"`` takes nodes as they are numbered, which costs
            nothing; ``"auto"`` is METIS where pymetis is installed, for graphs of up to 200 million
            edges.

    """
    if by not in get_args(By):
        raise input_error("by", f"one of {list(get_args(By))}", repr(by))
    check_count(num_parts, graph.num_nodes)
    if by == "auto":
        fits = graph.num_edges <= MOST_EDGES_OF_METIS and find_spec("pymetis") is not None
        by = "metis" if fits else "ranges"
    owner = by_metis(graph, num_parts) if by == "metis" else by_ranges(graph, num_parts)
    return _without_empty_parts(owner, num_parts), by


def check_count(num_parts: int, num_nodes: int) -> None:
    """Refuse a number of parts that a graph cannot be cut into."""
    most = min(num_nodes, MOST_PARTS)
    is_count = isinstance(num_parts, int) and not isinstance(num_parts, bool)
    if not is_count or not 1 <= num_parts <= most:
        raise input_error("num_parts", f"a number of parts from 1 to {most}", repr(num_parts))


def by_ranges(graph: Graph, num_parts: int) -> NDArray[np.int32]:
    """Cut the nodes, as they are numbered, into ranges with as many edges and nodes each."""
    work = np.cumsum(np.bincount(graph.edge_index[1], minlength=graph.num_nodes) + 1)
    # The middle of each node's share, so that one with many edges is not always the next part's.
    middle = work - np.diff(work, prepend=0) / 2
    owner: NDArray[np.int32] = (middle * num_parts / work[-1]).astype(np.int32)
    return np.minimum(owner, np.int32(num_parts - 1))


def by_metis(graph: Graph, num_parts: int) -> NDArray[np.int32]:
    """Cut few edges, by METIS; the same parts every time."""
    import pymetis

    if num_parts == 1:
        return np.zeros(graph.num_nodes, dtype=np.int32)
    offsets, ids = _undirected(graph)
    work = np.bincount(graph.edge_index[1], minlength=graph.num_nodes) + 1
    _, owner = pymetis.part_graph(
        num_parts,
        adjacency=pymetis.CSRAdjacency(offsets, ids),
        vweights=work,
        options=pymetis.Options(seed=0),
    )
    return np.asarray(owner, dtype=np.int32)


def _undirected(graph: Graph) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each node's neighbours in either direction, once each, without the node itself."""
    source, target = graph.edge_index
    others = source != target
    rows = np.concatenate([source[others], target[others]])
    columns = np.concatenate([target[others], source[others]])
    size = graph.num_nodes
    offsets, order = order_of_entries(rows, columns, (size, size))
    rows, columns = rows[order], columns[order]
    is_new = np.ones(len(rows), dtype=np.bool_)
    is_new[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
    offsets = np.zeros(size + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows[is_new], minlength=size), out=offsets[1:])
    return offsets, columns[is_new]


def _without_empty_parts(owner: NDArray[np.int32], num_parts: int) -> NDArray[np.int32]:
    """Give each part without nodes one of the largest part's: small graphs in many parts."""
    counts = np.bincount(owner, minlength=num_parts)
    for part in np.flatnonzero(counts == 0):
        largest = int(counts.argmax())
        owner[np.flatnonzero(owner == largest)[-1]] = part
        counts[largest] -= 1
        counts[part] = 1
    return owner
