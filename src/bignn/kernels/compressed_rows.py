"""Compressed rows: edges sorted by row, their offsets checked, GCN's self-loops and degree scale.

Each is defined here once, for packed graphs, samplers and training. Imports NumPy only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels import native, sampling_reference

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def offsets_fit(offsets: NDArray[Any], count: int) -> bool:
    """Whether offsets rise from 0 to ``count``."""
    return bool(
        len(offsets)
        and offsets[0] == 0
        and offsets[-1] == count
        and not (offsets[1:] < offsets[:-1]).any()
    )


def order_of_entries(
    rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]
) -> tuple[Ints, Ints]:
    """Sort a sparse matrix's entries by row, then by column, stably: ``(offsets, order)``.

    Ids must be in range. By counting, in time that grows with entries and sizes alone.
    """
    rows, columns = (native.readable(ids, np.int64) for ids in (rows, columns))
    sort = native.sort_edges if native.is_available() else sampling_reference.sort_edges
    by_column = sort(columns, columns, shape[1])[2]
    offsets, _, by_row = sort(rows[by_column], rows, shape[0])
    return offsets, by_column[by_row]


def compress_edges(
    source: NDArray[Any], target: NDArray[Any], weights: Floats | None, num_nodes: int
) -> tuple[Ints, NDArray[Any], Floats | None]:
    """Sort edges into compressed rows of targets: ``(offsets, ids, weights)``.

    Weights are None where all are 1; ids are int32 if they can be.
    """
    offsets, order = order_of_entries(target, source, (num_nodes, num_nodes))
    if weights is not None:
        weights = None if (weights == 1).all() else weights[order]
    ids = source[order].astype(np.int32 if num_nodes < 2**31 else np.int64)
    return offsets, ids, weights


def with_self_loops(
    source: NDArray[Any], target: NDArray[Any], weights: Floats | None, num_nodes: int
) -> tuple[Ints, Ints, Floats | None]:
    """Add self-loops: ``(source, target, weights)`` of A + I, every node once its own neighbour.

    A node that has self-loops keeps one, with the weight of the last one given; others get one of
    weight 1, as in PyG's ``GCNConv``.
    """
    loops = np.arange(num_nodes, dtype=np.int64)
    others = source != target
    if weights is not None:
        weights = np.concatenate([weights[others], _loop_weights(source, target, weights, loops)])
    return (
        np.concatenate([source[others], loops]),
        np.concatenate([target[others], loops]),
        weights,
    )


def gcn_degree_scale(
    source: NDArray[Any], target: NDArray[Any], weights: Floats | None, num_nodes: int
) -> Floats:
    """Compute ``D^-1/2`` of A + I (:func:`with_self_loops`), float32 [N]; 0 for degree 0."""
    others = source != target
    degree: NDArray[np.float64] = np.ones(num_nodes)
    of_others = None
    if weights is not None:
        loops = np.arange(num_nodes, dtype=np.int64)
        degree = _loop_weights(source, target, weights, loops).astype(np.float64)
        of_others = weights[others].astype(np.float64)
    degree = degree + np.bincount(target[others], of_others, minlength=num_nodes)
    scale: Floats = degree_scale(degree).astype(np.float32)
    return scale


def degree_scale(degree: Any) -> Any:
    """Compute ``1 / sqrt(degree)``, 0 for degree 0; of an array or a tensor, in its dtype."""
    return (degree > 0) / (degree + (degree <= 0)) ** 0.5


def _loop_weights(
    source: NDArray[Any], target: NDArray[Any], weights: Floats, loops: Ints
) -> Floats:
    own = np.ones(len(loops), dtype=np.float32)
    is_loop = source == target
    own[target[is_loop]] = weights[is_loop]
    return own
