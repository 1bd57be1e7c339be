"""Edge weights rounded to whole numbers, in NumPy: what makes sums over neighbours exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

# The constants of csrc/kernels.h.
TOTAL_BITS = 31
SMALLEST_WEIGHT = np.float32(2.0**-60)
LARGEST_WEIGHT = np.float32(1e30)


def bounded(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Limit weights to 1e30; infinite ones and NaN become that."""
    return np.where(weights < LARGEST_WEIGHT, weights, LARGEST_WEIGHT)


def round_edge_weights(
    offsets: NDArray[np.int64],
    ids: NDArray[Any],
    weights: NDArray[np.float32] | None,
    source_factor: NDArray[np.float32],
    target_factor: NDArray[np.float32],
    edge_bits: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Round edge weights to integers; return them and what each row's sum is multiplied by.

    ``q_ij = rint(w_ij t_j 2^e_i)`` with e_i such that the row's largest takes ``edge_bits`` bits,
    fewer in rows of so many entries (2^14 at 17 bits) that they would add up to 2^31.
    """
    with np.errstate(over="ignore"):
        x = source_factor[ids] if weights is None else bounded(weights * source_factor[ids])
    return round_row_weights(offsets, x, target_factor, edge_bits)


def round_row_weights(
    offsets: NDArray[np.int64],
    x: NDArray[np.float32],
    target_factor: NDArray[np.float32],
    edge_bits: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Round the weights ``x`` of all entries as :func:`round_edge_weights` does."""
    degree = np.diff(offsets)
    row = np.repeat(np.arange(len(degree)), degree)
    largest = np.zeros(len(degree), dtype=np.float32)
    np.maximum.at(largest, row, x)
    num_bits = np.full(len(degree), edge_bits)
    while (many := (num_bits > 1) & (degree >> (TOTAL_BITS - num_bits) != 0)).any():
        num_bits -= many
    counts = largest >= SMALLEST_WEIGHT
    exponent = np.where(counts, num_bits - np.frexp(largest)[1], 0)
    two_to_e = np.where(counts, np.ldexp(np.float32(1), exponent), np.float32(0))
    scaled = np.rint(x * two_to_e[row]).astype(np.int64)
    scale = target_factor * np.ldexp(np.float32(1), -exponent)
    return np.minimum(scaled, (1 << num_bits)[row] - 1), scale
