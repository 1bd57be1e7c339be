"""Distilled models beside their float twins, with changes of their recipe.

Run: .venv/bin/python benchmarks/inductive_trials.py GRAPH ... [--model bi-sage] [--hidden 256]
     [--rows lr=0.001 "fan_outs=(25,10),dropout=0.1" ...] [--teachers 1] [--seeds 3]
     [--device cuda] [--jobs 4] [--out runs/inductive]
Students of a seed have the same teachers in every row that does not change how long teachers train
(``epochs``, ``patience``). The row "the recipe" has the width of ``--hidden``. Cells have
validation accuracy (loss) and test accuracy; a choice is made by the former. Runs are kept in the
folder, and finished ones are not run again. (A minute or two per run of amazon-photo on one core.)
"""

from __future__ import annotations

import argparse
import re
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bignn.lab.study.ledger import Record
from bignn.lab.study.run import Run
from bignn.lab.study.runs import do_runs
from bignn.train.averages import mean_and_std
from bignn.train.recipes import TWINS


def parsed(row: str) -> tuple[tuple[str, Any], ...]:
    """Read the changes of a row, ``name=value,name=value``; numbers are numbers."""
    changes: list[tuple[str, Any]] = []
    for change in re.split(r",(?=\w+=)", row):
        name, _, text = change.partition("=")
        try:
            changes.append((name, literal_eval(text)))
        except (ValueError, SyntaxError):
            changes.append((name, text))
    return tuple(changes)


def cell(found: Sequence[Record]) -> str:
    """Write the means of a row's seeds."""
    keys = ("val_acc", "val_loss", "test_acc")
    val, loss, test = (mean_and_std([record[key] for record in found])[0] for key in keys)
    return f"{val:.2f} ({loss:.4f}), {test:.2f}"


def main() -> None:
    """Train all rows and print their table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--model", default="bi-sage", choices=("bi-sage", "bi-saint", "bi-gcn"))
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--rows", nargs="+", default=["lr=0.001"])
    parser.add_argument("--teachers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/inductive"))
    options = parser.parse_args()
    rows: dict[tuple[str, str], Run] = {}
    for graph in options.graphs:
        rows["the float model", graph] = Run(graph, TWINS[options.model])
        for name in ("the recipe", *options.rows):
            changes = () if name == "the recipe" else parsed(name)
            every = {"hidden_channels": options.hidden, **dict(changes)}
            rows[name, graph] = Run(
                graph,
                options.model,
                distill=True,
                teachers=options.teachers,
                changes=tuple(every.items()),
            )
    runs = [replace(row, seed=seed) for seed in range(options.seeds) for row in rows.values()]
    records = do_runs(runs, options.out, device=options.device, jobs=options.jobs)
    by_row: dict[Run, list[Record]] = {row: [] for row in rows.values()}
    for run, record in zip(runs, records, strict=True):
        by_row[replace(run, seed=0)].append(record)
    print(f"| {options.model} | " + " | ".join(options.graphs) + " |")
    print("|---" * (1 + len(options.graphs)) + "|")
    for name in dict.fromkeys(name for name, _ in rows):
        cells = [cell(by_row[rows[name, graph]]) for graph in options.graphs]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
