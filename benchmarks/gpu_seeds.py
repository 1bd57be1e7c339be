"""Seeds of Bi-GCN on Cora on a GPU: one after the other, and at the same time.

    python benchmarks/gpu_seeds.py [--seeds 10] [--dataset cora] [--alone 3]

``together`` is what ``bignn train cora --seeds 10 --device cuda`` does; it is timed twice, since
the first call of a process compiles and loads kernels. ``alone`` trains some of the seeds by
themselves, recorded as CUDA graphs; ``launched`` without recording, kernel by kernel. The seeds'
scores are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from statistics import fmean
from typing import Any
from unittest.mock import patch

import torch

import bignn
from bignn.train import recorded
from bignn.train.recipes import recipe
from bignn.train.recorded import Recorder
from bignn.train.seeds import SeedResults, train_seeds

_begin = Recorder.begin
_reasons: set[str] = set()


def watched(recorder: Recorder, epoch: int, work: Any) -> Any:
    """Begin an epoch and note why it could not be recorded."""
    read = _begin(recorder, epoch, work)
    if recorder.why_not is not None:
        _reasons.add(recorder.why_not)
    return read


def timed(seeds: list[int], graph: bignn.Graph, model: str) -> tuple[float, SeedResults]:
    """Train seeds and return the seconds that they take."""
    with tempfile.TemporaryDirectory() as folder, patch.object(Recorder, "begin", watched):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        chosen = recipe(model, graph=graph)
        found = train_seeds(chosen, graph, seeds, folder, device="cuda", progress=False)
        return time.perf_counter() - begin, found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--alone", type=int, default=3, help="seeds that are trained alone too")
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--model", default="bi-gcn")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no GPU")
    graph = bignn.load(given.dataset)
    seeds = list(range(given.seeds))
    for name in ("together, first call", "together"):
        seconds, together = timed(seeds, graph, given.model)
        epochs = sum(result.epochs for result in together.results)
        scores = [acc for acc in together.test_acc if acc is not None]
        print(
            f"{name:<22}{seconds:>7.2f} s for {len(seeds)} seeds, {epochs} epochs, "
            f"test {fmean(scores):.2f} %",
            flush=True,
        )
    for reason in _reasons:
        print(f"not recorded: {reason}")
    few = seeds[: given.alone]
    for name, most_nodes in (("alone", recorded.MOST_NODES), ("launched", 0)):
        with patch.object(recorded, "MOST_NODES", most_nodes):
            runs = [timed([seed], graph, given.model) for seed in few]
        print(f"{name:<22}{fmean(s for s, _ in runs):>7.2f} s for one seed", flush=True)
        for seed, (_, run) in zip(few, runs, strict=True):
            mine, other = together.results[seed], run.results[0]
            print(
                f"  seed {seed}: {mine.epochs} epochs, val {mine.val_loss:.4f} {mine.val_acc:.2f}, "
                f"test {mine.test_acc:.2f} together; {other.epochs}, {other.val_loss:.4f} "
                f"{other.val_acc:.2f}, {other.test_acc:.2f} {name}",
                flush=True,
            )


if __name__ == "__main__":
    main()
