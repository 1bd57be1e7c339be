"""Peak memory of one contender, measured in a process of its own.

What counts is what features and activations take: the peak resident size of the process from the
moment when libraries, graph structure and weights are in place. Packed features are read from disk
then, float features are made in memory at their own size.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bignn.checkpoint import load_model
from bignn.experiments.compared_problem import ComparedProblem, float_contenders
from bignn.experiments.contenders import Packed
from bignn.experiments.family import contenders_of
from bignn.experiments.problems import SHAPES, CitationProblem, ModelName, Problem, ShapeProblem
from bignn.graph import load
from bignn.threads import set_num_threads


def memory_bytes() -> int:
    """What this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_mib(
    problem: str, contender: str, *, conv: ModelName = "gcn", scale: float, threads: int
) -> float | None:
    """MiB of features and activations; None where the system cannot tell."""
    return _asked({"name": problem, "conv": conv, "scale": scale}, contender, threads)


def peak_mib_of_trained(
    dataset: str,
    float_model: str | os.PathLike[str],
    binary: str | os.PathLike[str] | None,
    contender: str,
    *,
    threads: int,
) -> float | None:
    """The same of trained models, given as checkpoints, on a dataset."""
    models = {"float": str(float_model), "binary": None if binary is None else str(binary)}
    return _asked({"dataset": dataset, **models}, contender, threads)


def _asked(problem: dict[str, Any], contender: str, threads: int) -> float | None:
    """The answer of a process of its own."""
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


def _made(asked: dict[str, Any]) -> tuple[Problem, Problem]:
    """A problem, and a small one of the same kind."""
    if "dataset" in asked:
        binary = None if asked["binary"] is None else load_model(asked["binary"])
        compared = ComparedProblem(load(asked["dataset"]), load_model(asked["float"]), binary)
        return compared, compared.few_nodes()
    name, conv = asked["name"], asked["conv"]
    small = CitationProblem("cora", conv=conv, epochs=0)
    if name in SHAPES:
        return ShapeProblem(name, conv=conv, scale=asked["scale"]), small
    return CitationProblem(name, conv=conv, epochs=0), small


def _measure(problem: Problem, small: Problem, contender: str, folder: Path) -> float:
    if isinstance(problem, ComparedProblem):
        kinds = {"packed": Packed, **float_contenders(problem.float_model)}
    else:
        kinds = contenders_of(problem.conv)
    kind = kinds[contender]
    chosen = kind(problem)
    if isinstance(chosen, Packed):
        chosen.store(folder / "features.npz")
    # Libraries allocate when first used: let them, on a small problem.
    warm = kind(small)
    warm.load()
    warm.run()
    del warm
    # What was freed must not be there to be used again: it would count for nothing.
    gc.collect()
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from here
    before = _status("VmRSS")
    chosen.load()
    chosen.run()
    return (_status("VmHWM") - before) / 2**20


if __name__ == "__main__":
    problem_text, which, threads_text = sys.argv[1:]
    set_num_threads(int(threads_text))
    large, little = _made(json.loads(problem_text))
    with tempfile.TemporaryDirectory() as temporary:
        try:
            print(json.dumps(_measure(large, little, which, Path(temporary))))
        except OSError:
            print(json.dumps(None))
