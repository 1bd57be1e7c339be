"""Holds torch and its libraries to an instruction set, and asks them which one they use.

The variables of the environment take effect while torch loads, so importing this file does not load
it. Processes that are started meanwhile inherit them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from bignn.errors import input_error


class Limit(NamedTuple):
    """What holds torch to an instruction set, and what it then calls its capability."""

    variables: Mapping[str, str]
    capability: str


def _limit(aten: str, mkl: str, onednn: str) -> Limit:
    """Make the limit of torch's own kernels, of MKL's products and of oneDNN's."""
    names = ("ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA")
    return Limit(dict(zip(names, (aten, mkl, onednn), strict=True)), aten.upper())


#: By how the names of our backends begin. MKL has nothing below SSE 4.2, and torch on ARM nothing
#: below NEON; nothing is above AVX-512, so there torch chooses by itself.
_LIMITS = {
    "portable": _limit("default", "SSE4_2", "SSE41"),
    "avx2": _limit("avx2", "AVX2", "AVX2"),
    "avx512": Limit({}, "AVX512"),
    "neon": Limit({"ATEN_CPU_CAPABILITY": "default"}, "DEFAULT"),
}

#: Every variable that limits the instruction sets of torch's libraries.
VARIABLES = (*_LIMITS["avx2"].variables, "DNNL_MAX_CPU_ISA")


def limit_of(backend: str) -> Limit:
    """Return what holds torch to the instruction set of one of our backends."""
    return next(limit for name, limit in _LIMITS.items() if backend.startswith(name))


@contextmanager
def torch_held_to(backend: str | None) -> Iterator[None]:
    """Hold torch, if it is loaded inside the block, to a backend's instruction set.

    None leaves the environment as it is.
    """
    before = {name: os.environ[name] for name in VARIABLES if name in os.environ}
    try:
        if backend is not None:
            _replace(limit_of(backend).variables)
        yield
    finally:
        _replace(before)


def _replace(variables: Mapping[str, str]) -> None:
    for name in VARIABLES:
        os.environ.pop(name, None)
    os.environ.update(variables)


def check_torch(backend: str) -> None:
    """Refuse to go on where torch was loaded with another instruction set than a backend's."""
    found, expected = torch_capability(), limit_of(backend).capability
    if found != expected:
        variables = " ".join(f"{k}={v}" for k, v in limit_of(backend).variables.items())
        fix = f"start Python with {variables}" if variables else "unset ATEN_CPU_CAPABILITY"
        got = f"'{backend}' in a process whose torch uses {found}"
        raise input_error("backend", "the instruction set that torch was loaded with", got, fix)


def torch_capability() -> str:
    """Return the instruction set of torch's own kernels, such as ``"AVX2"``."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


@functools.cache
def mkl_processors() -> str | None:
    """Return the kind of processors that MKL says it chose its code for; None without MKL.

    CPUs of other makers than Intel are ``"Intel(R) Architecture processors"``: on these MKL chooses
    by itself, whatever ``MKL_ENABLE_INSTRUCTIONS`` holds.
    """
    import torch
    from torch.backends import mkl

    if not mkl.is_available():
        return None
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with mkl.verbose(mkl.VERBOSE_ON):
                torch.mm(torch.ones(8, 8), torch.ones(8, 8))
            flush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        said = file.read().decode(errors="replace")
    # Up to the system, as "Lnx 2.45GHz"; the kind may have commas of its own.
    found = re.search(r"MKL_VERBOSE .*? architecture (.*), \w+ [\d.]+GHz", said)
    return None if found is None else found[1]
