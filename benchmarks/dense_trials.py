"""What separates a binary model on dense features from its float twin? One change at a time.

Run: .venv/bin/python benchmarks/dense_trials.py [GRAPH ...] [--model bi-gcn] [--seeds 2]
     [--device cuda] [--jobs 4] [--out runs/dense]   (trains; hours on a CPU, minutes on a GPU)
benchmarks/dense_graphs.py makes such graphs. Each row changes one thing of the distilled model with
the signs of four random rotations as input bits. Cells have the points of validation accuracy above
that model's, and test accuracy in brackets; a choice is made by the former. Runs are kept in the
folder, and finished ones are not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bignn.lab.study.ledger import Record
from bignn.lab.study.run import Run
from bignn.lab.study.runs import do_runs
from bignn.train.averages import mean_and_std
from bignn.train.recipes import TWINS

GRAPHS = ("amazon-computers-100", "coauthor-cs-100", "pubmed-100")
#: The row that the others are compared with.
BASE = "distilled"
_SLOW: dict[str, Any] = {"lr": 3e-4, "epochs": 3000, "patience": 300}

#: What is changed; ``"model"``, ``"distill"`` and ``"teachers"`` are not of the recipe.
TRIALS: dict[str, dict[str, Any]] = {
    BASE: {},
    "the float model": {"model": "float", "distill": False},
    "the float model, distilled": {"model": "float"},
    "not distilled": {"distill": False},
    "signs of features": {"input_bits": "sign"},
    "4 learned directions per feature": {"input_bits": "learned:4"},
    "2 rotations": {"input_bits": "rotate:2"},
    "8 rotations": {"input_bits": "rotate:8"},
    "16 rotations": {"input_bits": "rotate:16"},
    "4 thresholds": {"input_bits": "threshold:4"},
    "4 teachers": {"teachers": 4},
    "256 wide": {"hidden_channels": 256},
    "512 wide": {"hidden_channels": 512},
    "1024 wide": {"hidden_channels": 1024},
    "512 wide, 4 teachers, 8 rotations": {
        "hidden_channels": 512,
        "teachers": 4,
        "input_bits": "rotate:8",
    },
    "a path around hidden layers (jk='cat')": {"jk": "cat"},
    "three layers": {"num_layers": 3},
    "hidden bits compare with batch means (norm='batch')": {"norm": "batch"},
    "no normalisation between layers": {"norm": "none"},
    "float sums of neighbours": {"edge_bits": "none"},
    "slow: a third of the rate, 3000 epochs": _SLOW,
    "gradients masked by gradients": {"ste": "gradient"},
    "no gradient through scales": {"scale_gradient": False},
    "dropout 0.2": {"dropout": 0.2, "input_dropout": 0.2},
    "no dropout": {"dropout": 0.0, "input_dropout": 0.0},
    "labels have half of the loss": {"distill_mix": 0.5},
    "float weights": {"model": "bi-gcn-f"},
    "float features": {"model": "bi-gcn-w"},
}
#: Trials that other models than Bi-GCN have no version of.
_OF_GCN = ("float weights", "float features")


def trial(graph: str, model: str, name: str) -> Run:
    """Return the run of a trial, seed 0."""
    changes = dict(TRIALS[name])
    changed = changes.pop("model", model)
    distill, teachers = changes.pop("distill", True), changes.pop("teachers", 1)
    own = TWINS[model] if changed == "float" else changed
    if own != TWINS[model]:
        changes.setdefault("input_bits", "rotate:4")
    return Run(graph, own, distill=distill, teachers=teachers, changes=tuple(changes.items()))


def trials_of(model: str) -> list[str]:
    """Return the names of the trials that a model has."""
    return [name for name in TRIALS if model == "bi-gcn" or name not in _OF_GCN]


def cell(found: Sequence[Record], base: Sequence[Record]) -> str:
    """Write the points of validation accuracy above the base's, and test accuracy."""
    val, test = (mean_and_std([record[key] for record in found])[0] for key in _SCORES)
    first = mean_and_std([record["val_acc"] for record in base])[0]
    assert val is not None and test is not None and first is not None
    return f"{val:.1f} ({test:.1f})" if found is base else f"{val - first:+.1f} ({test:.1f})"


_SCORES = ("val_acc", "test_acc")


def main() -> None:
    """Train all trials and print their table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--model", default="bi-gcn", choices=("bi-gcn", "bi-sage"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/dense"))
    options = parser.parse_args()
    names = trials_of(options.model)
    rows = {(name, g): trial(g, options.model, name) for name in names for g in options.graphs}
    runs = [replace(row, seed=seed) for seed in range(options.seeds) for row in rows.values()]
    records = do_runs(runs, options.out, device=options.device, jobs=options.jobs)
    by_row: dict[Run, list[Record]] = {row: [] for row in rows.values()}
    for run, record in zip(runs, records, strict=True):
        by_row[replace(run, seed=0)].append(record)
    print(f"| {options.model} | " + " | ".join(options.graphs) + " |")
    print("|---" * (1 + len(options.graphs)) + "|")
    for name in names:
        cells = [cell(by_row[rows[name, g]], by_row[rows[BASE, g]]) for g in options.graphs]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
