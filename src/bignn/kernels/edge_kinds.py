"""Kinds of neighbourhood sum: which edges each takes, and how they are weighed."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.gcn_degrees import degree_scale, with_self_loops

Floats = NDArray[np.float32]


#: What the weights of a graph's edges are to a model: they count; they are left out, since it was
#: trained without them; or graphs that have some are refused, since only some layers weigh edges.
WeightUse = Literal["used", "ignored", "refused"]


class EdgeKind(NamedTuple):
    """What a neighbourhood sum is taken over.

    Attributes:
        loops: self-loops are ``"added"`` (every node is once its own neighbour), ``"given"`` or
            ``"removed"``.
        is_weighted: whether edge weights count.
        factor: ``"mean"`` divides by the number of entries; ``"degree"`` is ``D^-1/2`` on both
            sides, of the degrees of targets, ``"source_degree"`` of those of sources.
        own_weight: weight of an added self-loop where edges have weights.

    """

    loops: Literal["added", "given", "removed"] = "given"
    is_weighted: bool = False
    factor: Literal["none", "mean", "degree", "source_degree"] = "none"
    own_weight: float = 1.0


#: ``max`` is no sum, but the largest of each column; ``attention`` weighs its entries itself.
EDGE_KINDS: dict[str, EdgeKind] = {
    "gcn": EdgeKind("added", is_weighted=True, factor="degree"),
    "gcn_improved": EdgeKind("added", is_weighted=True, factor="degree", own_weight=2.0),
    "gcn_plain": EdgeKind("given", is_weighted=True, factor="degree"),
    "gcn_source": EdgeKind("removed", is_weighted=True, factor="source_degree"),
    "mean_self": EdgeKind("added", factor="mean"),
    "mean": EdgeKind(factor="mean"),
    "sum": EdgeKind(),
    "weighted_sum": EdgeKind(is_weighted=True),
    "weighted_mean": EdgeKind(is_weighted=True, factor="mean"),
    "max": EdgeKind(),
    "weighted_max": EdgeKind(is_weighted=True),
    "attention": EdgeKind("added"),
}
#: Kinds that can do with edges to which self-loops of weight 1 were added already.
WITH_SELF_LOOPS = ("gcn", "mean_self", "attention")


def of_relation(aggr: str, relation: int | None) -> str:
    """Name a sum over the edges of one relation, ``"mean/3"``; over all edges without one."""
    return aggr if relation is None else f"{aggr}/{relation}"


def split_relation(name: str) -> tuple[str, int | None]:
    """Split the name of a sum into the kind of sum and the relation, if there is one."""
    aggr, _, relation = name.partition("/")
    return aggr, int(relation) if relation else None


class WeighedEdges(NamedTuple):
    """Edges ``source -> target`` with weights, and factors of their ends; None is all ones."""

    source: NDArray[Any]
    target: NDArray[Any]
    weights: Floats | None
    source_factor: Floats | None
    target_factor: Floats


def weigh_edges(
    aggr: str, source: NDArray[Any], target: NDArray[Any], weights: Floats | None, num_nodes: int
) -> WeighedEdges:
    """Select and weigh the edges of a graph for a kind of sum."""
    kind = EDGE_KINDS[aggr]
    if not kind.is_weighted:
        weights = None
    if kind.loops == "added":
        source, target, weights = with_self_loops(
            source, target, weights, num_nodes, kind.own_weight
        )
    elif kind.loops == "removed":
        kept = source != target
        source, target = source[kept], target[kept]
        weights = None if weights is None else weights[kept]
    if kind.factor in ("degree", "source_degree"):
        ends = target if kind.factor == "degree" else source
        of_edges = None if weights is None else weights.astype(np.float64)
        scale: Floats = degree_scale(np.bincount(ends, of_edges, minlength=num_nodes)).astype(
            np.float32
        )
        return WeighedEdges(source, target, weights, scale, scale)
    factor = np.ones(num_nodes, dtype=np.float32)
    if kind.factor == "mean":
        factor /= np.maximum(np.bincount(target, minlength=num_nodes), 1).astype(np.float32)
    return WeighedEdges(source, target, weights, None, factor)
