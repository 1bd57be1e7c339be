"""One model trained on one graph with several seeds."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bignn.checkpoint import load_model
from bignn.errors import FileError, wrong
from bignn.graph import Graph
from bignn.recipes import Recipe
from bignn.train import FitResult, fit


@dataclass(frozen=True)
class SeedResults:
    """The results of all seeds, in their order."""

    seeds: list[int]
    results: list[FitResult]
    checkpoints: list[Path]

    @property
    def test_acc(self) -> list[float | None]:
        """Test accuracy per seed in percent; None without a test split."""
        return [result.test_acc for result in self.results]

    @property
    def best(self) -> int:
        """Position of the run with the lowest validation loss."""
        return min(range(len(self.results)), key=lambda index: self.results[index].val_loss)


def mean_and_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n - 1; 0 for one value); None if anything is missing."""
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None, None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0


def train_seeds(
    recipe: Recipe,
    graph: Graph,
    seeds: Sequence[int],
    out: str | os.PathLike[str],
    *,
    device: str = "cpu",
    resume: bool = False,
    save_every: float = 10.0,
    progress: bool = True,
    label: str = "",
    teachers: Callable[[int], Sequence[nn.Module]] | None = None,
) -> SeedResults:
    """Trains one model per seed; checkpoints are ``<out>/seed-<s>.safetensors``.

    A seed decides the initial weights and the dropout, so it gives the same result alone and among
    others. With ``resume``, finished seeds are read from their checkpoints and the one that was
    interrupted goes on where it was. ``teachers(seed)`` are the models that a seed learns from.
    """
    if not seeds:
        raise wrong("seeds", "at least 1", 0)
    results, checkpoints = [], []
    for seed in seeds:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = recipe.build(graph)
        path = Path(out) / f"seed-{seed}.safetensors"
        result = fit(
            model,
            graph,
            recipe.settings,
            seed=seed,
            teacher=None if teachers is None else teachers(seed),
            device=device,
            checkpoint_path=path,
            resume=resume,
            save_every=save_every,
            progress=progress,
        )
        if progress:
            test = "-" if result.test_acc is None else f"{result.test_acc:.1f}"
            print(
                f"{label or graph.name} seed {seed}: test {test} val {result.val_acc:.1f} "
                f"after {result.epochs} epochs, {result.seconds:.1f} s",
                file=sys.stderr,
            )
        results.append(result)
        checkpoints.append(path)
    return SeedResults(list(seeds), results, checkpoints)


def train_teachers(
    recipe: Recipe,
    graph: Graph,
    seeds: Sequence[int],
    count: int,
    out: str | os.PathLike[str],
    **options: Any,
) -> tuple[SeedResults, Callable[[int], list[nn.Module]]]:
    """Trains the float models that students learn from, or reads those that ``out`` has already.

    The student of seed s has ``count`` teachers of its own, of seeds s count, s count + 1, ...;
    returns the results of all teachers and what gives those of a seed. ``options`` are those of
    :func:`train_seeds`.
    """
    if count < 1:
        raise wrong("teachers", "at least 1", count)
    needed = [seed * count + number for seed in seeds for number in range(count)]
    runs = [_teacher(recipe, graph, seed, out, options) for seed in needed]
    trained = SeedResults(
        needed,
        [result for run in runs for result in run.results],
        [path for run in runs for path in run.checkpoints],
    )
    paths = dict(zip(needed, trained.checkpoints, strict=True))
    return trained, lambda seed: [load_model(paths[seed * count + k]) for k in range(count)]


def _teacher(
    recipe: Recipe, graph: Graph, seed: int, out: str | os.PathLike[str], options: dict[str, Any]
) -> SeedResults:
    """A teacher from its checkpoint, or anew where that is another's, damaged or not there."""
    try:
        return train_seeds(recipe, graph, [seed], out, resume=True, **options)
    except FileError as error:
        print(f"bignn: teacher {seed} is trained anew ({error})", file=sys.stderr)
        return train_seeds(recipe, graph, [seed], out, **options)
