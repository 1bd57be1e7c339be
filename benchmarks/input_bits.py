"""Which input bits? Accuracy of binary models with encoders on graphs with dense features.

Run: .venv/bin/python benchmarks/input_bits.py GRAPH ... [--model bi-gcn]
     [--bits sign,rotate:4,threshold:4] [--hidden 256] [--seeds 3] [--teachers 0,1]
     [--changes normalize_rows=False,...] [--device cuda] [--jobs 4] [--out runs/input-bits]
benchmarks/dense_graphs.py makes such graphs. The first row of a graph is the float twin, then one
for each choice of bits, alone (0 teachers) and distilled. A choice is made by the validation
column. Runs are kept in the folder, and finished ones are not run again.
"""

from __future__ import annotations

import argparse
import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

from bignn.lab.study.run import Run
from bignn.lab.study.runs import do_runs
from bignn.train.averages import mean_and_std, plus_minus
from bignn.train.recipes import TWINS


def rows_of(
    graph: str, model: str, bits: list[str], teachers: list[int], changes: dict[str, Any]
) -> list[Run]:
    """Return the runs of a graph with seed 0: the float twin's, then those of every choice."""
    width = {"hidden_channels": changes["hidden_channels"]} if "hidden_channels" in changes else {}
    rows = [Run(graph, TWINS[model], changes=tuple(width.items()))]
    for count in teachers:
        for choice in bits:
            changed = tuple({"input_bits": choice, **changes}.items())
            row = Run(graph, model, distill=count > 0, teachers=max(1, count), changes=changed)
            rows.append(row)
    return rows


def main() -> None:
    """Train all rows and print their scores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--model", default="bi-gcn", choices=tuple(TWINS))
    parser.add_argument("--bits", default="sign,rotate:4,threshold:4")
    parser.add_argument("--teachers", default="0,1")
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--changes", default="")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/input-bits"))
    options = parser.parse_args()
    pairs = (change.partition("=") for change in options.changes.split(",") if change)
    changes = {name: _value(text) for name, _, text in pairs}
    if options.hidden is not None:
        changes["hidden_channels"] = options.hidden
    teachers = [int(count) for count in options.teachers.split(",")]
    rows = [
        row
        for graph in options.graphs
        for row in rows_of(graph, options.model, options.bits.split(","), teachers, changes)
    ]
    runs = [replace(row, seed=seed) for row in rows for seed in range(options.seeds)]
    records = do_runs(runs, options.out, device=options.device, jobs=options.jobs)
    print(f"{'':<64}{'validation %':>15}{'test %':>15}{'s':>7}")
    for number, row in enumerate(rows):
        mine = records[number * options.seeds : (number + 1) * options.seeds]
        seconds = sum(record["seconds"] for record in mine) / len(mine)
        val, test = (_written([record[key] for record in mine]) for key in ("val_acc", "test_acc"))
        print(f"{row.row:<64}{val:>15}{test:>15}{seconds:>7.0f}")


def _written(scores: list[float]) -> str:
    mean, std = mean_and_std(scores)
    return "-" if mean is None else plus_minus(mean, std, 2)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main()
