"""Arithmetic of packed models in torch, to the last bit: scales, folded norms, attention."""

from __future__ import annotations

import torch
from torch import Tensor

from bignn.kernels import attention
from bignn.kernels.attention import SHARE_BITS
from bignn.kernels.edge_rounding import LARGEST_WEIGHT
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.sparse import SparseMatrix

# Python's numbers: torch would make float64 tensors of products with NumPy's.
_LARGEST_WEIGHT, _LARGEST_SCORE = float(LARGEST_WEIGHT), float(attention.LARGEST_SCORE)
_LOWEST_SCORE, _LOG2_OF_E = float(attention.LOWEST_SCORE), float(attention.LOG2_OF_E)
_HIGH_LOG2, _LOW_LOG2 = float(attention.HIGH_LOG2), float(attention.LOW_LOG2)
_EXP = tuple(map(float, attention.EXP_COEFFICIENTS))


def bounded(x: Tensor) -> Tensor:
    """Limit weights to 1e30; infinite ones and NaN become that."""
    return torch.where(x < _LARGEST_WEIGHT, x, _LARGEST_WEIGHT)


def power_of_two(exponent: Tensor) -> Tensor:
    """Compute ``2^exponent`` exactly, for int32 exponents of normal float32 numbers."""
    return ((exponent + 127) << 23).view(torch.float32)


def mean_in_order(h: Tensor) -> Tensor:
    """Compute β, the mean absolute values of rows [N, 1], in the order that packed models have.

    As :func:`bignn.kernels.reference.binarize`: sixteen partial sums, then halves onto halves.
    """
    rows, columns = h.shape
    padded = torch.nn.functional.pad(h.detach().float().abs(), (0, -columns % 16))
    parts = padded.view(rows, -1, 16).unbind(1)
    partial = parts[0]
    for part in parts[1:]:
        partial = partial + part
    for half in (8, 4, 2, 1):
        partial = partial[:, :half] + partial[:, half : 2 * half]
    # A divisor that is a tensor: torch may multiply by a number's reciprocal instead.
    return bounded(partial / partial.new_full((1, 1), columns))


def folded(scale: Tensor, bias: Tensor | None, norm: BatchNorm | None) -> tuple[Tensor, Tensor]:
    """Fold batch normalisation (in evaluation) into the scale and the shift before it.

    Computed in float64 and rounded once, as packed models have it.
    """
    shift = scale.new_zeros(()) if bias is None else bias
    if norm is None:
        return scale, shift
    factor, mean = factor_and_mean(norm)
    return (scale.double() * factor).float(), ((shift.double() - mean) * factor).float()


def scale_and_shift(sums: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Compute ``sums * scale + shift``, in the place of the sums where no gradient is wanted."""
    if torch.is_grad_enabled() or sums.dtype != scale.dtype:
        return sums * scale + shift
    return sums.mul_(scale).add_(shift)


def factor_and_mean(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    """Return ``1 / std`` and the mean of batch normalisation, float32 numbers in float64."""
    assert norm.running_var is not None
    assert norm.running_mean is not None
    factor = (norm.running_var.double() + norm.eps).rsqrt().float().double()
    return factor, norm.running_mean.double()


def attention_of_scores(
    pattern: SparseMatrix, source: Tensor, target: Tensor, slope: float
) -> tuple[Tensor, Tensor]:
    """Weigh neighbours by scores, to the last bit as packed models do.

    As :func:`bignn.kernels.attention.weights`.

    Args:
        pattern: the edges.
        source: scores of the sources [sources, heads], float32.
        target: scores of the targets [rows, heads], float32.
        slope: slope of the leaky ReLU.

    Returns:
        ``p_ij = exp(leaky(target_i + source_j) - top_i)`` [entries, heads], and ``1 / Σ_j p_ij``
        [rows, heads].

    """
    offsets, row = pattern.matrix.crow_indices(), pattern.rows
    of_entries = source[pattern.matrix.col_indices()]
    top = torch.segment_reduce(
        of_entries, "max", offsets=offsets, axis=0, unsafe=True, initial=-_LARGEST_SCORE
    )
    largest = _leaky(target + top, slope)
    p = exp_of_negative(_leaky(target[row] + of_entries, slope) - largest[row])
    units = (p * float(1 << SHARE_BITS)).round_().double()
    shares = torch.zeros_like(largest, dtype=torch.float64).index_add_(0, row, units)
    total = shares.float() * 2.0**-SHARE_BITS
    return p, torch.where(shares > 0, 1 / total, 0.0)


def exp_of_negative(t: Tensor) -> Tensor:
    """Compute ``exp(t)`` for t <= 0 as :func:`bignn.kernels.attention.exp_of_negative` does."""
    counts = t >= _LOWEST_SCORE
    t = torch.where(counts, t, 0.0)
    n = (t * _LOG2_OF_E).round_()
    r = (t - n * _HIGH_LOG2) - n * _LOW_LOG2
    p = r * _EXP[0] + _EXP[1]
    for coefficient in _EXP[2:]:
        p = p * r + coefficient
    p = (p * (r * r) + r) + 1.0
    return torch.where(counts, p * power_of_two(n.int()), 0.0)


def exact_scores(signs: Tensor, values: Tensor, sigma: Tensor, beta: Tensor) -> Tensor:
    """Compute scores ``float32(F · V) σ β`` [rows, scores] of signs F, within ±1e30."""
    dots = (signs.double() @ values.double().t()).float()
    return (dots * sigma * beta).clamp(-_LARGEST_SCORE, _LARGEST_SCORE)


def _leaky(x: Tensor, slope: float) -> Tensor:
    return torch.where(x >= 0, x, x * slope)
