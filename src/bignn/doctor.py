"""What this installation can do, and why not more."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Any

import bignn
from bignn import kernels
from bignn.kernels import native

_PACKAGES = ("numpy", "safetensors", "torch", "torch_geometric", "tqdm", "matplotlib", "pyarrow")


def examine() -> dict[str, Any]:
    """Versions, CPU, backends, in plain types. Imports neither torch nor PyG."""
    return {
        "bignn": bignn.__version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "native_extension": native.is_available(),
        "backend": kernels.default_backend(),
        "backends": {
            name: native.why_not(name) or "ok" for name in ("reference", *native.INSTRUCTION_SETS)
        },
    }


def describe(report: dict[str, Any]) -> str:
    """The report of :func:`examine` for people."""
    lines = [
        f"bignn {report['bignn']} on Python {report['python']}, {report['platform']}",
        f"CPU: {report['cpu']}",
        "",
        "packages",
        *(
            f"  {name:<16} {version or 'not installed' + _needed_for(name)}"
            for name, version in report["packages"].items()
        ),
        "",
        "kernels",
    ]
    for name, state in report["backends"].items():
        used = "  <- used" if name == report["backend"] else ""
        lines.append(f"  {name:<16} {state}{used}")
    if not report["native_extension"]:
        lines += [
            "",
            "The native extension is missing: everything works, slower. To build it, install a",
            "C++20 compiler and CMake, then: pip install --force-reinstall --no-deps bignn",
        ]
    return "\n".join(lines)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _needed_for(package: str) -> str:
    extras = {"matplotlib": "plot", "pyarrow": "parquet"}
    extra = extras.get(package, "train")
    return f" (pip install 'bignn[{extra}]')"


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
