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
from typing import get_args

from bignn.experiments.contenders import Packed
from bignn.experiments.family import contenders_of
from bignn.experiments.problems import SHAPES, CitationProblem, ModelName, Problem, ShapeProblem
from bignn.threads import set_num_threads


def memory_bytes() -> int:
    """What this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def peak_mib(
    problem: str, contender: str, *, conv: ModelName = "gcn", scale: float, threads: int
) -> float | None:
    """MiB of features and activations; None where the system cannot tell."""
    options = [problem, contender, conv, str(scale), str(threads)]
    command = [sys.executable, "-m", __name__, *options]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        print(f"bignn bench: peak memory of {contender} on {problem}: {last}", file=sys.stderr)
        return None
    value: float | None = json.loads(done.stdout)
    return value


def _status(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def _measure(problem: Problem, contender: str, folder: Path) -> float:
    kind = contenders_of(problem.conv)[contender]
    chosen = kind(problem)
    if isinstance(chosen, Packed):
        chosen.store(folder / "features.npz")
    # Libraries allocate when first used: let them, on a small problem.
    warm = kind(CitationProblem("cora", conv=problem.conv, epochs=0))
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
    name, which, model_name, scale_text, threads_text = sys.argv[1:]
    model: ModelName = next(known for known in get_args(ModelName) if known == model_name)
    set_num_threads(int(threads_text))
    chosen_problem: Problem
    if name in SHAPES:
        chosen_problem = ShapeProblem(name, conv=model, scale=float(scale_text))
    else:
        chosen_problem = CitationProblem(name, conv=model, epochs=0)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            print(json.dumps(_measure(chosen_problem, which, Path(temporary))))
        except OSError:
            print(json.dumps(None))
