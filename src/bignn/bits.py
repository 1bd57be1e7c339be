"""The definition of a bit for training, kernels and files. Imports NumPy and ``errors`` only.

A value v is stored as bit 1 when v >= 0 (meaning +1) and as bit 0 otherwise (meaning -1).
So ``sign(0) = +1``: the paper leaves it open, and data has exact zeros (Cora has a feature
that no paper uses; standardised, its whole column is 0).

A row of K bits takes ``ceil(K / 64)`` little-endian 64-bit words; bit k of the row is bit
``k % 64`` of word ``k // 64``. The padding bits above K are 0. Two rows' paddings therefore
cancel in XOR, and with d = popcount(a ^ b) the number of places where the signs differ,

    a . b = (K - d) - d = K - 2 popcount(a ^ b).

K is always passed along, since the number of words does not determine it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.errors import input_error

#: Number of bits in a word.
WORD_BITS = 64

#: Packed rows: uint64 [..., ceil(K / 64)].
Words = NDArray[np.uint64]


def words_per_row(num_bits: int) -> int:
    """Return the number of 64-bit words that hold ``num_bits`` bits."""
    return -(-num_bits // WORD_BITS)


def sign(x: ArrayLike) -> NDArray[np.int8]:
    """Return +1 where x >= 0 and -1 elsewhere, as int8. NaN has no sign and is refused."""
    values = _real("x", x)
    return np.where(values >= 0, np.int8(1), np.int8(-1))


def pack(x: ArrayLike) -> Words:
    """Pack the signs of x [..., K] into words [..., ceil(K / 64)]."""
    values = _real("x", x)
    if values.ndim == 0:
        raise input_error("x", "an array with at least one dimension", "a scalar")
    num_bits = values.shape[-1]
    bits = np.zeros((*values.shape[:-1], words_per_row(num_bits) * WORD_BITS), dtype=np.bool_)
    bits[..., :num_bits] = values >= 0
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return packed.view(np.dtype("<u8")).astype(np.uint64, copy=False)


def unpack(words: Words, num_bits: int) -> NDArray[np.int8]:
    """Return the signs [..., K] that :func:`pack` stored in words [..., ceil(K / 64)]."""
    check_words("words", words, num_bits)
    octets = np.ascontiguousarray(words).astype(np.dtype("<u8"), copy=False).view(np.uint8)
    bits = np.unpackbits(octets, axis=-1, count=num_bits, bitorder="little")
    return np.where(bits, np.int8(1), np.int8(-1))


def check_words(argument: str, words: Any, num_bits: int) -> None:
    """Refuse anything but packed rows of ``num_bits`` bits."""
    if not isinstance(words, np.ndarray) or words.dtype != np.uint64 or words.ndim == 0:
        found = getattr(words, "dtype", type(words).__name__)
        raise input_error(
            argument, "a uint64 array of packed rows", found, "make it with bignn.bits.pack"
        )
    if num_bits < 0 or words.shape[-1] != words_per_row(num_bits):
        most = words.shape[-1] * WORD_BITS
        raise input_error(
            "num_bits",
            f"in ({max(most - WORD_BITS, -1)}, {most}] for {words.shape[-1]} words per row",
            num_bits,
            "pass the K of the array given to pack",
        )


def _real(argument: str, x: ArrayLike) -> NDArray[Any]:
    values = np.asarray(x)
    if values.dtype.kind not in "fiub":
        raise input_error(argument, "an array of real numbers", f"dtype {values.dtype}")
    if values.dtype.kind == "f" and np.isnan(values).any():
        raise input_error(argument, "free of NaN", "NaN", "clean or impute the values first")
    return values
