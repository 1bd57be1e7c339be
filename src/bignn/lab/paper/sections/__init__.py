"""The sections of the results: every table and figure of the paper, ours beside it.

Each function makes a section of a results folder: accuracies come from runs, costs from arithmetic,
speeds from benchmarks, and the paper's own figures from what it prints.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bignn.errors import FileError
from bignn.lab.paper.results import PAGE, Results, Summary
from bignn.lab.paper.rows import EXPERIMENTS
from bignn.lab.paper.sections.accuracy import (
    ablation,
    datasets,
    family,
    inductive,
    ogb,
    transductive,
    twins,
)
from bignn.lab.paper.sections.capacity import entropy, width
from bignn.lab.paper.sections.costs import cora_cost, depth_cost, overview
from bignn.lab.paper.sections.depth import depth
from bignn.lab.paper.sections.how import made, worked_example
from bignn.lab.paper.sections.speed import speed
from bignn.lab.report.document import Document, Section
from bignn.lab.study.run import Run
from bignn.train.recipes.cost import cost_of

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


#: Sections that have nothing to show without runs, as costs.
_NOTHING_BUT_RUNS = ("twins", "family", "ablation", "depth")


def _has_runs(results: Results, name: str) -> bool:
    return any(results.seeds(run) for run in EXPERIMENTS[name].rows)


def document_of(folder: Path, *, even_if_empty: bool = False) -> Document:
    """All that a results folder has to show; one without anything is refused, unless told not, or
    unless 'bignn reproduce' wrote its page there, of tables that need no runs.
    """
    results = Results(folder)
    if results.is_empty and not (even_if_empty or (folder / PAGE).exists()):
        compared = folder / "report.html"
        if compared.is_file():
            raise FileError(f"'{folder}' is of 'bignn compare', whose page is there: '{compared}'")
        raise FileError(
            f"'{folder}' has no results: no runs.jsonl, bench*.json or capacity*.json with "
            f"anything in it; 'bignn reproduce transductive --out {folder}' trains for it"
        )
    empty = {
        *(() if results.capacity else ("entropy", "width")),
        *(() if results.bench else ("speed",)),
        *(name for name in _NOTHING_BUT_RUNS if not _has_runs(results, name)),
    }
    sections = [make(results) for name, make in SECTIONS.items() if name not in empty]
    return Document(
        "Results",
        'Binary graph neural networks, measured: the tables and figures of "Binary Graph '
        'Convolutional Network with Capacity Exploration" with ours beside them.',
        _headline(results),
        (*sections, made(results)),
    )


def _headline(results: Results) -> tuple[tuple[str, str], ...]:
    ratios = cost_of("bi-gcn", "cora").compared(cost_of("gcn", "cora"))
    found = [(f"{ratios.model:.0f}x", "smaller model than GCN's on Cora, by the paper's count")]
    speeds = [row for row in results.bench if row["suite"] != "gemm"]
    for key, told in (
        ("speedup_vs_best_float", "faster than the best float inference, measured"),
        ("speedup_vs_pyg", "faster than PyG on an edge index, measured"),
        ("memory_ratio", "less memory for features, weights and activations, measured"),
    ):
        ratio = [row[key] for row in speeds if row[key] is not None]
        if ratio:
            found.append((f"{min(ratio):.1f}–{max(ratio):.1f}x", told))
    kinds = {
        "distilled Bi-GCN": Run("cora", "bi-gcn", distill=True),
        "Bi-GCN": Run("cora", "bi-gcn"),
        "float GCN": Run("cora", "gcn"),
        "distilled float GCN": Run("cora", "gcn", distill=True),
    }
    means = {kind: results.of(run) for kind, run in kinds.items()}
    known = {kind: summary for kind, summary in means.items() if summary is not None}
    if len(known) > 1:
        (kind, first), *others = known.items()
        beside = [f"{other} {summary.mean:.1f} ({_seeds(summary)})" for other, summary in others]
        told = f"test accuracy of a {kind} on Cora ({_seeds(first)}); {', '.join(beside)}"
        found.append((f"{first.mean:.1f} %", told))
    return tuple(found)


def _seeds(summary: Summary) -> str:
    count = len(summary.test)
    return f"{count} seed{'s' if count > 1 else ''}"
