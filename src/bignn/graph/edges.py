"""Makes the edges of undirected graphs: every pair once, in both directions, sorted. NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError

_HALF = 32
_LOW = (1 << _HALF) - 1


def both_directions(
    source: NDArray[Any], target: NDArray[Any], weight: NDArray[np.float32] | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float32] | None]:
    """Return every edge in both directions, each pair once; weights of merged edges add up.

    A pair becomes the integer ``min << 32 | max`` (ids are below 2**31), so that sorting integers,
    which needs no more memory than the edges themselves, finds the repetitions. A self-loop is its
    own reverse. PyG's ``to_undirected`` adds weights up, too.

    Returns:
        The edges [2, E], sorted by source, then target; and their weights, if any were given.

    """
    keys = np.minimum(source, target).astype(np.int64)
    keys <<= _HALF
    keys |= np.maximum(source, target)
    weights = None
    if weight is None:
        keys.sort()
        is_new = np.ones(keys.size, dtype=np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
        keys = keys[is_new]
    else:
        keys, place = np.unique(keys, return_inverse=True)
        weights = np.bincount(place.ravel(), weight, minlength=keys.size).astype(np.float32)
    is_pair = (keys >> _HALF) != (keys & _LOW)
    others = keys[is_pair]
    merged = np.concatenate([keys, others << _HALF | others >> _HALF])
    if weights is None:
        merged.sort()
    else:
        order = np.argsort(merged)
        merged = merged[order]
        weights = np.concatenate([weights, weights[is_pair]])[order]
    pairs = np.empty((2, merged.size), dtype=np.int64)
    np.right_shift(merged, _HALF, out=pairs[0])
    np.bitwise_and(merged, _LOW, out=pairs[1])
    return pairs, weights


def undirected(
    where: str, source: NDArray[Any], target: NDArray[Any], num_nodes: int
) -> NDArray[np.int64]:
    """Return the edges of a published graph: both directions, each pair once, no self-loops.

    Ids are checked first; messages begin with ``where``, which names the file. Self-loops are
    dropped because layers add their own.
    """
    if source.shape != target.shape or source.ndim != 1:
        raise FileError(
            f"{where}: edges must be pairs of node ids, got {source.size} sources and "
            f"{target.size} targets; get the file again"
        )
    for ids in (source, target):
        if ids.dtype.kind not in "iu":
            raise FileError(f"{where}: node ids must be integers, got dtype {ids.dtype}")
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < num_nodes:
            bad = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
            raise FileError(f"{where}: edges must join node ids in 0..{num_nodes - 1}, got {bad}")
    other = source != target
    if not other.all():
        source, target = source[other], target[other]
    return both_directions(source, target)[0]
