"""Trains many runs, in several processes, and keeps their records in the ledger.

A run that the ledger has already, under whatever name, is not trained again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import bignn
from bignn.errors import InputError
from bignn.files import prepare
from bignn.graph import Graph, load
from bignn.lab.study.ledger import Ledger, Record, check_locks, locked
from bignn.lab.study.run import RUNS, Key, Run, digest
from bignn.runtime.doctor import examine
from bignn.train.batches import check_labels
from bignn.train.distributed import resolve_device
from bignn.train.fit import FitResult
from bignn.train.jobs import in_processes
from bignn.train.recipes import Recipe
from bignn.train.seeds import (
    SeedResults,
    Teachers,
    all_teachers_of,
    can_fit_together,
    fit_seed,
    train_seeds,
)

#: Most seeds of a row that a process trains at the same time on a GPU.
_TOGETHER = 4
#: What a record has of a result.
_SCORES = ("val_loss", "val_acc", "test_acc", "best_epoch", "epochs")


def do_runs(
    runs: Sequence[Run], out: Path, *, device: str = "cpu", jobs: int = 1, progress: bool = True
) -> list[Record]:
    """Return the records of all runs, in order, training those that ``out/runs.jsonl`` lacks.

    Teachers are kept in ``out/teachers``.

    A run that is refused, diverges or does not fit memory does not stop the others; afterwards the
    first failure is raised.
    """
    ledger = Ledger(out / RUNS)
    if runs:  # what would stop all runs is refused before the work
        check_locks()
        resolve_device(device)
    for run in runs:
        check_labels(_graph(run.dataset))
    prepare(ledger.path)
    wanted, taught_by = _keys(dict.fromkeys(runs))
    finished: dict[Key, Record] = {}
    rows: dict[tuple[str, int], Key] = {}
    for record in ledger.read():
        key = (str(record.get("recipe")), int(record.get("seed", -1)))
        rows[str(record.get("row")), key[1]] = key
        # The newest counts, as where results are shown.
        finished[key] = {**_curve_of(finished.get(key)), **record}
    todo: dict[tuple[Key, bool], Run] = {}
    for run, key in wanted.items():
        if key not in finished or (run.curve and "curve" not in finished[key]):
            todo.setdefault((key, run.curve), run)
    for key, curve in list(todo):  # one with the curve serves one without
        if not curve and (key, True) in todo:
            del todo[key, curve]
    if progress and todo:
        there = len(set(wanted.values())) - len(todo)
        print(f"{len(todo)} runs to do, {there} already done", file=sys.stderr, flush=True)
    bars = progress and min(jobs, len(todo)) == 1
    task = _Task(out, device, len(todo), progress, bars, taught_by)
    failures = []
    groups = _groups(list(todo.values()), device)
    for group, records in zip(groups, in_processes(task, groups, jobs), strict=True):
        for (_, run), done in zip(group, records, strict=True):
            if isinstance(done, str):
                failures.append(f"{run.row} seed {run.seed}: {done}")
            else:
                finished[wanted[run]] = done
                rows[run.row, run.seed] = wanted[run]
    for run, key in wanted.items():
        # Trained under another name, or before this name meant another recipe: recorded under this
        # name too, since results are looked up by name.
        if key in finished and rows.get((run.row, run.seed)) != key:
            ledger.append({**finished[key], **_names(run)})
            rows[run.row, run.seed] = key
    if failures:
        count = f"{len(failures)} of {len(todo)} runs failed"
        raise InputError(f"{count}; the first: {failures[0]}")
    return [finished[wanted[run]] for run in runs]


#: Runs by their numbers, from 1.
_Numbered = list[tuple[int, Run]]


def _groups(runs: Sequence[Run], device: str) -> list[_Numbered]:
    """Group the runs that are trained at the same time: some seeds of a row, on a GPU.

    A group has the place of its first run.
    """
    groups: list[_Numbered] = []
    open_groups: dict[Run, _Numbered] = {}
    for number, run in enumerate(runs, 1):
        row, graph = replace(run, seed=0), _graph(run.dataset)
        group = open_groups.get(row)
        alone = run.curve or not can_fit_together(run.recipe(graph), graph, device)
        if group is None or alone or len(group) == _TOGETHER:
            group = open_groups[row] = []
            groups.append(group)
        group.append((number, run))
    return groups


def _keys(runs: Iterable[Run]) -> tuple[dict[Run, Key], frozenset[str]]:
    """Return the keys of runs, and digests of their teachers.

    A digest reads the whole graph, so there is one for all seeds.
    """
    keys: dict[Run, Key] = {}
    digests: dict[Run, str] = {}
    taught_by = set()
    for run in runs:
        row, graph = replace(run, seed=0), _graph(run.dataset)
        if row not in digests:
            digests[row] = row.key(graph)[0]
            if (teacher := row.teacher_recipe(graph)) is not None:
                taught_by.add(digest(graph, teacher))
        keys[run] = digests[row], run.seed
    return keys, frozenset(taught_by)


def _curve_of(record: Record | None) -> Record:
    return {} if record is None or "curve" not in record else {"curve": record["curve"]}


@dataclass(frozen=True)
class _Task:
    """Trains one run and appends its record; possibly in a process of its own."""

    out: Path
    device: str
    total: int
    progress: bool
    #: Whether each run has a bar of its own.
    bars: bool
    #: Digests of the recipes of teachers; a run by one of them is trained once for both.
    teachers: frozenset[str] = frozenset()

    def __call__(self, group: _Numbered) -> list[Record | str]:
        runs = [run for _, run in group]
        records: Sequence[Record | str]
        try:
            records = self._records(runs)
        except InputError as error:
            records = [str(error)] * len(runs)
        except (RuntimeError, MemoryError) as error:  # out of memory, on the device or here
            line = str(error).splitlines()[0] if str(error) else ""
            if isinstance(error, torch.OutOfMemoryError):  # torch lists all processes of the GPU
                line = f"{line.partition(' GPU ')[0]} Fewer --jobs take less memory."
            records = [f"{type(error).__name__}: {line}"] * len(runs)
        for (number, run), record in zip(group, records, strict=True):
            outcome = record if isinstance(record, str) else _summary(record)
            if self.progress:
                line = f"[{number}/{self.total}] {run.row} seed {run.seed}: {outcome}"
                print(line, file=sys.stderr, flush=True)
        return list(records)

    def _records(self, runs: Sequence[Run]) -> list[Record]:
        """Train some seeds of a row and append their records."""
        row = runs[0]
        graph, seeds = _graph(row.dataset), [run.seed for run in runs]
        taught_by, chosen = row.teacher_recipe(graph), row.recipe(graph)
        curve: list[float] = []
        if not (row.distill or row.curve) and digest(graph, chosen) in self.teachers:
            results = [result for result, _ in self._teachers(chosen, graph, seeds)]
        else:
            teachers: Teachers | None = None
            if taught_by is not None:
                needed = all_teachers_of(seeds, row.teachers)
                made = self._teachers(taught_by, graph, needed)
                paths = {number: path for number, (_, path) in zip(needed, made, strict=True)}
                teachers = Teachers.shared(seeds, row.teachers, paths)
            if len(runs) == 1:
                note = (lambda _, loss, __: curve.append(round(loss, 4))) if row.curve else None
                teacher = None if teachers is None else teachers(row.seed)
                results = [
                    self._fit(chosen, graph, row.seed, teacher=teacher, on_epoch=note),
                ]
            else:
                results = self._fit_together(chosen, graph, seeds, teachers)
        records = []
        for run, result in zip(runs, results, strict=True):
            record = {
                **_names(run),
                **{name: getattr(result, name) for name in _SCORES},
                "seconds": round(result.seconds, 2),
                "device": self.device,
                "machine": _machine(self.device),
                "version": bignn.__version__,
                "torch": torch.__version__,
                "recipe": run.key(graph)[0],
            }
            if run.curve:
                record["curve"] = curve
            Ledger(self.out / RUNS).append(record)
            records.append(record)
        return records

    def _fit_together(
        self, chosen: Recipe, graph: Graph, seeds: Sequence[int], teachers: Teachers | None
    ) -> list[FitResult]:
        with TemporaryDirectory() as folder:
            return self._train_seeds(chosen, graph, seeds, folder, teachers).results

    def _train_seeds(
        self,
        chosen: Recipe,
        graph: Graph,
        seeds: Sequence[int],
        folder: str,
        teachers: Teachers | None = None,
    ) -> SeedResults:
        return train_seeds(
            chosen,
            graph,
            seeds,
            folder,
            device=self.device,
            save_every=1e9,
            progress=False,
            teachers=teachers,
        )

    def _teachers(
        self, chosen: Recipe, graph: Graph, seeds: Sequence[int]
    ) -> list[tuple[FitResult, Path]]:
        """Train the teachers whose checkpoints are missing; return results and checkpoints."""
        key = digest(graph, chosen)
        paths = {seed: self.out / "teachers" / f"{key}-{seed}.safetensors" for seed in seeds}
        with ExitStack() as stack:
            for seed in sorted(paths):  # another process may be training the same
                stack.enter_context(locked(paths[seed].with_suffix(".lock")))
            missing = [seed for seed, path in paths.items() if not path.exists()]
            if len(missing) > 1 and can_fit_together(chosen, graph, self.device):
                folder = stack.enter_context(TemporaryDirectory(dir=self.out / "teachers"))
                trained = self._train_seeds(chosen, graph, missing, folder)
                for seed, made in zip(missing, trained.checkpoints, strict=True):
                    made.replace(paths[seed])
            return [
                (self._train_teacher(chosen, graph, seed, path), path)
                for seed, path in paths.items()
            ]

    def _train_teacher(self, chosen: Recipe, graph: Graph, seed: int, path: Path) -> FitResult:
        try:
            return self._fit(chosen, graph, seed, checkpoint_path=path, resume=True, save_every=1e9)
        except InputError:
            if not path.exists():
                raise
            path.unlink()  # damaged, or another version's
            return self._fit(chosen, graph, seed, checkpoint_path=path, save_every=1e9)

    def _fit(self, chosen: Recipe, graph: Graph, seed: int, **options: Any) -> FitResult:
        return fit_seed(chosen, graph, seed, device=self.device, progress=self.bars, **options)


def _names(run: Run) -> Record:
    return {
        "row": run.row,
        "dataset": run.dataset,
        "model": run.model,
        "distill": run.distill,
        "teachers": run.teachers,
        "paper": run.paper,
        "changes": dict(run.changes),
        "seed": run.seed,
    }


def _summary(record: Record) -> str:
    test = "-" if record["test_acc"] is None else f"{record['test_acc']:.1f}"
    return (
        f"test {test} val {record['val_acc']:.1f} after {record['epochs']} epochs, "
        f"{record['seconds']:.1f} s"
    )


@cache
def _machine(device: str) -> str:
    """Return the name of the processor or GPU that trains."""
    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    return str(examine()["cpu"])


@cache
def _graph(dataset: str) -> Graph:
    """Load a graph, once per process."""
    return load(dataset)
