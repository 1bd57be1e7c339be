"""Products of binary matrices with dropped entries, and their gradients.

Training on bits: what dropout keeps is a mask of bits, a product with it counts bits under the
mask, and the gradient adds floats by sign. Each function takes a backend as in
:mod:`bignn.kernels`; masks and products are the same on all of them, gradients up to the order of
float additions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.bits import Words
from bignn.errors import input_error
from bignn.kernels import checked_backend, native
from bignn.kernels.random import random_words

#: Probabilities are multiples of 1 / KEEP_SCALE.
KEEP_SCALE = 1 << 12

Floats = NDArray[np.float32]


def keep_out_of(p: float) -> int:
    """Convert a dropout share p to the number of :data:`KEEP_SCALE` entries that are kept."""
    if not 0 <= p < 1:
        raise input_error("p", "in [0, 1)", p)
    return max(1, round((1 - p) * KEEP_SCALE))


def draw_masks(seed: int, keep: int, among: Words, *, backend: str | None = None) -> Words:
    """Draw masks: the bits of ``among`` [N, w], each kept with probability keep / KEEP_SCALE."""
    chosen = checked_backend(backend)
    masks = np.empty_like(among)
    if chosen != "reference":
        native.draw_masks(seed, keep, among, masks, chosen)
        return masks
    digits = KEEP_SCALE.bit_length() - 1
    numbers = np.arange(among.size, dtype=np.uint64) * np.uint64(digits)
    kept = np.zeros(among.size, dtype=np.uint64)
    lowest = (keep & -keep).bit_length() - 1
    for digit in range(lowest, digits):
        draw = random_words(seed, numbers + np.uint64(digit))
        kept = kept | draw if keep >> digit & 1 else kept & draw
    if keep == KEEP_SCALE:
        kept[:] = ~np.uint64(0)
    return kept.reshape(among.shape) & among


def masked_matmul(
    rows: Words, masks: Words, b: Words, num_bits: int, *, backend: str | None = None
) -> Floats:
    """Multiply under a mask: ``out[i, j] = Σ F_ik B_jk`` over the k kept in row i, [N, M]."""
    chosen = checked_backend(backend)
    if chosen != "reference":
        return native.masked_matmul(rows, masks, b, num_bits, chosen)
    kept = np.bitwise_count(masks).sum(axis=1, dtype=np.int32)[:, None]
    out = np.empty((len(rows), len(b)), dtype=np.float32)
    for j, column in enumerate(b):
        differing = np.bitwise_count(masks & (rows ^ column)).sum(axis=1, dtype=np.int32)
        out[:, j] = kept[:, 0] - 2 * differing
    return out


def masked_gradient(
    rows: Words, masks: Words, num_bits: int, g: Floats, *, backend: str | None = None
) -> Floats:
    """Compute B's gradient: ``out[j, k] = Σ g_ij F_ik`` over the rows i that keep k, [M, K]."""
    chosen = checked_backend(backend)
    if chosen != "reference":
        return native.masked_gradient(rows, masks, num_bits, g, chosen)
    signs = np.where(_as_bools(masks, num_bits), bits.unpack(rows, num_bits), 0)
    return np.asarray(g.T @ signs.astype(np.float32))


def keep_masked(x: Floats, masks: Words, *, backend: str | None = None) -> Floats:
    """Set the entries of x [N, K] that are not kept to 0."""
    chosen = checked_backend(backend)
    if chosen != "reference":
        return native.keep_masked(x, masks, chosen)
    return np.where(_as_bools(masks, x.shape[1]), x, np.float32(0))


def _as_bools(masks: Words, num_bits: int) -> NDArray[np.bool_]:
    return np.asarray(bits.unpack(masks, num_bits) > 0)
