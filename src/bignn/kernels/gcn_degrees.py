"""GCN's degree normalisation: self-loops, and ``D^-1/2`` of A + I, defined once for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def with_self_loops(
    source: NDArray[Any],
    target: NDArray[Any],
    weights: Floats | None,
    num_nodes: int,
    own_weight: float = 1.0,
) -> tuple[Ints, Ints, Floats | None]:
    """Add self-loops: ``(source, target, weights)`` of A + I, every node once its own neighbour.

    A node that has self-loops keeps one, with the weight of the last one given; others get one of
    weight ``own_weight``, as in PyG's ``GCNConv``. Without weights all are 1, as there.
    """
    loops = np.arange(num_nodes, dtype=np.int64)
    others = source != target
    if weights is not None:
        own = _loop_weights(source, target, weights, loops, own_weight)
        weights = np.concatenate([weights[others], own])
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
    source: NDArray[Any],
    target: NDArray[Any],
    weights: Floats,
    loops: Ints,
    own_weight: float = 1.0,
) -> Floats:
    own = np.full(len(loops), own_weight, dtype=np.float32)
    is_loop = source == target
    own[target[is_loop]] = weights[is_loop]
    return own
