"""Compiles the kernels for a GPU by NVRTC at first use, and keeps the result for the machine."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from bignn.files import atomic_path

_SOURCES = Path(__file__).parent
_MAIN = "packed_layers.cu"
# Every operation is rounded by itself, as on the CPU.
_OPTIONS = (
    "--std=c++17",
    "--fmad=false",
    "--device-as-default-execution-space",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ftz=false",
)


class CudaError(RuntimeError):
    """A call of CUDA that failed; the message is one line."""


def checked(called: tuple[Any, ...], what: str) -> Any:
    """Return the results of a call of ``cuda.bindings``, or raise what went wrong."""
    status, *results = called
    if int(status) != 0:
        raise CudaError(f"{what} failed: {getattr(status, 'name', status)}")
    return results[0] if len(results) == 1 else tuple(results)


def sources() -> dict[str, bytes]:
    """Return the files of the kernels, by name."""
    names = sorted(path for path in _SOURCES.iterdir() if path.suffix in (".cu", ".cuh"))
    return {path.name: path.read_bytes() for path in names}


def machine_code(capability: tuple[int, int]) -> bytes:
    """Return the kernels' code for a GPU of this compute capability, compiled at most once."""
    from cuda.bindings import nvrtc

    version = checked(nvrtc.nvrtcVersion(), "NVRTC")
    known = checked(nvrtc.nvrtcGetSupportedArchs(), "NVRTC")
    known = known[1] if isinstance(known, tuple) else known
    number = 10 * capability[0] + capability[1]
    # The driver translates code of an older architecture for a newer GPU.
    target = f"sm_{number}" if number in known else f"compute_{max(known)}"
    options = (f"--gpu-architecture={target}", *_OPTIONS)
    files = sources()
    digest = hashlib.sha256(repr((version, options, sorted(files.items()))).encode()).hexdigest()
    path = _folder() / f"packed-layers-{target}-{digest[:16]}.bin"
    try:
        return path.read_bytes()
    except OSError:
        pass
    code = _compiled(nvrtc, files, options, is_machine_code=target.startswith("sm_"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(path) as temporary:
            temporary.write_bytes(code)
    except OSError:
        pass  # compiled again by the next process
    return code


def _compiled(
    nvrtc: Any, files: dict[str, bytes], options: tuple[str, ...], *, is_machine_code: bool
) -> bytes:
    headers = {name: text for name, text in files.items() if name != _MAIN}
    program = checked(
        nvrtc.nvrtcCreateProgram(
            files[_MAIN],
            _MAIN.encode(),
            len(headers),
            list(headers.values()),
            [name.encode() for name in headers],
        ),
        "NVRTC",
    )
    given = [option.encode() for option in options]
    status = nvrtc.nvrtcCompileProgram(program, len(given), given)[0]
    if int(status) != 0:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program), "NVRTC")
        nvrtc.nvrtcGetProgramLog(program, log)
        lines = [line for line in log.decode(errors="replace").splitlines() if "error" in line]
        raise CudaError(f"NVRTC does not compile the kernels: {(lines or ['no reason given'])[0]}")
    if is_machine_code:
        code = b" " * int(checked(nvrtc.nvrtcGetCUBINSize(program), "NVRTC"))
        checked(nvrtc.nvrtcGetCUBIN(program, code), "NVRTC")
    else:
        code = b" " * int(checked(nvrtc.nvrtcGetPTXSize(program), "NVRTC"))
        checked(nvrtc.nvrtcGetPTX(program, code), "NVRTC")
    return code


def _folder() -> Path:
    cache_folder = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
    return Path(cache_folder) / "bignn"
