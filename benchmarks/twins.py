"""Every Bi-model beside its float twin on real graphs: does a bit per weight cost accuracy?

    python benchmarks/twins.py GRAPH.npz ... [--models gcn sage saint gat] [--seeds 5]
        [--device cuda] [--jobs 16] [--out runs/twins.jsonl] [--write docs/trials.md]

Per graph, model and seed three runs: the float model, its binary version, and the same distilled
from a float model of that seed. ``sage`` and ``saint`` are trained inductively, on samples. A
finished run is a line of JSON in ``--out``; called again, what is there is not run again. The table
goes to stdout, and with ``--write`` into a file, between its two ``twins`` comments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

import bignn
from bignn.experiments.jobs import in_processes
from bignn.experiments.seeds import mean_and_std
from bignn.files import atomic_path
from bignn.recipes import recipe, teacher_recipe
from bignn.train import fit

KINDS = ("float", "binary", "distilled")
Task = tuple[str, str, int, str]


@cache
def graph_of(path: str) -> bignn.Graph:
    """A graph, read once per process."""
    return bignn.load(path)


@dataclass(frozen=True)
class Runs:
    """Trains and writes down; a process of its own may do it."""

    device: str
    out: str

    def __call__(self, task: Task) -> Task:
        """Both of a pair, or the binary model alone."""
        path, model, seed, what = task
        graph = graph_of(path)

        def trained(chosen: Any, teacher: Any = None) -> tuple[Any, bignn.FitResult]:
            torch.manual_seed(seed)
            net = chosen.build(graph)
            options: dict[str, Any] = {"device": self.device, "progress": False}
            return net, fit(net, graph, chosen.settings, seed=seed, teacher=teacher, **options)

        if what == "binary":
            self._write(task, "binary", trained(recipe(f"bi-{model}", graph=graph))[1])
            return task
        own, taught_by = recipe(model, graph=graph), teacher_recipe(f"bi-{model}", graph)
        teacher, result = trained(own)
        self._write(task, "float", result)
        if taught_by != own:  # the best teacher is not always the best model
            teacher, _ = trained(taught_by)
        student = recipe(f"bi-{model}", graph=graph, distill=True)
        self._write(task, "distilled", trained(student, teacher)[1])
        return task

    def _write(self, task: Task, kind: str, result: bignn.FitResult) -> None:
        path, model, seed, _ = task
        row = {
            "graph": Path(path).stem,
            "model": model,
            "seed": seed,
            "kind": kind,
            "test_acc": result.test_acc,
            "val_acc": result.val_acc,
            "epochs": result.epochs,
            "seconds": round(result.seconds, 1),
            "device": self.device,
        }
        line = (json.dumps(row) + "\n").encode()
        with Path(self.out).open("ab", buffering=0) as file:  # one write: whole or not there
            file.write(line)


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The finished runs, each once."""
    if not out.exists():
        return []
    lines = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    return list({(r["graph"], r["model"], r["seed"], r["kind"]): r for r in lines}.values())


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row per graph and model."""
    lines = [
        "| graph | model | seeds | float | binary | binary, distilled | distilled - float |",
        "|---|---|---|---|---|---|---|",
    ]
    keys = list(dict.fromkeys((row["graph"], row["model"]) for row in rows))
    for graph, model in sorted(keys):
        cells, means, counts = [], {}, set()
        for kind in KINDS:
            some = [
                row["test_acc"]
                for row in rows
                if (row["graph"], row["model"], row["kind"]) == (graph, model, kind)
            ]
            counts.add(len(some))
            mean, std = mean_and_std(some)
            means[kind] = mean
            cells.append("-" if mean is None else f"{mean:.2f} ± {std:.2f}")
        both = (means["distilled"], means["float"])
        difference = "-" if None in both else f"{both[0] - both[1]:+.2f}"  # type: ignore[operator]
        seeds = "/".join(map(str, sorted(counts)))
        lines.append(f"| {graph} | {model} | {seeds} | {' | '.join(cells)} | {difference} |")
    return "\n".join(lines)


def write(text: str, path: str) -> None:
    """Puts the table between the file's two comments."""
    before, _, rest = Path(path).read_text().partition("<!-- twins -->\n")
    _, mark, after = rest.partition("<!-- end of twins -->")
    if not mark:
        sys.exit(f"--write: '{path}' has no <!-- twins --> ... <!-- end of twins -->")
    with atomic_path(path) as temporary:
        temporary.write_text(f"{before}<!-- twins -->\n{text}\n<!-- end of twins -->{after}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("graphs", nargs="*")
    parser.add_argument("--models", nargs="+", default=["gcn", "sage", "saint", "gat"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", default="runs/twins.jsonl")
    parser.add_argument("--write", metavar="FILE")
    options = parser.parse_args()
    out = Path(options.out)
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {(row["graph"], row["model"], row["seed"], row["kind"]) for row in rows_of(out)}
    tasks: list[Task] = [
        (os.fspath(path), model, seed, what)
        for what in ("distilled", "binary")
        for seed in range(options.seeds)
        for path in options.graphs
        for model in options.models
        if (Path(path).stem, model, seed, what) not in done
    ]
    for task in in_processes(Runs(options.device, options.out), tasks, options.jobs):
        print("done", *task, file=sys.stderr, flush=True)
    text = table(rows_of(out))
    print(text)
    if options.write is not None:
        write(text, options.write)
