"""An order of a graph's nodes in which neighbours are near each other, natively or in Python.

Nodes are merged into groups, those with the fewest neighbours first: each joins, with all that
joined it before, the neighbouring group for which the gain of modularity, ``edges between - ends ·
ends / all ends``, is largest, if any is above 0. Every group is then written as a tree, a node
before those that joined it, so that groups, groups in them, and so on, lie side by side: whatever
the size of a cache, some groups fit it. The method is Rabbit Order's (Arai et al., IPDPS 2016),
run one node after the other, so that the order depends on the graph alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels import native, sampling_reference
from bignn.kernels.compressed_rows import compress_edges

Ints = NDArray[np.int64]


def locality_order(offsets: Ints, ids: NDArray[Any]) -> Ints:
    """Find an order of the nodes of compressed rows in which neighbours follow each other.

    Directions and weights of edges do not count. Returns each node once, int64 [N].
    """
    num_nodes = len(offsets) - 1
    rows = np.repeat(np.arange(num_nodes, dtype=np.int64), np.diff(offsets))
    columns = native.readable(ids, np.int64)
    sort = native.sort_edges if native.is_available() else sampling_reference.sort_edges
    both_offsets, both_ids, _ = sort(columns, rows, num_nodes)
    # Sorted rows are their own transpose where every edge is given in both directions.
    if not (np.array_equal(both_offsets, offsets) and np.array_equal(both_ids, ids)):
        ends = np.concatenate([columns, rows]), np.concatenate([rows, columns])
        both_offsets, both_ids, _ = compress_edges(*ends, None, num_nodes)
    if native.is_available():
        return native.locality_order(both_offsets, both_ids)
    return reference_order(both_offsets, both_ids)


def reference_order(offsets: Ints, ids: NDArray[np.int32]) -> Ints:
    """Compute :func:`locality_order` in plain Python, of edges that are in both of their rows."""
    num_nodes, total = len(offsets) - 1, float(len(ids))
    above = list(range(num_nodes))
    joined: list[list[int]] = [[] for _ in above]
    kept: dict[int, dict[int, int]] = {}
    ends = np.diff(offsets).astype(np.float64).tolist()
    roots = []

    def root(node: int) -> int:
        while above[node] != node:
            above[node] = node = above[above[node]]
        return node

    for node in np.argsort(np.diff(offsets), kind="stable").tolist():
        counts: dict[int, int] = {}
        entries = [(other, 1) for other in ids[offsets[node] : offsets[node + 1]].tolist()]
        for child in reversed(joined[node]):
            entries += kept.pop(child).items()
        for other, count in entries:
            group = root(other)
            if group != node:
                counts[group] = counts.get(group, 0) + count
        best, most = None, 0.0
        for group, count in counts.items():
            gain = count - ends[node] * ends[group] / total
            if gain > most:
                best, most = group, gain
        kept[node] = counts
        if best is None:
            roots.append(node)
        else:
            above[node] = best
            joined[best].append(node)
            ends[best] += ends[node]
    order = []
    for first in roots:
        waiting = [first]
        while waiting:
            node = waiting.pop()
            order.append(node)
            waiting += reversed(joined[node])
    return np.array(order, dtype=np.int64)
