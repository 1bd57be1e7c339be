"""Packed arithmetic: arguments are checked here once, then a backend does the work.

Backends are ``"reference"`` (NumPy, the oracle, always there) and one per instruction set of the
native extension: ``"portable"``, on x86-64 ``"avx2"``, ``"avx2_vnni"`` and ``"avx512"``, on 64-bit
ARM ``"neon"`` and ``"neon_dot"``. All give the same integers.
May import ``bits``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words, check_words
from bignn.errors import input_error
from bignn.kernels import native, reference

__all__ = [
    "Columns",
    "available_backends",
    "checked_backend",
    "default_backend",
    "pack_rows",
    "prepare_columns",
    "xnor_matmul",
    "xnor_matmul_into",
]


def default_backend() -> str:
    """Name the backend that is used by default: the fastest the CPU has, or the reference."""
    return native.best() or "reference"


def available_backends() -> list[str]:
    """List every backend that runs on this machine."""
    return ["reference", *native.supported()]


def pack_rows(x: NDArray[Any], *, backend: str | None = None) -> Words:
    """Pack the signs of x [N, K] into words [N, ceil(K / 64)], as ``bits.pack`` does."""
    if x.ndim != 2:
        raise input_error("x", "a matrix", f"{x.ndim} dimensions")
    if np.isnan(x).any():
        raise input_error("x", "free of NaN", "NaN", "clean or impute the values first")
    if checked_backend(backend) == "reference":
        return reference.pack_rows(x)
    if x.dtype != np.float32:  # a cast first could round a tiny negative number to zero
        x = np.where(x >= 0, np.float32(1), np.float32(-1))
    return native.pack_rows(native.readable(x), checked_backend(backend))


def xnor_matmul(
    a: Words, b: Words, num_bits: int, *, backend: str | None = None
) -> NDArray[np.int32]:
    """Multiply two ±1 matrices given as bits, exactly.

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
            raise input_error(name, "a matrix of packed rows", f"{words.ndim} dimensions")
        check_words(name, words, num_bits)
    if num_bits >= 2**31:
        raise input_error("num_bits", "below 2**31", num_bits)
    if checked_backend(backend) == "reference":
        return reference.xnor_matmul(a, b, num_bits)
    return native.xnor_matmul(native.readable(a), b, num_bits, checked_backend(backend))


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a ±1 matrix, laid out for one backend by :func:`prepare_columns`."""

    data: NDArray[Any]
    num_columns: int
    num_bits: int
    backend: str


def prepare_columns(b: Words, num_bits: int, *, backend: str | None = None) -> Columns:
    """Lay columns out once for many calls of :func:`xnor_matmul_into`."""
    check_words("b", b, num_bits)
    chosen = checked_backend(backend)
    data = b if chosen == "reference" else native.panels(b)
    return Columns(data, len(b), num_bits, chosen)


def xnor_matmul_into(
    a: Words,
    columns: Columns,
    out: NDArray[np.int32],
    *,
    begin: int = 0,
    end: int | None = None,
) -> None:
    """Multiply rows [begin, end) as :func:`xnor_matmul` does, into an int32 buffer [N, M]."""
    check_words("a", a, columns.num_bits)
    end = len(a) if end is None else end
    if not 0 <= begin <= end <= len(a):
        raise input_error("begin, end", f"a range within 0..{len(a)}", (begin, end))
    if out.dtype != np.int32 or out.shape != (len(a), columns.num_columns):
        got = f"{out.dtype} {list(out.shape)}"
        raise input_error("out", f"int32 [{len(a)}, {columns.num_columns}]", got)
    if not all(array.flags.c_contiguous and array.flags.aligned for array in (a, out)):
        raise input_error("a, out", "contiguous", "arrays with gaps or not aligned", "use copies")
    if columns.backend == "reference":
        out[begin:end] = reference.xnor_matmul(a[begin:end], columns.data, columns.num_bits)
    else:
        native.xnor_into(a, columns.data, columns.num_bits, out, begin, end, columns.backend)


def checked_backend(backend: str | None) -> str:
    """Resolve a backend's name, None for the default; refuse one that does not run here."""
    if backend is None:
        return default_backend()
    if backend not in available_backends():
        why = native.why_not(backend)
        raise input_error("backend", f"one of {available_backends()}", repr(backend), why)
    return backend
