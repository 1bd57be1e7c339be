"""Peak memory of one contender, measured in a process of its own.

What counts is what features, weights and activations take, in the form that a contender runs with:
how far the resident size of the process rises, while all nodes are predicted, above what it was
with libraries and graph structure alone. What it takes to bring features and weights into that form
(packing, compressing rows, transposing) counts for none: the peak starts anew once they are there.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from torch import nn

from bignn.graph import load
from bignn.kernels.threads import set_num_threads
from bignn.lab.bench.compared_problem import ComparedProblem, float_contenders
from bignn.lab.bench.contenders import Contender, Packed, contenders_of
from bignn.lab.bench.problems import EdgeBits, ModelName, Problem, make_problem
from bignn.train.checkpoint import load_model

#: A process measures so many times, as long as it has not taken so many seconds, but twice at
#: least: code that is first used on a problem of that size is read from disk, and counts then.
_WINDOWS, _SECONDS = 5, 5.0

#: Of Linux's sys/prctl.h and glibc's malloc.h.
_PR_SET_THP_DISABLE = 41
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def memory_bytes() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_mib(
    problem: str,
    contender: str,
    *,
    conv: ModelName = "gcn",
    scale: float,
    threads: int,
    edge_bits: EdgeBits = None,
    backend: str | None = None,
) -> float | None:
    """Return the MiB of features, weights and activations; None where they cannot be measured."""
    how = {"conv": conv, "scale": scale, "edge_bits": edge_bits, "backend": backend}
    return _measured_in_process({"name": problem, **how}, contender, threads)


def peak_mib_of_trained(
    dataset: str,
    float_model: str | os.PathLike[str],
    binary: str | os.PathLike[str] | None,
    contender: str,
    *,
    threads: int,
) -> float | None:
    """Return :func:`peak_mib` of trained models, passed as checkpoints, on a dataset."""
    models = {"float": str(float_model), "binary": None if binary is None else str(binary)}
    return _measured_in_process({"dataset": dataset, **models}, contender, threads)


def _measured_in_process(problem: dict[str, Any], contender: str, threads: int) -> float | None:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", __name__, json.dumps(problem), contender, str(threads)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        name = problem.get("name") or problem["dataset"]
        print(f"bignn: peak memory of {contender} on {name}: {last}", file=sys.stderr)
        return None
    value: float | None = json.loads(done.stdout)
    return value


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def _problems(asked: dict[str, Any]) -> tuple[Problem, Problem]:
    """Make a problem, and a small one of the same kind."""
    if "dataset" in asked:
        binary = None if asked["binary"] is None else load_model(asked["binary"])
        compared = ComparedProblem(load(asked["dataset"]), load_model(asked["float"]), binary)
        return compared, compared.few_nodes()
    small = asked | {"name": "cora", "scale": 1.0}
    return make_problem(**asked, epochs=0), make_problem(**small, epochs=0)


def _measure(problem: Problem, small: Problem, contender: str) -> float:
    if isinstance(problem, ComparedProblem):
        kinds = {"packed": Packed, **float_contenders(problem.float_model)}
    else:
        kinds = contenders_of(problem.conv)
    kind = kinds[contender]
    _peak_bytes(kind(small))  # libraries allocate when first used: let them, on a small problem
    chosen = kind(problem)
    found: list[int] = []
    start = time.perf_counter()
    gc.freeze()  # what is here stays: looking through it each time would take longest
    try:
        while len(found) < 2 or (len(found) < _WINDOWS and time.perf_counter() - start < _SECONDS):
            found.append(_peak_bytes(chosen))
    finally:
        gc.unfreeze()
    return statistics.median_low(found) / 2**20


def _peak_bytes(contender: Contender) -> int:
    """Return the bytes of one prediction; the contender is left unchanged."""
    structure = dict(vars(contender))
    # A model that a contender has from the start: its weights are copied, so that they count too.
    models = [part for part in structure.values() if isinstance(part, nn.Module)]
    weights = [(weight, weight.data) for model in models for weight in model.parameters()]
    _set_malloc(return_freed=True)
    _trim_heap()
    before = _status("VmRSS")
    contender.load()
    for weight, values in weights:
        weight.data = values.clone()
    _trim_heap()
    _set_malloc(return_freed=False)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    contender.run()
    peak = _status("VmHWM")
    for weight, values in weights:
        weight.data = values
    vars(contender).clear()
    vars(contender).update(structure)
    return peak - before


def _set_malloc(return_freed: bool) -> None:
    """Choose how glibc allocates arrays above 128 KiB.

    With ``return_freed`` they come from the system and return to it when freed: so while features
    and weights are made, since pages kept from an earlier array would be counted for buffers that
    are never written to. Without it, arrays up to 32 MiB stay in the heap: so during a prediction,
    since Linux counts pages in batches per core and records the peak when some are returned, up to
    half a MiB too low on two cores; pages that stay are counted exactly.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "prctl"):  # NumPy asks for huge pages; a heap that has them grows by 2 MiB
        libc.prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << (17 if return_freed else 25))
        libc.mallopt(_M_TRIM_THRESHOLD, 1 << (17 if return_freed else 30))


def _trim_heap() -> None:
    """Return free memory to the system: reused, it would count as nothing, kept, as too much."""
    gc.collect()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


if __name__ == "__main__":
    problem_text, which, threads_text = sys.argv[1:]
    set_num_threads(int(threads_text))
    large, little = _problems(json.loads(problem_text))
    try:
        print(json.dumps(_measure(large, little, which)))
    except OSError:
        print(json.dumps(None))
