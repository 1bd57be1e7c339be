"""The sections of the results: every table and figure of the paper, ours beside it.

Each function makes one section from a results folder: accuracies come from runs, costs from
arithmetic, speeds from benchmarks, and the paper's own figures from what it prints.
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
from bignn.lab.paper.sections.appendix import machines, worked_example
from bignn.lab.paper.sections.capacity import entropy, width
from bignn.lab.paper.sections.costs import cora_cost, depth_cost
from bignn.lab.paper.sections.dense import dense
from bignn.lab.paper.sections.depth import depth
from bignn.lab.paper.sections.gpu import gpu
from bignn.lab.paper.sections.overview import overview
from bignn.lab.paper.sections.speed import speed
from bignn.lab.paper.sections.store import store
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
    "dense": dense,
    "ablation": ablation,
    "depth": depth,
    "depth-cost": depth_cost,
    "entropy": entropy,
    "width": width,
    "speed": speed,
    "gpu": gpu,
    "store": store,
    "extraction": worked_example,
}


#: Sections that are empty without runs; others have costs.
_NOTHING_BUT_RUNS = ("twins", "family", "dense", "ablation", "depth")


def _has_runs(results: Results, name: str) -> bool:
    return any(results.seeds(run) for run in EXPERIMENTS[name].rows)


def document_of(folder: Path, *, even_if_empty: bool = False) -> Document:
    """Make the document of all that a results folder has.

    An empty folder is refused, unless ``even_if_empty`` or unless 'bignn reproduce' wrote a page of
    tables that need no runs there.
    """
    results = Results(folder)
    if results.is_empty and not (even_if_empty or (folder / PAGE).exists()):
        compared = folder / "report.html"
        if compared.is_file():
            raise FileError(f"'{folder}' is of 'bignn compare'; its page is '{compared}'")
        raise FileError(
            f"'{folder}' has no results: no runs.jsonl, bench*.json or capacity*.json with "
            f"anything in it; 'bignn reproduce transductive --out {folder}' makes some"
        )
    empty = {
        *(() if results.capacity else ("entropy", "width")),
        *(() if results.bench else ("speed",)),
        *(() if results.gpu else ("gpu",)),
        *(() if results.store else ("store",)),
        *(name for name in _NOTHING_BUT_RUNS if not _has_runs(results, name)),
    }
    sections = [make(results) for name, make in SECTIONS.items() if name not in empty]
    return Document(
        "Results",
        "Binary graph neural networks, measured: our results beside the tables and figures of "
        '"Binary Graph Convolutional Network with Capacity Exploration".',
        _headline(results),
        (*sections, machines(results)),
    )


def _headline(results: Results) -> tuple[tuple[str, str], ...]:
    """Return the cards at the top; one without a number gives the reason."""
    ratios = cost_of("bi-gcn", "cora").compared(cost_of("gcn", "cora"))
    cards = [(f"{ratios.model:.0f}x", "smaller model than GCN's on Cora, by the paper's count")]
    speeds = [row for row in results.bench if row["suite"] != "gemm"]
    # Times taken while others used the cores are to be measured again, and do not count.
    quiet = [row for row in speeds if row.get("machine_was_busy") is not True] or speeds
    for key, what, rows in (
        ("speedup_vs_best_float", "faster than the best float inference, measured", quiet),
        ("speedup_vs_pyg", "faster than PyG on an edge index, measured", quiet),
        ("memory_ratio", "less memory for features, weights and activations, measured", speeds),
    ):
        ratio = [row[key] for row in rows if row[key] is not None]
        if ratio:
            low, high = f"{min(ratio):.1f}", f"{max(ratio):.1f}"
            cards.append((f"{low}x" if low == high else f"{low}–{high}x", what))
        elif speeds:
            cards.append(("–", f"{what.removesuffix(', measured')}: not measured"))
    if not speeds:
        command = f"`bignn bench --json > {results.shown_folder}/bench.json`"
        cards.append(("–", f"speed and memory were not measured: {command}"))
    kinds = {
        "distilled Bi-GCN": Run("cora", "bi-gcn", distill=True),
        "Bi-GCN": Run("cora", "bi-gcn"),
        "float GCN": Run("cora", "gcn"),
        "distilled float GCN": Run("cora", "gcn", distill=True),
    }
    found = {kind: results.of(run) for kind, run in kinds.items()}
    measured = {kind: summary for kind, summary in found.items() if summary is not None}
    if len(measured) > 1:
        (kind, first), *others = measured.items()
        beside = [f"{other} {summary.mean:.1f} ({_seeds(summary)})" for other, summary in others]
        what = f"test accuracy of a {kind} on Cora ({_seeds(first)}); {', '.join(beside)}"
        cards.append((f"{first.mean:.1f} %", what))
    return tuple(cards)


def _seeds(summary: Summary) -> str:
    count = len(summary.test)
    return f"{count} seed{'s' if count > 1 else ''}"
