"""FastGCN's layers: unbiased estimates of a product with A from nodes drawn by importance.

On top of :mod:`bignn.kernels.sampling`; A's entry of an edge is ``weights[number of the edge]``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bignn.errors import input_error
from bignn.kernels.sampling import Choice, CompressedGraph, edges_between
from bignn.kernels.sampling_reference import Ints

Floats = NDArray[np.float32]


def column_norms(graph: CompressedGraph, weights: Floats) -> NDArray[np.float64]:
    """Compute ``‖A(:,u)‖² = Σ_v A(v,u)²`` of every node u, float64 [N]; repeated edges add up."""
    _check_weights(graph, weights)
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    keys = rows * graph.num_nodes + graph.ids
    places, entry = np.unique(keys, return_inverse=True)
    values = weights[graph.numbered(np.arange(graph.num_edges))].astype(np.float64)
    sums = np.bincount(entry, values, minlength=len(places)).astype(np.float64)
    columns = places % max(graph.num_nodes, 1)
    return np.bincount(columns, sums**2, minlength=graph.num_nodes).astype(np.float64)


@dataclass(frozen=True, eq=False)
class SampledLayer:
    """A sampled product: row i of ``A x`` is about the sum of ``weights[e] x[nodes[sources[e]]]``
    over the edges e with ``targets[e] == i``.

    Attributes:
        nodes: int64, the sampled nodes that any target is a neighbour of, rising.
        sources, targets: int64 [E'], places in ``nodes`` and among the targets.
        weights: float32 [E'].

    """

    nodes: Ints
    sources: Ints
    targets: Ints
    weights: Floats


def sample_layer(
    graph: CompressedGraph,
    weights: Floats,
    targets: Ints,
    importance: NDArray[np.float64],
    count: int,
    *,
    seed: int,
    backend: str | None = None,
) -> SampledLayer:
    r"""Estimate the rows ``targets`` of ``A x`` from ``count`` sampled nodes, as FastGCN does.

    ``(A x)_v = Σ_u A(v,u) x_u ≈ 1/t Σ_{k=1..t} A(v,u_k) / q(u_k) x_{u_k}``, where the t nodes u_k
    are drawn independently, the same for all targets, from the neighbours of any target, with
    ``q(u) ∝ importance[u]``; ``‖A(:,u)‖²`` (:func:`column_norms`) has the smallest variance over
    all targets that there may be. The expectation is exact if ``importance[u] > 0`` wherever column
    u is not 0: nodes that are not neighbours have no part in the sum (drawing them too, as the
    method's first description does, left most of a citation graph's few labels without any).
    Equal draws are one edge, its weight ``A(v,u) · times / (t q(u))``.
    """
    _check_weights(graph, weights)
    if count < 1:
        raise input_error("count", "1 or more", count)
    near = _neighbours_of(graph, targets)
    if near.size == 0:
        nothing = np.empty(0, dtype=np.int64)
        return SampledLayer(nothing, nothing, nothing, np.empty(0, dtype=np.float32))
    choice = Choice(importance[near])
    drawn, times = np.unique(choice.draw(count, seed=seed), return_counts=True)
    nodes = near[drawn]
    scale = times / (count * choice.probabilities[drawn])
    edges = edges_between(graph, targets, nodes, backend=backend)
    values = weights[edges.numbers] * scale[edges.sources]
    used, sources = np.unique(edges.sources, return_inverse=True)
    return SampledLayer(nodes[used], sources, edges.targets, values.astype(np.float32))


def _neighbours_of(graph: CompressedGraph, targets: Ints) -> Ints:
    counts = graph.degrees[targets]
    first = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(graph.offsets[targets] - first, counts)
    near: Ints = np.unique(graph.ids[places]).astype(np.int64)
    return near


def _check_weights(graph: CompressedGraph, weights: Floats) -> None:
    if weights.shape != (graph.num_edges,):
        raise input_error("weights", f"one per edge [{graph.num_edges}]", f"shape {weights.shape}")
