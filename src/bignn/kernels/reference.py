"""Every kernel in NumPy, as plainly as possible: the oracle of the fast ones, and a fallback."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words


def pack_rows(x: NDArray[np.float32]) -> Words:
    """See :func:`bignn.kernels.pack_rows`."""
    return bits.pack(x)


def xnor_matmul(a: Words, b: Words, num_bits: int) -> NDArray[np.int32]:
    """See :func:`bignn.kernels.xnor_matmul`. A row at a time, so temporaries stay small."""
    out = np.empty((len(a), len(b)), dtype=np.int32)
    for i, row in enumerate(a):
        out[i] = num_bits - 2 * np.bitwise_count(row ^ b).sum(axis=1, dtype=np.int32)
    return out


# The constants of csrc/kernels.h.
_TOTAL_BITS = 31
_SMALLEST_WEIGHT = np.float32(2.0**-60)
_LARGEST_WEIGHT = np.float32(1e30)


def bounded(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Limit weights to 1e30; infinite ones and NaN become that."""
    return np.where(weights < _LARGEST_WEIGHT, weights, _LARGEST_WEIGHT)


def first_largest(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Find the first of each row's largest values; NaN counts as the smallest."""
    numbers = np.where(np.isnan(values), -np.inf, values)
    return np.asarray(numbers.argmax(axis=1), dtype=np.int64)


def quantize(
    offsets: NDArray[np.int64],
    ids: NDArray[Any],
    weights: NDArray[np.float32] | None,
    source_factor: NDArray[np.float32],
    target_factor: NDArray[np.float32],
    edge_bits: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Round edge weights to integers; returns them and what each row's sum is multiplied by.

    ``q_ij = rint(w_ij t_j 2^e_i)`` with e_i such that the row's largest takes ``edge_bits`` bits,
    fewer in rows of so many entries (2^14 at 17 bits) that they would add up to 2^31.
    """
    with np.errstate(over="ignore"):
        x = source_factor[ids] if weights is None else bounded(weights * source_factor[ids])
    return quantize_rows(offsets, x, target_factor, edge_bits)


def quantize_rows(
    offsets: NDArray[np.int64],
    x: NDArray[np.float32],
    target_factor: NDArray[np.float32],
    edge_bits: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Round the weights ``x`` of all entries as :func:`quantize` does."""
    degree = np.diff(offsets)
    row = np.repeat(np.arange(len(degree)), degree)
    largest = np.zeros(len(degree), dtype=np.float32)
    np.maximum.at(largest, row, x)
    num_bits = np.full(len(degree), edge_bits)
    while (many := (num_bits > 1) & (degree >> (_TOTAL_BITS - num_bits) != 0)).any():
        num_bits -= many
    counts = largest >= _SMALLEST_WEIGHT
    exponent = np.where(counts, num_bits - np.frexp(largest)[1], 0)
    two_to_e = np.where(counts, np.ldexp(np.float32(1), exponent), np.float32(0))
    scaled = np.rint(x * two_to_e[row]).astype(np.int64)
    scale = target_factor * np.ldexp(np.float32(1), -exponent)
    return np.minimum(scaled, (1 << num_bits)[row] - 1), scale


def gather(
    dots: NDArray[np.int32], offsets: NDArray[np.int64], ids: NDArray[Any], q: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Sum ``Σ_j q_ij dots_j`` [rows, columns], exactly."""
    out = np.zeros((len(offsets) - 1, dots.shape[1]), dtype=np.int64)
    for i in range(len(out)):
        entries = slice(offsets[i], offsets[i + 1])
        out[i] = q[entries] @ dots[ids[entries]].astype(np.int64)
    return out


def binarize(h: NDArray[np.float32]) -> tuple[Words, NDArray[np.float32]]:
    """Pack the signs of rows, and compute β, their mean absolute values.

    The order of the sum is defined: sixteen partial sums, column c in number c % 16, then halves
    onto halves.
    """
    rows, columns = h.shape
    padded = np.zeros((rows, -(-columns // 16) * 16), dtype=np.float32)
    padded[:, :columns] = np.abs(h)
    partial = np.zeros((rows, 16), dtype=np.float32)
    with np.errstate(over="ignore"):
        for start in range(0, padded.shape[1], 16):
            partial += padded[:, start : start + 16]
        for half in (8, 4, 2, 1):
            partial = partial[:, :half] + partial[:, half : 2 * half]
    signs = np.where(h >= 0, np.float32(1), np.float32(-1))  # not a number: -1
    return bits.pack(signs), partial[:, 0] / np.float32(columns)
