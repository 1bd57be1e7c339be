"""The two halves of an external sort of edges by target, natively or in NumPy.

Edges go to buckets of 2^shift targets each; a bucket that fits memory becomes compressed rows. An
edge in a bucket is two 32-bit numbers: its source, and its target counted from the bucket's first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels import native

Ints = NDArray[np.int64]
#: Edges of buckets, [edges, 2]: source and target.
BucketEdges = NDArray[np.int32]


def first_outside(sources: NDArray[Any], targets: NDArray[Any], num_nodes: int) -> int | None:
    """Return the number of the first edge with an end outside of [0, num_nodes); None if none."""
    wrong = (sources < 0) | (sources >= num_nodes) | (targets < 0) | (targets >= num_nodes)
    return int(wrong.argmax()) if wrong.any() else None


def to_buckets(
    sources: NDArray[Any], targets: NDArray[Any], num_nodes: int, shift: int
) -> tuple[BucketEdges, Ints] | int:
    """Sort edges by bucket, keeping their order in each: ``(edges, counts)``.

    Returns the number of the first edge with an end that is no node instead, if there is one.
    """
    counts = np.zeros(max(1, -(-num_nodes >> shift)), dtype=np.int64)
    made: BucketEdges = np.empty((len(sources), 2), dtype=np.int32)
    if native.is_available():
        kind = np.int32 if sources.dtype == targets.dtype == np.int32 else np.int64
        source, target = native.readable(sources, kind), native.readable(targets, kind)
        wrong = native.count_buckets(source, target, num_nodes, shift, counts)
        if wrong >= 0:
            return wrong
        places = np.zeros(len(counts), dtype=np.int64)
        np.cumsum(counts[:-1], out=places[1:])
        native.fill_buckets(source, target, shift, places, made)
        return made, counts
    outside = first_outside(sources, targets, num_nodes)
    if outside is not None:
        return outside
    bucket = targets.astype(np.int64) >> shift
    counts += np.bincount(bucket, minlength=len(counts))
    order = np.argsort(bucket, kind="stable")
    made[:, 0] = sources[order]
    made[:, 1] = (targets[order] & ((1 << shift) - 1)).astype(np.uint32).view(np.int32)
    return made, counts


def sort_bucket(
    edges: BucketEdges, num_rows: int, *, merges: bool
) -> tuple[Ints, NDArray[np.int32]]:
    """Make compressed rows of a bucket's edges: ``(offsets, ids)``, ids rising in each row.

    With ``merges`` repeated edges become one.
    """
    if native.is_available():
        offsets = np.empty(num_rows + 1, dtype=np.int64)
        ids = np.empty(len(edges), dtype=np.int32)
        count = native.sort_bucket(native.readable(edges), offsets, ids, merges)
        return offsets, ids[:count]
    source, target = edges[:, 0], edges[:, 1].astype(np.int64)
    order = np.lexsort((source, target))
    source, target = source[order], target[order]
    if merges and len(source):
        is_new = np.ones(len(source), dtype=np.bool_)
        is_new[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
        source, target = source[is_new], target[is_new]
    offsets = np.zeros(num_rows + 1, dtype=np.int64)
    np.cumsum(np.bincount(target, minlength=num_rows), out=offsets[1:])
    return offsets, source.astype(np.int32)
