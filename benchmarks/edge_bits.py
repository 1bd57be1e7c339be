"""Which number of edge bits? Accuracy of binary models whose neighbour weights have few bits.

Run: .venv/bin/python benchmarks/edge_bits.py [GRAPH ...] [--models bi-gcn,bi-sage] [--bits 6,7,8]
     [--seeds 20] [--distill] [--device cuda] [--jobs 4] [--out runs/edge-bits]   (trains, minutes)
A choice is made by the validation columns; p is Welch's test of validation accuracy against plain
float sums. Runs are kept in the folder, and finished ones are not run again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scipy import stats

from bignn.graph import EMBEDDED
from bignn.lab.study.ledger import Record
from bignn.lab.study.run import Run
from bignn.lab.study.runs import do_runs
from bignn.train.averages import mean_and_std, plus_minus


def row(graph: str, model: str, bits: int | None, *, distill: bool) -> Run:
    """Return the run of a model with some number of edge bits, seed 0; None for float weights."""
    changes = (("edge_bits", "none" if bits is None else bits),)
    return Run(graph, model, distill=distill, changes=changes)


def written(values: list[float]) -> str:
    """Write mean ± standard deviation."""
    mean, std = mean_and_std(values)
    assert mean is not None
    return plus_minus(mean, std, 2)


def describe(name: str, records: list[Record], plain: list[Record]) -> str:
    """Write a row's scores, beside those of the row without rounding."""
    val, test = ([record[key] for record in records] for key in ("val_acc", "test_acc"))
    loss = sum(record["val_loss"] for record in records) / len(records)
    p = "-"
    if records is not plain and len(records) > 1:
        others = [record["val_acc"] for record in plain]
        p = f"{stats.ttest_ind(val, others, equal_var=False).pvalue:.2f}"
    val_text, test_text = (written(values) for values in (val, test))
    return f"{name:<34}{val_text:>15}{loss:>10.4f}{p:>7}{test_text:>15}"


def main() -> None:
    """Train all rows and print their scores."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="*", default=list(EMBEDDED))
    parser.add_argument("--models", default="bi-gcn")
    parser.add_argument("--bits", default="6,7,8")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--distill", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/edge-bits"))
    options = parser.parse_args()
    bits = [None, *map(int, options.bits.split(","))]
    # Float weights first, which the others are compared with.
    rows = [
        row(graph, model, number, distill=options.distill)
        for graph in options.graphs
        for model in options.models.split(",")
        for number in bits
    ]
    runs = [
        Run(run.dataset, run.model, seed, run.distill, changes=run.changes)
        for run in rows
        for seed in range(options.seeds)
    ]
    records = do_runs(runs, options.out, device=options.device, jobs=options.jobs)
    print(f"{'':<34}{'validation %':>15}{'loss':>10}{'p':>7}{'test %':>15}")
    plain: list[Record] = []
    for number, run in enumerate(rows):
        mine = records[number * options.seeds : (number + 1) * options.seeds]
        if number % len(bits) == 0:
            plain = mine
        print(describe(run.row, mine, plain))


if __name__ == "__main__":
    main()
