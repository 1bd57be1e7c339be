"""What a unit of the packed engine's work takes, in seconds of one thread, per instruction set.

Built-in costs were measured on servers (docs/design.md, "What a layer costs"). ``bignn doctor
--calibrate`` measures them on this machine and keeps them; costs decide the way a layer is computed
by, never its result.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from bignn.errors import FileError
from bignn.files import atomic_path
from bignn.runtime.cpu_info import cpu_name

#: Weights of up to so many bits are one digit of the gather on every instruction set.
FEW_BITS = 7
#: The same where an instruction set takes more.
FEW_BITS_OF = {"avx512": 8}

_AVX512: dict[str, float] = {
    "xnor": 1 / 1250e9,  # a product of signs
    "panel": 2.5e-9,  # the end of a row's products with sixteen columns
    "table": 0.45e-9,  # an input of a row's lookup tables, per head
    "lookup": 1 / 240e9,  # a product after a gather of bits
    "sparse": 0.0105e-9,  # an addition of a sparse bit's row, per column
    "narrow sparse row": 20e-9,  # what a row of at most sixteen columns takes more by way S
    "row": 45e-9,  # a row's weights and its end
    "column": 0.55e-9,  # a column of a row's end
    "neighbour": 3e-9,  # its number and weight
    "record": 0.037e-9,  # a column of a neighbour
    "few-bit record": 0.008e-9,  # the same with a weight of one digit
    "row of G": 10e-9,  # what a row takes more by way G, per head
    "few-bit row of G": 2e-9,
    "neighbour of G": 0.3e-9,
    "few-bit neighbour of G": 0.9e-9,
    "bit": 0.05e-9,  # a bit of a neighbour
    "few-bit bit": 0.0105e-9,
    "bit of many": 0.034e-9,  # a bit where sixteen neighbours are added at once
    "few-bit bit of many": 0.014e-9,
    "attention row": 50e-9,  # a row's largest score and sum of shares, per head
    "attention": 2e-9,  # an exponential and its weight, per neighbour and head
    "score": 0.03e-9,  # a bit of a score
    # The first cache line of a record, each further one, and first lines that long rows fetch well
    # ahead, by the size of the table. The last cache is shared, and its lines cost up to four times
    # as much when others use it too: these are what a machine with neighbours shows.
    **{"near line": 0.9e-9, "next near line": 1e-9, "near line ahead": 1e-9},
    **{"shared line": 3e-9, "next shared line": 1.5e-9, "shared line ahead": 3.3e-9},
    **{"wide line": 10e-9, "next wide line": 2.7e-9, "wide line ahead": 7e-9},
    **{"far line": 10e-9, "next far line": 6e-9, "far line ahead": 8.5e-9},
    # Where way T takes neighbours by blocks of sources: a neighbour that is listed, and a line.
    **{"listed neighbour": 2e-9, "block line": 1.7e-9},
    # Lines of the signs that a sparse bit adds.
    **{"sign near line": 0.1e-9, "sign shared line": 0.3e-9},
    **{"sign wide line": 2e-9, "sign far line": 5e-9},
}
_AVX2 = _AVX512 | {
    "xnor": 1 / 430e9,
    "panel": 3.5e-9,
    "table": 0.2e-9,
    "lookup": 1 / 150e9,
    "sparse": 0.011e-9,
    "narrow sparse row": 0.3e-9,
    "row": 50e-9,
    "column": 0.3e-9,
    "neighbour": 2e-9,
    "record": 0.063e-9,
    "few-bit record": 0.004e-9,
    "row of G": 210e-9,
    "few-bit row of G": 160e-9,
    "neighbour of G": 2e-9,
    "few-bit neighbour of G": 2.6e-9,
    "bit": 0.022e-9,
    "few-bit bit": 0.008e-9,
    "attention": 3e-9,
    "score": 0.05e-9,
    **{"near line": 0.65e-9, "next near line": 0.4e-9},
    **{"shared line": 2e-9, "next shared line": 2.4e-9},
    **{"wide line": 12e-9, "next wide line": 1.2e-9},
    **{"far line": 9.6e-9, "next far line": 8e-9},
}
_PORTABLE = _AVX512 | {
    "xnor": 1 / 16e9,
    "panel": 15e-9,
    "table": 2e-9,
    "lookup": 1 / 3e9,
    "sparse": 0.012e-9,
    "narrow sparse row": 0.3e-9,
    "record": 0.6e-9,
    "few-bit record": 0.6e-9,
    "bit": 0.5e-9,
    "few-bit bit": 0.5e-9,
    "attention": 8e-9,
    "score": 0.5e-9,
}
#: NEON has AVX2's until it is measured: its instructions per column are about as many.
BUILT_IN: dict[str, dict[str, float]] = {
    "portable": _PORTABLE,
    **dict.fromkeys(("avx2", "avx2_vnni", "neon", "neon_dot"), _AVX2),
    "avx512": _AVX512,
}
#: The names of all units.
UNITS = tuple(_AVX512)


def units_of(backend: str, threads: int) -> Mapping[str, float]:
    """Return the costs of an instruction set: those kept for this machine, or else built-in ones.

    The NumPy reference has the portable ones; it has no ways to choose from.
    """
    found = _kept()
    kept = found.get(_key(backend, threads)) if found else None
    return BUILT_IN.get(backend, _PORTABLE) if kept is None else kept


def are_kept(backend: str, threads: int) -> bool:
    """Return whether costs were measured on this machine for so many threads."""
    return _key(backend, threads) in _kept()


def keep(backend: str, threads: int, units: Mapping[str, float]) -> Path:
    """Keep measured costs for this machine; return the file that holds them."""
    path = kept_path()
    found = dict(_kept())
    found[_key(backend, threads)] = dict(units)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"'{path.parent}' cannot be made, to keep unit costs in: {error.strerror}"
        raise FileError(f"{why}; set XDG_CACHE_HOME to a folder that can be") from error
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(found, indent=1))
    _kept.cache_clear()
    return path


def kept_path() -> Path:
    """Return the file of this machine's costs, ``bignn/unit-costs.json`` in the user's cache."""
    cache_folder = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(cache_folder) / "bignn" / "unit-costs.json"


def _key(backend: str, threads: int) -> str:
    """Name costs in the file. Machines may share it, where a home folder is on a network."""
    return f"{backend} {threads} {_cpu()}"


@cache
def _cpu() -> str:
    return cpu_name()


@cache
def _kept() -> dict[str, dict[str, float]]:
    """Read the kept costs; what is damaged or of other units counts as not measured."""
    try:
        found = json.loads(kept_path().read_text())
    except (OSError, ValueError, RecursionError, RuntimeError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: units for key, units in found.items() if _is_whole(units)}


def _is_whole(units: object) -> bool:
    return (
        isinstance(units, dict)
        and units.keys() == set(UNITS)
        and all(type(cost) is float and 0 < cost < math.inf for cost in units.values())
    )
