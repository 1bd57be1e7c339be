"""Trains many runs, in several processes, and keeps their records in the ledger.

A run that the ledger has already, under whatever name, is not trained again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
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
from bignn.train.checkpoint import load_model
from bignn.train.distributed import resolve_device
from bignn.train.fit import FitResult
from bignn.train.jobs import in_processes
from bignn.train.recipes import Recipe
from bignn.train.seeds import fit_seed

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
    for run, done in zip(
        todo.values(), in_processes(task, list(enumerate(todo.values(), 1)), jobs), strict=True
    ):
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

    def __call__(self, item: tuple[int, Run]) -> Record | str:
        number, run = item
        record: Record | str
        try:
            record = self._record(run)
        except InputError as error:
            record = str(error)
        except (RuntimeError, MemoryError) as error:  # out of memory, on the device or here
            record = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        outcome = record if isinstance(record, str) else _summary(record)
        if self.progress:
            line = f"[{number}/{self.total}] {run.row} seed {run.seed}: {outcome}"
            print(line, file=sys.stderr, flush=True)
        return record

    def _record(self, run: Run) -> Record:
        graph = _graph(run.dataset)
        taught_by = run.teacher_recipe(graph)
        first = run.seed * run.teachers
        teachers = [
            load_model(self._teacher(taught_by, graph, seed)[1])
            for seed in range(first, first + run.teachers)
            if taught_by is not None
        ]
        curve: list[float] = []
        chosen = run.recipe(graph)
        if not (run.distill or run.curve) and digest(graph, chosen) in self.teachers:
            result = self._teacher(chosen, graph, run.seed)[0]
        else:
            result = self._fit(
                chosen,
                graph,
                run.seed,
                teacher=teachers or None,
                on_epoch=(lambda _, loss, __: curve.append(round(loss, 4))) if run.curve else None,
            )
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
        return record

    def _teacher(self, chosen: Recipe, graph: Graph, seed: int) -> tuple[FitResult, Path]:
        """Train a teacher if its checkpoint is missing; return its result and the checkpoint."""
        path = self.out / "teachers" / f"{digest(graph, chosen)}-{seed}.safetensors"
        with locked(path.with_suffix(".lock")):  # another process may be training the same
            return self._train_teacher(chosen, graph, seed, path), path

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
