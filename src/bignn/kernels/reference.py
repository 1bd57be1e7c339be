"""Every kernel in NumPy, as plainly as possible: the oracle for the fast ones, and the fallback."""

from __future__ import annotations

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
