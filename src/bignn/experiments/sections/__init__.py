"""The sections of the results: every table and figure of the paper, ours beside it.

Each function makes a section of a results folder. Nothing in here is a number: accuracies come from
runs, costs from arithmetic, speeds from benchmarks, the paper's from ``published``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bignn.errors import FileError
from bignn.experiments.costs import cost_of
from bignn.experiments.document import Document, Section
from bignn.experiments.results import Results
from bignn.experiments.runs import Run
from bignn.experiments.sections.accuracy import (
    ablation,
    datasets,
    family,
    inductive,
    ogb,
    transductive,
    twins,
)
from bignn.experiments.sections.capacity import entropy, width
from bignn.experiments.sections.costs import cora_cost, depth_cost, overview
from bignn.experiments.sections.depth import depth
from bignn.experiments.sections.how import made, worked_example
from bignn.experiments.sections.speed import speed
from bignn.experiments.sections.words import name_of, times

SECTIONS: dict[str, Callable[[Results], Section]] = {
    "overview": overview,
    "datasets": datasets,
    "cora-cost": cora_cost,
    "transductive": transductive,
    "inductive": inductive,
    "ogb": ogb,
    "twins": twins,
    "family": family,
    "ablation": ablation,
    "depth": depth,
    "depth-cost": depth_cost,
    "entropy": entropy,
    "width": width,
    "speed": speed,
    "extraction": worked_example,
}


def document_of(folder: Path) -> Document:
    """All that a results folder has to show."""
    results = Results(folder)
    if results.is_empty:
        raise FileError(
            f"'{folder}' has no results: no runs.jsonl, bench*.json or capacity*.json with "
            f"anything in it; 'bignn reproduce --out {folder}' fills it"
        )
    sections = [make(results) for make in SECTIONS.values()]
    return Document(
        "Results",
        'Binary graph neural networks, measured: the tables and figures of "Binary Graph '
        'Convolutional Network with Capacity Exploration" with ours beside them.',
        _headline(results),
        (*sections, made(results)),
    )


def _headline(results: Results) -> tuple[tuple[str, str], ...]:
    found = []
    float_cost, binary_cost = cost_of("gcn", "cora"), cost_of("bi-gcn", "cora")
    ratios = binary_cost.compared(float_cost)
    found.append((f"{ratios.model:.0f}x", "smaller model than GCN's on Cora, by the paper's count"))
    speeds = [row for row in results.bench if row["speedup_vs_pyg"]]
    if speeds:
        best = max(speeds, key=lambda row: row["speedup_vs_pyg"])
        told = f"faster than PyG, measured ({best['shape']}, {name_of(best['model'])})"
        found.append((times(best["speedup_vs_pyg"]), told))
    distilled = results.of(Run("cora", "bi-gcn", distill=True))
    twin = results.of(Run("cora", "gcn"))
    if distilled is not None and twin is not None:
        told = f"test accuracy of a distilled Bi-GCN on Cora; float GCN {twin.mean:.1f} %"
        found.append((f"{distilled.mean:.1f} %", told))
    return tuple(found)
