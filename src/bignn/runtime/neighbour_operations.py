"""Operations that compute each row from the rows of its neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.layer import Edges
from bignn.runtime.operations import Operation
from bignn.runtime.values import Floats, Value, floats_of

# Neighbours are summed in blocks of about this many numbers.
_BLOCK_VALUES = 1 << 22


def run_on_neighbours(step: Operation, value: Value, edges: Edges) -> Floats:
    """Run an operation over the given edges."""
    z = floats_of(value)
    if step.op == "attention":
        return _attend(step, z, edges)
    if step.op == "attention_v2":
        return _attend_pairs(step, z, edges)
    if step.op == "attention_dot":
        return _attend_dots(step, z, edges)
    if step.parameters["aggr"] in ("max", "weighted_max"):
        return _sums(z, edges, edges.weights, np.maximum)
    if edges.source_scale is not None:
        z = z * edges.source_scale[:, None]
    return _sums(z, edges, edges.weights) * edges.target_factor[:, None]


def _sums(z: Floats, edges: Edges, weights: Floats | None, combined: np.ufunc = np.add) -> Floats:
    """Sum ``Σ_j w_ij z_j`` for every row, or combine them otherwise; 0 for no neighbours."""
    out = np.zeros((edges.num_rows, z.shape[1]), dtype=np.float32)
    per_row = max(1, len(edges.ids) // max(1, edges.num_rows)) * z.shape[1]
    size = max(1, _BLOCK_VALUES // per_row)
    for start in range(0, edges.num_rows, size):
        stop = min(start + size, edges.num_rows)
        first, last = edges.offsets[start], edges.offsets[stop]
        offsets = edges.offsets[start : stop + 1] - first
        terms = z[edges.ids[first:last]]
        if weights is not None:
            terms *= weights[first:last, None]
        filled = np.flatnonzero(np.diff(offsets))  # reduceat cannot sum nothing
        if filled.size:
            out[start + filled] = combined.reduceat(terms, offsets[filled], axis=0)
    return out


def _attend(step: Operation, z: Floats, edges: Edges) -> Floats:
    """Sum ``Σ_j softmax_j(leaky(a_dst · z_i + a_src · z_j)) z_j`` per head."""
    own, row = _own_and_rows(edges)
    vectors = step.arrays["att_src"], step.arrays["att_dst"]
    parts = []
    for part, to_others, to_self in zip(_heads(z, len(vectors[0])), *vectors, strict=True):
        source, target = part @ to_others, part @ to_self
        scores = _leaky(target[own][row] + source[edges.ids], step)
        parts.append(_sums(part, edges, _shares(scores, row, edges)))
    return _joined(step, parts)


def _attend_pairs(step: Operation, z: Floats, edges: Edges) -> Floats:
    """Sum ``Σ_j softmax_j(a · leaky(target_i + source_j)) source_j`` per head."""
    own, row = _own_and_rows(edges)
    att = step.arrays["att"]
    sources, targets = (_heads(half, len(att)) for half in _heads(z, 2))
    parts = []
    for source, target, vector in zip(sources, targets, att, strict=True):
        scores = np.empty(len(row), dtype=np.float32)
        for some in _blocks(len(row), z.shape[1]):
            sums = target[own[row[some]]] + source[edges.ids[some]]
            scores[some] = _leaky(sums, step) @ vector
        parts.append(_sums(source, edges, _shares(scores, row, edges)))
    return _joined(step, parts)


def _attend_dots(step: Operation, z: Floats, edges: Edges) -> Floats:
    """Sum ``Σ_j softmax_j(query_i · key_j / √C) value_j`` per head."""
    own, row = _own_and_rows(edges)
    heads = int(step.parameters["heads"])
    parts = []
    for query, key, value in zip(*(_heads(third, heads) for third in _heads(z, 3)), strict=True):
        scores = np.empty(len(row), dtype=np.float32)
        for some in _blocks(len(row), z.shape[1]):
            scores[some] = (query[own[row[some]]] * key[edges.ids[some]]).sum(axis=1)
        scores /= np.float32(key.shape[1] ** 0.5)
        parts.append(_sums(value, edges, _shares(scores, row, edges)))
    return _joined(step, parts)


def _own_and_rows(edges: Edges) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the source that each row is, and the row of each entry."""
    own = np.arange(edges.num_rows) if edges.own_ids is None else edges.own_ids
    return own, np.repeat(np.arange(edges.num_rows), np.diff(edges.offsets))


def _heads(z: Floats, count: int) -> list[Floats]:
    """Split columns into equal parts."""
    return [np.ascontiguousarray(part) for part in np.split(z, count, axis=1)]


def _blocks(num_entries: int, width: int) -> list[slice]:
    size = max(1, _BLOCK_VALUES // width)
    return [slice(start, start + size) for start in range(0, num_entries, size)]


def _leaky(scores: Floats, step: Operation) -> Floats:
    return np.where(scores >= 0, scores, scores * np.float32(step.parameters["negative_slope"]))


def _shares(scores: Floats, row: NDArray[np.int64], edges: Edges) -> Floats:
    """Compute the softmax of the scores of each row's entries."""
    filled = np.flatnonzero(np.diff(edges.offsets))
    if not filled.size:
        return scores
    starts = edges.offsets[filled]
    top, total = np.zeros((2, edges.num_rows), dtype=np.float32)
    top[filled] = np.maximum.reduceat(scores, starts)
    shares: Floats = np.exp(scores - top[row])
    total[filled] = np.add.reduceat(shares, starts)
    return shares / total[row]


def _joined(step: Operation, parts: list[Floats]) -> Floats:
    """Put heads side by side, or take their mean."""
    if step.parameters["concat"]:
        return np.concatenate(parts, axis=1)
    return np.asarray(np.mean(parts, axis=0), dtype=np.float32)
