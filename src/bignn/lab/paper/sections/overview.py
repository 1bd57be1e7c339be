"""The first section: what 1 bit keeps and saves on real graphs, and the paper's Fig. 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bignn import cost
from bignn.lab.paper import rows as paper
from bignn.lab.paper.published import ACCURACY
from bignn.lab.paper.results import Results
from bignn.lab.paper.sections.costs import cost_of_run
from bignn.lab.report.document import Figure, Panels, Part, Section, Series
from bignn.lab.report.wording import name_of
from bignn.lab.study.run import Run


def overview(results: Results) -> Section:
    """Make the section of accuracy kept, memory and time saved."""
    glance = _glance(results)
    parts: tuple[Part, ...] = (
        _on_cora(results, "size", "model size, bits", lambda found: 8 * found.model_bytes),
        _on_cora(results, "operations", "cycle operations", lambda found: found.cycle_ops),
    )
    return Section("overview", "Overview", parts if glance is None else (glance, *parts))


def _glance(results: Results) -> Panels | None:
    """Draw accuracy, memory and speed of GCN and Bi-GCN on all real graphs, side by side."""
    graphs = [name for name in paper.RECOMMENDED if results.of(Run(name, "bi-gcn", distill=True))]
    if not graphs:
        return None
    names = tuple(map(name_of, graphs))
    speeds = {
        row["shape"]: row
        # Of several backends and numbers of threads, the fastest.
        for row in sorted(results.bench, key=lambda row: -row["packed_ms"])
        if row["suite"] == "citation" and row["model"] == "bi-gcn"
    }

    def measured(key: str) -> tuple[float | None, ...]:
        return tuple(speeds.get(graph, {}).get(key) for graph in graphs)

    def accuracy(label: str, runs: Sequence[Run]) -> Series:
        found = [results.of(run) for run in runs]
        means = tuple(None if one is None else one.mean for one in found)
        return Series(label, names, means, tuple(None if one is None else one.std for one in found))

    counted = tuple(_times_smaller(graph) for graph in graphs)
    ratios: dict[str, Any] = {"log_y": True, "baseline": 1.0, "groups": names}
    return Panels(
        "overview",
        "A float GCN and a distilled 1-bit Bi-GCN of the same width: test accuracy (mean and "
        "standard deviation over seeds), memory and time to predict all nodes. Counted sizes "
        "are those of weights and features by the paper's rules; measured are the peak memory and "
        "the time on a CPU.",
        (
            Figure(
                "accuracy",
                "Accuracy kept",
                "dots",
                "",
                "test accuracy, %",
                (
                    accuracy("GCN, float", [Run(graph, "gcn") for graph in graphs]),
                    accuracy("Bi-GCN, 1 bit", [Run(g, "bi-gcn", distill=True) for g in graphs]),
                ),
                groups=names,
            ),
            Figure(
                "memory",
                "Memory saved",
                "dots",
                "",
                "times less memory",
                (
                    Series("weights and features, counted", names, counted),
                    Series("peak against the fastest float way", names, measured("memory_ratio")),
                ),
                **ratios,
            ),
            Figure(
                "time",
                "Time saved",
                "dots",
                "",
                "times faster",
                (
                    Series("than PyG on an edge index", names, measured("speedup_vs_pyg")),
                    Series("than the fastest float way", names, measured("speedup_vs_best_float")),
                ),
                **ratios,
            ),
        ),
    )


def _times_smaller(graph: str) -> float:
    plain, binary = (cost_of_run(Run(graph, model)) for model in ("gcn", "bi-gcn"))
    return (plain.model_bytes + plain.data_bytes) / (binary.model_bytes + binary.data_bytes)


def _on_cora(results: Results, name: str, x_label: str, of: Callable[[cost.Cost], float]) -> Figure:
    """Draw the paper's Fig. 1: accuracy on Cora against a cost, ours and the paper's."""
    series = []
    for row in paper.EXPERIMENTS["transductive"].rows:
        if row.dataset != "cora":
            continue
        x = (of(cost_of_run(row)),)
        if (ours := results.of(row)) is not None:
            series.append(Series(name_of(row.model), x, (ours.mean,), (ours.std,)))
        mean, std = ACCURACY["cora"][row.model]
        label = f"{name_of(row.model)}, paper"
        series.append(Series(label, x, (mean,), (std,), is_papers=True))
    caption = f"Accuracy on Cora against {x_label}: ours and the paper's"
    y_label = "test accuracy, %"
    return Figure(
        f"overview-{name}", caption, "points", x_label, y_label, tuple(series), log_x=True
    )
