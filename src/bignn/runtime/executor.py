"""Runs any list of operations in NumPy: floats stay floats, products of bits are exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bignn import bits, kernels
from bignn.bits import Words
from bignn.kernels.layer import Edges
from bignn.kernels.reference import binarize
from bignn.runtime.input_stage import absolute_sums, normalized
from bignn.runtime.network import aggregation_of
from bignn.runtime.operations import NEIGHBOURLY, Operation

Floats = NDArray[np.float32]
Nodes = NDArray[np.int64]

# Neighbours are summed in blocks of about this many numbers.
_BLOCK_VALUES = 1 << 22


@dataclass(frozen=True, eq=False)
class Bits:
    """A binary value: ``beta`` times the ±1 of ``words``."""

    words: Words
    beta: Floats
    num_bits: int

    def floats(self) -> Floats:
        """Convert to plain numbers."""
        return bits.unpack(self.words, self.num_bits).astype(np.float32) * self.beta[:, None]

    def __getitem__(self, rows: NDArray[np.int64]) -> Bits:
        return Bits(self.words[rows], self.beta[rows], self.num_bits)


Value = Bits | Floats


def run(
    operations: Sequence[Operation],
    values: Mapping[str, Value],
    rows: Mapping[str, Nodes] | None,
    edges: Callable[[str, str, str], Edges],
    backend: str,
) -> Floats:
    """Run operations in order; return the last one's value as floats.

    Args:
        operations: the operations, in order.
        values: values that are known before the first of them.
        rows: the nodes (rising) that each value has; None if every value has all nodes.
        edges: gives the edges of an operation that reads neighbours, by its aggregation and the
            values it takes and makes.
        backend: backend of products of bits.

    """
    found: dict[str, Value] = dict(values)
    uses = {name: number for number, step in enumerate(operations) for name in step.inputs}
    for number, step in enumerate(operations):
        taken = [found[name] for name in step.inputs]
        # Numbers may be absurd; what overflows is infinite or not a number.
        with np.errstate(over="ignore", invalid="ignore"):
            if step.op in NEIGHBOURLY:
                block = edges(aggregation_of(step), step.inputs[0], step.out)
                found[step.out] = _neighbourly(step, taken[0], block)
            else:
                if rows is not None:
                    taken = [
                        some
                        if rows[name] is rows[step.out]
                        else some[np.searchsorted(rows[name], rows[step.out])]
                        for name, some in zip(step.inputs, taken, strict=True)
                    ]
                found[step.out] = _rowwise(step, taken, backend)
        for name in step.inputs:  # large values go as soon as nothing needs them
            if uses[name] == number:
                found.pop(name, None)
    return _floats(found[operations[-1].out])


def _floats(value: Value) -> Floats:
    return value.floats() if isinstance(value, Bits) else value


def _rowwise(step: Operation, taken: Sequence[Value], backend: str) -> Value:
    first, arrays = taken[0], step.arrays
    if step.op == "binary_linear":
        return _binary_product(step, first, backend)
    if step.op == "binarize":
        words, beta = binarize(_floats(first))
        return Bits(words, beta, step.num_inputs)
    x = _floats(first)
    out: Floats
    match step.op:
        case "linear":
            out = x @ arrays["weight"].T
        case "normalize_rows":
            out = normalized(
                x, normalize_rows=True, mean=None, scale=None, absolute_sums=absolute_sums
            )
        case "standardize" | "batch_norm":
            out = (x - arrays["mean"]) * arrays["scale"]
        case "bias":
            out = x + arrays["bias"]
        case "scale":
            out = x * np.float32(step.parameters["factor"])
        case "relu":
            out = np.maximum(x, np.float32(0))
        case "elu":
            out = np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0))))
        case "concat":
            out = np.concatenate([_floats(value) for value in taken], axis=1)
        case _:
            assert step.op == "add"
            out = x
            for value in taken[1:]:
                out = out + _floats(value)
    return out


def _binary_product(step: Operation, value: Value, backend: str) -> Floats:
    words = step.arrays["words"]
    alpha: Floats = step.arrays["alpha"]
    if isinstance(value, Bits):
        dots = kernels.xnor_matmul(value.words, words, step.num_inputs, backend=backend)
        return dots.astype(np.float32) * value.beta[:, None] * alpha
    signs = bits.unpack(words, step.num_inputs).astype(np.float32)
    return np.asarray(value @ signs.T) * alpha


def _neighbourly(step: Operation, value: Value, edges: Edges) -> Floats:
    z = _floats(value)
    if step.op == "attention":
        return _attend(step, z, edges)
    aggr = aggregation_of(step)
    if aggr == "gcn":
        assert edges.source_scale is not None
        z = z * edges.source_scale[:, None]
    sums = _sums(z, edges, edges.weights)
    return sums if aggr == "sum" else sums * edges.target_factor[:, None]


def _sums(z: Floats, edges: Edges, weights: Floats | None) -> Floats:
    """Sum ``Σ_j w_ij z_j`` for every row."""
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
            out[start + filled] = np.add.reduceat(terms, offsets[filled], axis=0)
    return out


def _attend(step: Operation, z: Floats, edges: Edges) -> Floats:
    """Sum ``Σ_j softmax_j(leaky(a_dst · z_i + a_src · z_j)) z_j`` per head."""
    heads, channels = step.arrays["att_src"].shape
    own = np.arange(edges.num_rows) if edges.own_ids is None else edges.own_ids
    row = np.repeat(np.arange(edges.num_rows), np.diff(edges.offsets))
    filled = np.flatnonzero(np.diff(edges.offsets))
    starts = edges.offsets[filled]
    slope = np.float32(step.parameters["negative_slope"])
    parts = []
    for head in range(heads):
        part = np.ascontiguousarray(z[:, head * channels : (head + 1) * channels])
        source, target = part @ step.arrays["att_src"][head], part @ step.arrays["att_dst"][head]
        scores = target[own][row] + source[edges.ids]
        scores = np.where(scores >= 0, scores, scores * slope)
        top = np.zeros(edges.num_rows, dtype=np.float32)
        total = np.ones(edges.num_rows, dtype=np.float32)
        if filled.size:
            top[filled] = np.maximum.reduceat(scores, starts)
        shares = np.exp(scores - top[row])
        if filled.size:
            total[filled] = np.add.reduceat(shares, starts)
        parts.append(_sums(part, edges, shares / total[row]))
    if step.parameters["concat"]:
        return np.concatenate(parts, axis=1)
    return np.asarray(np.mean(parts, axis=0), dtype=np.float32)
