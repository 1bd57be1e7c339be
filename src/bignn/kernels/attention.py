"""Attention in integers: scores of bits, and the weights they give neighbours.

A head's scores of a node are ``a · z`` with ``z = β α ⊙ (F · B)``, that is ``β (F · v)`` with
``v = B (α ⊙ a)``, a real vector. It becomes whole numbers here, so that sums over bits are the same
in every order (csrc/kernels.h has the rest of the definition).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words
from bignn.kernels.edge_rounding import bounded

Floats = NDArray[np.float32]

# The constants of csrc/kernels.h and csrc/arithmetic.h.
SHARE_BITS = 22
LOWEST_SCORE = np.float32(-64)
LARGEST_SCORE = np.float32(1e30)
LOG2_OF_E = np.float32(1.442695)
HIGH_LOG2 = np.float32(0.693359375)
LOW_LOG2 = np.float32(-0.00021219444)
EXP_COEFFICIENTS = tuple(
    np.float32(c) for c in (0.0013926268, 0.008363247, 0.041666552, 0.16666576, 0.5)
)

# Absolute values of a score's whole numbers add up to less than 2^31.
_SCORE_BITS = 30
# What is larger than float32 can count with is refused.
_MOST_EXPONENT = 60


@dataclass(frozen=True, eq=False)
class Attention:
    """How a layer scores its neighbours.

    Attributes:
        heads: number of heads H; columns of a head stand side by side in B.
        averages: whether the heads' results are averaged instead of put side by side.
        slope: slope of the leaky ReLU.
        values: int32 [2 H, inputs], for sources, then targets: what a bit adds to a score.
        sigma: float32 [2 H], powers of two that scores are multiplied by.
        end_scale: float32 [outputs], applied after the heads are put together.

    """

    heads: int
    averages: bool
    slope: float
    values: NDArray[np.int32]
    sigma: Floats
    end_scale: Floats


def whole_scores(
    words: Words, num_inputs: int, alpha: Floats, vectors: Floats
) -> tuple[NDArray[np.int32], Floats] | None:
    """Round ``v_h = Σ_c a_hc α_c B_c`` to integers ``V = rint(v 2^s)`` [H, inputs], with ``2^-s``.

    Exact up to the rounding to V: ``a α`` becomes whole numbers of 40 bits, and these are added.
    None if the numbers are out of range.

    Args:
        words: B as bits [H C, ceil(inputs / 64)].
        num_inputs: rows of B.
        alpha: scales of B's columns [H C].
        vectors: a [H, C].

    """
    heads, channels = vectors.shape
    values = np.zeros((heads, num_inputs), dtype=np.int32)
    sigma = np.ones(heads, dtype=np.float32)
    for head in range(heads):
        columns = slice(head * channels, (head + 1) * channels)
        exact = vectors[head].astype(np.float64) * alpha[columns].astype(np.float64)
        largest = float(np.abs(exact).max(initial=0))
        if largest == 0:
            continue
        up = 40 - int(np.frexp(largest)[1])
        whole = np.rint(np.ldexp(exact, up)).astype(np.int64)
        sums = np.zeros(num_inputs, dtype=np.int64)
        for sign, factor in zip(bits.unpack(words[columns], num_inputs), whole, strict=True):
            sums += sign * factor
        total = int(np.abs(sums).sum())
        down = max(0, total.bit_length() - _SCORE_BITS)
        # Halves away from -infinity.
        values[head] = (sums + ((1 << down) >> 1)) >> down
        exponent = down - up
        if exponent > _MOST_EXPONENT:
            return None
        if exponent < -100:  # less than anything that a score is added to
            values[head], exponent = 0, 0
        sigma[head] = np.ldexp(np.float32(1), exponent)
    return values, sigma


def scores(attention: Attention, words: Words, num_inputs: int, factor: Floats) -> Floats:
    """Compute the scores of all rows [2 H, N]: ``fl(F · V) σ t``."""
    signs = bits.unpack(words, num_inputs).astype(np.int64)
    dots = attention.values.astype(np.int64) @ signs.T
    with np.errstate(over="ignore"):
        exact = dots.astype(np.float32) * attention.sigma[:, None] * factor
    return np.asarray(np.clip(exact, -LARGEST_SCORE, LARGEST_SCORE), dtype=np.float32)


def exp_of_negative(t: Floats) -> Floats:
    """Compute ``exp(t)`` for t ≤ 0, each operation rounded to float32; 0 below -64."""
    counts = t >= LOWEST_SCORE
    t = np.where(counts, t, np.float32(0))
    n = np.rint(t * LOG2_OF_E)
    r = (t - n * HIGH_LOG2) - n * LOW_LOG2
    p = EXP_COEFFICIENTS[0] * r + EXP_COEFFICIENTS[1]
    for coefficient in EXP_COEFFICIENTS[2:]:
        p = p * r + coefficient
    p = (p * (r * r) + r) + np.float32(1)
    return np.where(counts, np.ldexp(p, n.astype(np.int32)), np.float32(0))


def weights(
    attention: Attention,
    head: int,
    row_scores: Floats,
    offsets: NDArray[np.int64],
    ids: NDArray[Any],
    own: NDArray[Any] | None,
    factor: Floats,
) -> tuple[Floats, Floats]:
    """Weigh one head's neighbours: ``p_ij t_j`` of all entries, ``1 / Σ_j p_ij`` of all rows."""
    degree = np.diff(offsets)
    row = np.repeat(np.arange(len(degree)), degree)
    source = row_scores[head]
    target = row_scores[attention.heads + head]
    target = target[: len(degree)] if own is None else target[own]
    top = np.full(len(degree), -LARGEST_SCORE, dtype=np.float32)
    np.maximum.at(top, row, source[ids])
    slope = np.float32(attention.slope)
    p = exp_of_negative(_leaky(target[row] + source[ids], slope) - _leaky(target + top, slope)[row])
    shares = np.zeros(len(degree), dtype=np.int64)
    np.add.at(shares, row, np.rint(p * np.float32(1 << SHARE_BITS)).astype(np.int64))
    total = shares.astype(np.float32) * np.float32(2.0**-SHARE_BITS)
    with np.errstate(divide="ignore", over="ignore"):
        share = np.where(shares > 0, np.float32(1) / total, np.float32(0))
        return bounded(p * factor[ids]), share


def _leaky(x: Floats, slope: np.float32) -> Floats:
    return np.where(x >= 0, x, x * slope)
