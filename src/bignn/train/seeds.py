"""One model trained on one graph with several seeds."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import torch
from torch import nn

from bignn.errors import FileError, WriteError, input_error
from bignn.graph import Graph
from bignn.nn import GNN
from bignn.runtime.parts.graph_part import GraphPart
from bignn.runtime.store import Store
from bignn.train import distributed
from bignn.train.batch_lines import REPORT_EVERY
from bignn.train.checkpoint import load_model
from bignn.train.distill import checked_teachers
from bignn.train.find_problem import node_problem
from bignn.train.fit import FitResult, StartedFit, fit, seeded_generators
from bignn.train.jobs import checked_jobs, in_processes
from bignn.train.parts.training_halo import GradientForm
from bignn.train.problem import NodeProblem
from bignn.train.recipes import Recipe
from bignn.train.recorded import MOST_NODES_TOGETHER

T = TypeVar("T")


@dataclass(frozen=True)
class SeedResults:
    """Results and checkpoints of one model's seeds, in their order."""

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

    @property
    def val_acc(self) -> float:
        """Mean validation accuracy in percent."""
        return fmean(result.val_acc for result in self.results)

    @property
    def seconds(self) -> float:
        """Time spent training and validating all of them."""
        return sum(result.seconds for result in self.results)

    def __add__(self, others: SeedResults) -> SeedResults:
        """Append other seeds of the same model."""
        return SeedResults(
            self.seeds + others.seeds,
            self.results + others.results,
            self.checkpoints + others.checkpoints,
        )


def fit_seed(
    recipe: Recipe, graph: Graph | Store | GraphPart, seed: int, **options: Any
) -> FitResult:
    """Train one model, whose initial weights and dropout the seed decides.

    ``options`` are those of :func:`bignn.fit`.
    """
    return fit_model(recipe, graph, seed, **options)[1]


def fit_model(
    recipe: Recipe, graph: Graph | Store | GraphPart, seed: int, **options: Any
) -> tuple[GNN, FitResult]:
    """Train one model, as :func:`fit_seed` does, and return it with its result."""
    model = _new_model(recipe, graph, seed)
    return model, fit(model, graph, recipe.settings, seed=seed, **options)


def _new_model(recipe: Recipe, graph: Graph | Store | GraphPart, seed: int) -> GNN:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return recipe.build(graph)


@dataclass(frozen=True)
class Teachers:
    """The teachers of several students.

    Attributes:
        models: the teachers of every seed that has no checkpoints.
        checkpoints: the files of the teachers of each seed.

    """

    models: Sequence[nn.Module] = ()
    checkpoints: Mapping[int, Sequence[Path]] = field(default_factory=dict)

    @classmethod
    def shared(cls, seeds: Sequence[int], count: int, paths: Mapping[int, Path]) -> Teachers:
        """Give each seed ``count`` of some teachers, whose files ``paths`` has by their seeds."""
        return cls(checkpoints={s: [paths[k] for k in teachers_of(s, count)] for s in seeds})

    def __call__(self, seed: int) -> list[nn.Module]:
        """Return the teachers of a seed."""
        if seed in self.checkpoints:
            return [load_model(path) for path in self.checkpoints[seed]]
        return list(self.models)


@dataclass(frozen=True)
class _SeedTask:
    """The training of one seed, as a function that other processes can be given."""

    recipe: Recipe
    graph: Graph | Store | GraphPart
    out: Path
    options: dict[str, Any]
    teachers: Teachers | None
    #: Whether a checkpoint that is damaged, or another run's, is replaced instead of refused.
    replace_unusable: bool
    label: str

    def __call__(self, seed: int) -> FitResult:
        """Train a seed, or resume it."""
        return self._usable(self._fit, seed)

    def together(self, seeds: Sequence[int]) -> Iterator[FitResult]:
        """Train seeds at the same time on one GPU; yield their results in order."""
        device = distributed.resolve_device(self.options["device"])
        problem = node_problem(self.graph, None, device)
        begin = partial(self._begin, problem)
        runs = [self._usable(begin, seed) for seed in seeds]
        under_way, reported = list(runs), time.monotonic()
        while under_way:
            under_way = [run for run in under_way if run.advance()]
            now = time.monotonic()
            if self.options["progress"] and under_way and now - reported >= REPORT_EVERY:
                epoch, count = max(run.epoch for run in under_way), len(under_way)
                line = f"{self.label}: epoch {epoch}, {count} of {len(runs)} seeds under way"
                print(line, file=sys.stderr, flush=True)
                reported = now
        for run in runs:
            yield run.result()

    def _usable(self, task: Callable[[int, dict[str, Any]], T], seed: int) -> T:
        """Call a task of a seed, and once more without its checkpoint if that is unusable."""
        try:
            return task(seed, self.options)
        except WriteError:
            raise
        except FileError as error:
            if not (self.replace_unusable and self.options["resume"]):
                raise
            why = str(error).split(";")[0]  # what follows is advice on a run that stops
            if distributed.is_leader():
                print(f"{self.label} seed {seed} is trained anew: {why}", file=sys.stderr)
            return task(seed, {**self.options, "resume": False})

    def _fit(self, seed: int, options: dict[str, Any]) -> FitResult:
        teacher = None if self.teachers is None else self.teachers(seed)
        path = self.path(seed)
        return fit_seed(
            self.recipe, self.graph, seed, teacher=teacher, checkpoint_path=path, **options
        )

    def _begin(self, problem: NodeProblem, seed: int, options: dict[str, Any]) -> StartedFit:
        teachers = [] if self.teachers is None else checked_teachers(self.teachers(seed))
        given = {name: options[name] for name in ("resume", "save_every")}
        model = _new_model(self.recipe, self.graph, seed)
        with seeded_generators(seed, problem.device):
            # A copy: what training sees of the graph is prepared for each model.
            return StartedFit(
                model, copy(problem), self.recipe.settings, seed, teachers,
                checkpoint_path=self.path(seed), progress=False, **given,
            )  # fmt: skip

    def path(self, seed: int) -> Path:
        """Return the path of a seed's checkpoint."""
        return self.out / f"seed-{seed}.safetensors"


def train_seeds(
    recipe: Recipe,
    graph: Graph | Store | GraphPart,
    seeds: Sequence[int],
    out: str | os.PathLike[str],
    *,
    device: str = "cpu",
    resume: bool = False,
    replace_unusable: bool = False,
    save_every: float = 10.0,
    progress: bool = True,
    label: str = "",
    teachers: Teachers | None = None,
    jobs: int = 1,
    halo_gradients: GradientForm = "float",
) -> SeedResults:
    """Train one model per seed; checkpoints are ``<out>/seed-<s>.safetensors``.

    A seed decides the initial weights and the dropout, so it gives the same result alone and among
    others, in one process and in several (up to rounding: some of torch's sums depend on the number
    of threads, and ``jobs`` processes share them). On a GPU the seeds of a small graph are trained
    at the same time (:mod:`bignn.train.recorded`). With ``resume``, finished seeds are read from
    their checkpoints and those that were interrupted continue where they were; with
    ``replace_unusable`` too, a checkpoint that is damaged or another run's is replaced.
    ``teachers`` are the models that the seeds learn from.
    """
    if not seeds:
        raise input_error("seeds", "at least 1", 0)
    options = {
        "device": device,
        "resume": resume,
        "save_every": save_every,
        "progress": progress and min(checked_jobs(jobs), len(seeds)) == 1,
        "halo_gradients": halo_gradients,
    }
    label = label or graph.name
    task = _SeedTask(recipe, graph, Path(out), options, teachers, replace_unusable, label)
    results = []
    if jobs == 1 and len(seeds) > 1 and can_fit_together(recipe, graph, device):
        found = task.together(seeds)
    else:
        found = in_processes(task, list(seeds), jobs)
    for seed, result in zip(seeds, found, strict=True):
        if progress and distributed.is_leader():
            test = "-" if result.test_acc is None else f"{result.test_acc:.1f}"
            print(
                f"{label} seed {seed}: test {test} val {result.val_acc:.1f} "
                f"after {result.epochs} epochs, {result.seconds:.1f} s",
                file=sys.stderr,
                flush=True,
            )
        results.append(result)
    return SeedResults(list(seeds), results, [task.path(seed) for seed in seeds])


def can_fit_together(recipe: Recipe, graph: Graph | Store | GraphPart, device: str) -> bool:
    """Return whether seeds of such a run fit on a GPU side by side, no slower than one alone."""
    on_gpu = device.partition(":")[0] == "cuda" and not distributed.under_torchrun()
    is_small = isinstance(graph, Graph) and graph.num_nodes <= MOST_NODES_TOGETHER
    return on_gpu and recipe.settings.sampling is None and is_small


def teachers_of(seed: int, count: int) -> range:
    """Return the seeds of a student's teachers.

    Students of neighbouring seeds share all but one, so that twenty students with four teachers
    each need 23, not 80.
    """
    return range(seed, seed + count)


def all_teachers_of(seeds: Sequence[int], count: int) -> list[int]:
    """Return the seeds of all teachers of some students, each once."""
    return sorted({number for seed in seeds for number in teachers_of(seed, count)})


def train_teachers(
    recipe: Recipe,
    graph: Graph | GraphPart,
    seeds: Sequence[int],
    count: int,
    out: str | os.PathLike[str],
    **options: Any,
) -> tuple[SeedResults, Teachers]:
    """Train the float models that students learn from, or read those that ``out`` has already.

    The student of seed s has the ``count`` teachers of seeds s, s + 1, ... (:func:`teachers_of`).
    Returns the results of all teachers, and the teachers of each seed. ``options`` are those of
    :func:`train_seeds`.
    """
    if count < 1:
        raise input_error("teachers", "at least 1", count)
    needed = all_teachers_of(seeds, count)
    trained = train_seeds(recipe, graph, needed, out, resume=True, replace_unusable=True, **options)
    paths = dict(zip(needed, trained.checkpoints, strict=True))
    return trained, Teachers.shared(seeds, count, paths)
