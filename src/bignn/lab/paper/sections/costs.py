"""Sections of what models cost by the paper's rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bignn import cost
from bignn.lab.paper.results import Results
from bignn.lab.report.document import Figure, Section, Series, Table
from bignn.lab.report.wording import kib, mib
from bignn.lab.study.run import Run
from bignn.train.recipes.cost import cost_of


def cost_of_run(run: Run) -> cost.Cost:
    """Return what a run's model costs on its dataset."""
    return cost_of(run.model, run.dataset, **dict(run.changes))


def cora_cost(results: Results) -> Section:
    """Make the section of the paper's Table 1: what GCN and Bi-GCN cost on Cora."""
    float_cost, binary_cost = cost_of("gcn", "cora"), cost_of("bi-gcn", "cora")
    ratios = binary_cost.compared(float_cost)
    rows = [
        (name, kib(found.model_bytes), mib(found.data_bytes), f"{found.cycle_ops:,.0f}")
        for name, found in (("GCN", float_cost), ("Bi-GCN", binary_cost))
    ]
    rows.append(("ratio", f"{ratios.model:.1f}x", f"{ratios.data:.1f}x", f"{ratios.full:.1f}x"))
    printed = (
        ("GCN, paper", "360K", "14.8M", "249,954,739"),
        ("Bi-GCN, paper", "11.53K", "0.47M", "4,669,515"),
        ("ratio, paper", "31.2x", "31.5x", "53.5x"),
    )
    columns = ("two layers, 64 hidden", "model size", "data size", "cycle operations")
    return Section(
        "cora-cost",
        "What Bi-GCN costs on Cora",
        (
            "Computed by the rules of the paper's Section 5 (`bignn cost cora --model bi-gcn`), "
            "not measured; `bignn bench` measures the packed engine.",
            Table("", columns, (*rows, *printed)),
        ),
    )


def depth_cost(results: Results) -> Section:
    """Make the section of the paper's figure of memory and operations against depth, on Cora."""
    depths = tuple(range(1, 9))
    sgc = cost_of("sgc", "cora")
    models = {
        "GCN": [cost_of("gcn", "cora", num_layers=n) for n in depths],
        "Bi-GCN": [cost_of("bi-gcn", "cora", num_layers=n) for n in depths],
        "SGC": [cost.estimate(replace(sgc.architecture, K=n), "cora") for n in depths],
    }

    def figure(name: str, caption: str, y_label: str, of: Callable[[cost.Cost], float]) -> Figure:
        series = [
            Series(label, depths, tuple(of(found) for found in costs))
            for label, costs in models.items()
        ]
        return Figure(name, caption, "lines", "layers (SGC: K)", y_label, tuple(series),
                      log_y=True)  # fmt: skip

    return Section(
        "depth-cost",
        "Memory and operations by depth",
        (
            "Cora, 64 hidden, by the rules of the paper's Section 5.",
            figure(
                "depth-memory",
                "Model and data size by depth",
                "bytes",
                lambda found: found.model_bytes + found.data_bytes,
            ),
            figure(
                "depth-operations",
                "Cycle operations by depth",
                "cycle operations",
                lambda found: found.cycle_ops,
            ),
        ),
    )
