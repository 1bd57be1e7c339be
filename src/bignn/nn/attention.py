"""Sums over neighbours with learned weights: the softmax of each row and the weighted sum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from bignn.nn.sparse import SparseMatrix, multiply

# Products of pairs of rows are taken in blocks of about this many numbers.
_BLOCK_VALUES = 1 << 24


def softmax_of_rows(pattern: SparseMatrix, scores: Tensor) -> Tensor:
    """Compute the softmax of scores [entries, heads] over the entries of each row, per head."""
    powers, sums = powers_of_rows(pattern, scores)
    return powers / sums[pattern.rows]


def powers_of_rows(pattern: SparseMatrix, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Compute ``exp(score - largest of its row)`` [entries, heads], and its sums [rows, heads]."""
    offsets, row = pattern.matrix.crow_indices(), pattern.rows

    def reduced(values: Tensor, how: str) -> Tensor:
        return torch.segment_reduce(values, how, offsets=offsets, axis=0, unsafe=True)

    largest = reduced(scores.detach(), "max")
    powers = (scores - largest[row]).exp()
    return powers, reduced(powers, "sum")


def weighted_sum(pattern: SparseMatrix, weights: Tensor, z: Tensor) -> Tensor:
    """Compute ``Σ_j weights_ij z_j`` for weights [entries, heads], z [sources, heads, channels].

    One sparse product per head, forward and backward, so that no [entries, channels] array exists
    at a time.
    """
    out: Tensor = _WeightedSum.apply(pattern, weights, z)  # type: ignore[no-untyped-call]
    return out


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: SparseMatrix, weights: Tensor, z: Tensor) -> Tensor:
        ctx.pattern = pattern
        ctx.save_for_backward(weights, z)
        return _per_head(pattern.matrix, weights, z)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        """Compute ``∂L/∂z_j = Σ_i weights_ij g_i`` and ``∂L/∂weights_ij = g_i · z_j``."""
        pattern: SparseMatrix = ctx.pattern
        weights, z = ctx.saved_tensors
        grad = grads[0]
        to_z = to_weights = None
        if ctx.needs_input_grad[2]:
            to_z = _per_head(pattern.transposed, weights, grad, pattern.order)
        if ctx.needs_input_grad[1]:
            row, column = pattern.rows, pattern.matrix.col_indices()
            to_weights = torch.empty_like(weights)
            size = max(1, _BLOCK_VALUES // max(1, z[0].numel()))
            for start in range(0, len(row), size):
                some = slice(start, start + size)
                to_weights[some] = (grad[row[some]] * z[column[some]]).sum(dim=-1)
        return None, to_weights, to_z


def _per_head(matrix: Tensor, weights: Tensor, z: Tensor, order: Tensor | None = None) -> Tensor:
    heads = [
        multiply(matrix, z[:, head].contiguous(), values=weights[:, head].contiguous(), order=order)
        for head in range(z.shape[1])
    ]
    return torch.stack(heads, dim=1)
