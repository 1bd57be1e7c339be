"""What separates binary inductive models, and Bi-GCN on musae-github, from their float twins?

Run: .venv/bin/python benchmarks/inductive_trials.py [--seeds 2] [--device cuda] [--jobs 6]
     [--only GRAPH ...] [--out runs/inductive] [--table]
Each row changes one thing of the wide model with four teachers. Runs are kept in the folder, each
as soon as it is over, and finished ones are not run again, so the command can be ended at any time
(Ctrl-C) and begun anew; the most telling rows come first. ``--table`` trains nothing and prints
the rows that the folder has: validation accuracy (loss) and test accuracy. Choose by the former.
``amazon-computers-100`` and the like are made by benchmarks/dense_graphs.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import bignn
from bignn.lab.study.ledger import Ledger, Record
from bignn.lab.study.run import RUNS, Run
from bignn.lab.study.runs import do_runs
from bignn.train.averages import mean_and_std
from bignn.train.jobs import in_processes
from bignn.train.recipes import TWINS
from bignn.train.seeds import fit_model, fit_seed

_WIDE: dict[str, Any] = {"hidden_channels": 512}
_MEAN: dict[str, Any] = {"average": 0.99}
_COSINE: dict[str, Any] = {"lr_decay": "cosine", "lr": 0.003}
_LEARNED: dict[str, Any] = {"norm": "batch_affine"}
_LITTLE: dict[str, Any] = {"dropout": 0.2, "input_dropout": 0.2}

#: Changes of an inductive model with four teachers, 512 wide.
INDUCTIVE: dict[str, dict[str, Any]] = {
    "float": {"model": "float"},
    "binary": {},
    "mean weights (0.99)": _MEAN,
    "cosine": _COSINE,
    "mean weights, cosine": {**_MEAN, **_COSINE},
    "learned thresholds": _LEARNED,
    "labels have 0.3 of the loss": {"distill_mix": 0.7},
    "these four": {**_MEAN, **_COSINE, **_LEARNED, "distill_mix": 0.7},
    "input dropout 0.5": {"input_dropout": 0.5},
    "jk='cat'": {"jk": "cat"},
    "no dropout": {"dropout": 0.0, "input_dropout": 0.0},
    "25 neighbours": {"fan_outs": (25, 25)},
    "float, mean weights": {"model": "float", **_MEAN},
    "float, cosine": {"model": "float", "lr_decay": "cosine"},
    "batches of 512": {"batch_size": 512},
    "labels have half of the loss": {"distill_mix": 0.5},
    "8 rotations": {"input_bits": "rotate:8"},
    "1024 wide": {"hidden_channels": 1024},
    "mean weights (0.998)": {"average": 0.998},
    "temperature 2": {"temperature": 2.0},
    "by accuracy": {"select_by": "accuracy"},
    "whole training graph": {"sampler": "none", "epochs": 1000, "patience": 150},
    "not distilled": {"distill": False},
}
#: Changes of Bi-GCN on musae-github with four teachers, 448 wide.
MUSAE: dict[str, dict[str, Any]] = {
    "binary": {},
    "mean weights (0.98)": {"average": 0.98},
    "dropout 0.2": _LITTLE,
    "mean weights, dropout 0.2": {"average": 0.98, **_LITTLE},
    "mean weights, cosine, dropout 0.2": {"average": 0.98, **_COSINE, **_LITTLE},
    "learned thresholds": _LEARNED,
    "mean weights, input dropout 0.5": {"average": 0.98, "dropout": 0.2, "input_dropout": 0.5},
    "jk='cat'": {"jk": "cat"},
    "three layers": {"num_layers": 3},
}
#: Graphs, models and the first so many rows of each, in the order of what they tell.
PLAN: tuple[tuple[str, str, int], ...] = (
    ("amazon-computers", "bi-sage", 12),
    ("coauthor-cs-100", "bi-sage", 12),
    ("musae-github", "bi-gcn", 6),
    ("amazon-computers", "bi-saint", 8),
    ("coauthor-physics", "bi-sage", 8),
    ("amazon-computers", "bi-sage", 23),
    ("musae-github", "bi-gcn", 9),
    ("coauthor-cs-100", "bi-sage", 23),
    ("musae-github", "bi-sage", 8),
    ("coauthor-physics", "bi-saint", 8),
)
#: Folds of the training nodes whose labels a teacher is not shown.
_FOLDS = 4
HELD_OUT = "teachers of held-out nodes"


def trial(graph: str, model: str, changes: dict[str, Any]) -> Run:
    """Return the run of a trial, seed 0."""
    own = {**({"hidden_channels": 448} if model == "bi-gcn" else _WIDE), **changes}
    is_float = own.pop("model", model) == "float"
    distill = own.pop("distill", not is_float)
    if is_float:
        own.pop("hidden_channels")
    name = TWINS[model] if is_float else model
    return Run(graph, name, distill=distill, teachers=4, changes=tuple(own.items()))


def rows_of(graph: str, model: str) -> dict[str, Run]:
    """Return the trials of a model by their names."""
    changes = MUSAE if model == "bi-gcn" else INDUCTIVE
    is_dense = graph.rpartition("-")[2].isdecimal()
    return {
        name: trial(graph, model, own)
        for name, own in changes.items()
        if (is_dense or "input_bits" not in own)
        and not (model == "bi-saint" and own.keys() & {"fan_outs", "batch_size", "jk"})
    }


def planned(seeds: int, only: Sequence[str]) -> list[Run]:
    """Return the runs in the order of the plan.

    The float models that teach come a step of the plan before their students, which would wait.
    """
    steps = []
    for graph, model, count in PLAN:
        if not only or graph in only:
            rows = dict(list(rows_of(graph, model).items())[:count])
            taught = [rows.pop("float")] if "float" in rows else []
            floats = [replace(run, seed=seed) for seed in range(4 * seeds) for run in taught]
            students = [replace(run, seed=s) for run in rows.values() for s in range(seeds)]
            steps.append((floats, students))
    runs = steps[0][0] if steps else []
    for (_, students), (floats, _) in zip(steps, [*steps[1:], ([], [])], strict=True):
        runs = [*runs, *floats, *students]
    return list(dict.fromkeys(runs))


class HeldOutTeachers(nn.Module):
    """Models of which each predicts the nodes of one fold, whose labels it was not shown."""

    def __init__(self, models: Sequence[nn.Module], folds: Tensor) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        self.register_buffer("folds", folds)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Compute the logits of every training node by its fold's model."""
        every = torch.stack([model(x, edge_index) for model in self.models])
        assert isinstance(self.folds, Tensor)
        return every[self.folds, torch.arange(len(x), device=x.device)]


def held_out_run(item: tuple[Run, Path, str]) -> None:
    """Train a student whose targets are predictions of nodes with labels that were held out."""
    run, out, device = item
    graph = bignn.load(run.dataset)
    assert graph.train_idx is not None
    nodes = np.unique(graph.train_idx)
    folds = np.random.default_rng(run.seed).permutation(len(nodes)) % _FOLDS
    taught_by = run.teacher_recipe(graph)
    assert taught_by is not None
    teachers = []
    for fold in range(_FOLDS):
        fewer = replace(graph, train_idx=nodes[folds != fold])
        seed = run.seed * _FOLDS + fold
        teachers.append(fit_model(taught_by, fewer, seed, device=device, progress=False)[0])
    teacher = HeldOutTeachers(teachers, torch.from_numpy(folds).to(device))
    chosen = run.recipe(graph)
    result = fit_seed(chosen, graph, run.seed, teacher=teacher, device=device, progress=False)
    scores = ("val_loss", "val_acc", "test_acc", "best_epoch", "epochs", "seconds")
    record = {"row": f"{run.row}/held-out", "seed": run.seed}
    Ledger(out / "held-out.jsonl").append(record | {name: getattr(result, name) for name in scores})


def described(found: Sequence[Record]) -> str:
    """Write the means of validation and test accuracy of a row's seeds."""
    mean = {key: mean_and_std([one[key] for one in found])[0] for key in _SHOWN}
    val, loss, test = (mean[key] for key in _SHOWN)
    return f"{val:.2f} ({loss:.4f}), {test:.2f}, {len(found)} seeds"


_SHOWN = ("val_acc", "val_loss", "test_acc")


def print_table(out: Path) -> None:
    """Print every row that the folder has runs of."""
    by_row: dict[str, dict[int, Record]] = {}
    for name in (RUNS, "held-out.jsonl"):
        for record in Ledger(out / name).read():
            by_row.setdefault(record["row"], {})[record["seed"]] = record
    for graph, model in dict.fromkeys((graph, model) for graph, model, _ in PLAN):
        print(f"\n{graph}, {model}")
        rows = rows_of(graph, model)
        named = {name: run.row for name, run in rows.items()}
        if "binary" in rows:
            named[HELD_OUT] = rows["binary"].row + "/held-out"
        for name, row in named.items():
            if row in by_row:
                print(f"  {name:40s} {described(list(by_row[row].values()))}")


def main() -> None:
    """Train all trials and print their table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/inductive"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--held-out", action="store_true", help="these trials alone")
    options = parser.parse_args()
    if options.table:
        print_table(options.out)
        return
    seeds = range(options.seeds)
    if options.held_out:
        graphs = options.only or ("amazon-computers", "coauthor-cs-100")
        bases = [rows_of(graph, "bi-sage")["binary"] for graph in graphs]
        items = [
            (replace(run, seed=s), options.out, options.device) for s in seeds for run in bases
        ]
        list(in_processes(held_out_run, items, options.jobs))
        return
    runs = planned(options.seeds, options.only)
    do_runs(runs, options.out, device=options.device, jobs=options.jobs)
    print_table(options.out)


if __name__ == "__main__":
    main()
