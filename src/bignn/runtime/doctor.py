"""Examines an installation: versions, CPU features, and the kernels that run here."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import bignn
from bignn import kernels
from bignn.errors import PACKAGES, how_to_install
from bignn.kernels import native
from bignn.kernels.cuda.device import examine_gpu
from bignn.runtime import unit_costs
from bignn.runtime.cpu_info import cpu_info, cpu_name

_FEATURES = ("popcnt", "avx2", "avx512", "gfni", "avx_vnni", "amx", "asimd")


def examine() -> dict[str, Any]:
    """Collect versions, CPU and backends in plain types, without importing torch or PyG."""
    return {
        "bignn": bignn.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_features": [f for f in _all_features() if f.startswith(_FEATURES)],
        "packages": {name: _version(name) for name in PACKAGES},
        "native_extension": native.is_available(),
        "backend": (backend := kernels.default_backend()),
        "threads": (threads := native.num_threads()),
        "unit_costs_are_measured": unit_costs.are_kept(backend, threads),
        "unit_costs": dict(unit_costs.units_of(backend, threads)),
        "backends": {
            name: native.why_not(name) or "ok" for name in ("reference", *native.INSTRUCTION_SETS)
        },
        "gpu": examine_gpu(),
    }


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`examine`."""
    lines = [
        f"bignn {report['bignn']} on Python {report['python']}, {report['platform']}",
        f"CPU: {report['cpu']}",
        f"  {' '.join(report['cpu_features']) or 'features unknown'}",
        "",
        "packages",
        *(
            f"  {name:<16} {version or f'not installed ({how_to_install(name)})'}"
            for name, version in report["packages"].items()
        ),
        "",
        "kernels",
    ]
    for name, state in report["backends"].items():
        used = "  <- used" if name == report["backend"] else ""
        lines.append(f"  {name:<16} {state}{used}")
    lines.append(f"  {'cuda':<16} {report['gpu']}")
    if report["native_extension"]:
        source = "measured here" if report["unit_costs_are_measured"] else "built in"
        costs = [f"{unit} {1e9 * cost:.3g}" for unit, cost in report["unit_costs"].items()]
        lines += ["", f"unit costs for {report['threads']} threads, in ns ({source})"]
        lines += [f"  {', '.join(costs[at : at + 5])}" for at in range(0, len(costs), 5)]
    if not report["native_extension"]:
        lines += [
            "",
            "The native extension is missing: everything works, slower. To build it, install a",
            "C++20 compiler and CMake and install bignn again.",
        ]
    return "\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _all_features() -> list[str]:
    """Features of the CPU as Linux names them; x86 and ARM list them under different keys."""
    return (cpu_info("flags") or cpu_info("Features")).split()
