"""Packed arithmetic: arguments are checked here once, then a backend does the work.

Backends are ``"reference"`` (NumPy, the oracle, always there) and one per instruction set of the
native extension: ``"portable"``, ``"avx2"``, ``"avx512"``. All give the same integers.
May import ``bits``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words, check_words
from bignn.errors import wrong
from bignn.kernels import native, reference

__all__ = ["available_backends", "default_backend", "pack_rows", "xnor_matmul"]


def default_backend() -> str:
    """The backend used when none is named: the best the CPU has, or the reference."""
    return native.best() or "reference"


def available_backends() -> list[str]:
    """Every backend that runs on this machine."""
    return ["reference", *native.supported()]


def pack_rows(x: NDArray[Any], *, backend: str | None = None) -> Words:
    """The signs of x [N, K] as words [N, ceil(K / 64)]; what ``bits.pack`` does, on a backend."""
    if x.ndim != 2:
        raise wrong("x", "a matrix", f"{x.ndim} dimensions")
    if np.isnan(x).any():
        raise wrong("x", "free of NaN", "NaN", "clean or impute the values first")
    if _checked(backend) == "reference":
        return reference.pack_rows(x)
    if x.dtype != np.float32:  # a cast first could round a tiny negative number to zero
        x = np.where(x >= 0, np.float32(1), np.float32(-1))
    return native.pack_rows(np.ascontiguousarray(x), _checked(backend))


def xnor_matmul(
    a: Words, b: Words, num_bits: int, *, backend: str | None = None
) -> NDArray[np.int32]:
    """The product of two ±1 matrices from their bits, exactly.

    ``out[i, j] = num_bits - 2 popcount(a[i] ^ b[j])``

    Args:
        a: packed rows [N, ceil(K / 64)].
        b: packed columns [M, ceil(K / 64)] (one row of words per output column).
        num_bits: K.
        backend: a name from :func:`available_backends`; by default the fastest.

    Returns:
        int32 [N, M].

    """
    for name, words in (("a", a), ("b", b)):
        if words.ndim != 2:
            raise wrong(name, "a matrix of packed rows", f"{words.ndim} dimensions")
        check_words(name, words, num_bits)
    if num_bits >= 2**31:
        raise wrong("num_bits", "below 2**31", num_bits)
    if _checked(backend) == "reference":
        return reference.xnor_matmul(a, b, num_bits)
    return native.xnor_matmul(
        np.ascontiguousarray(a), np.ascontiguousarray(b), num_bits, _checked(backend)
    )


def _checked(backend: str | None) -> str:
    if backend is None:
        return default_backend()
    if backend not in available_backends():
        why = native.why_not(backend)
        raise wrong("backend", f"one of {available_backends()}", repr(backend), why)
    return backend
