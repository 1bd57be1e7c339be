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


def first_largest(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Find the first of each row's largest values; NaN counts as the smallest."""
    numbers = np.where(np.isnan(values), -np.inf, values)
    return np.asarray(numbers.argmax(axis=1), dtype=np.int64)


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
