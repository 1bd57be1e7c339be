"""The section of packed models on a GPU."""

from __future__ import annotations

from typing import Any

from bignn.lab.paper.results import Results
from bignn.lab.report.document import Section, Table
from bignn.lab.report.wording import ms, times

_COLUMNS = (
    *("graph", "run by", "ms", "packed is faster", "GB", "packed takes less"),
    "classes unlike the CPU's",
)


def gpu(results: Results) -> Section:
    """Make the section of what ``bignn bench --device cuda`` measured."""
    text = (
        "Random graphs of the published sizes with random weights: median time to predict all "
        "nodes, launches included, classes left on the GPU. GB is all that a contender takes "
        "there, edges included (`bignn bench shapes --device cuda`)."
    )
    tables = (
        Table(
            f"{document['device']}, torch {document['torch']}",
            _COLUMNS,
            tuple(cells for row in document["rows"] for cells in _cells(row)),
        )
        for document in results.gpu
    )
    return Section("gpu", "On a GPU", (text, *tables))


def _cells(row: dict[str, Any]) -> list[tuple[str, ...]]:
    widths = "-".join(map(str, row["sizes"]))
    differing = "" if row["differing_classes"] is None else f"{row['differing_classes']:,}"
    ours = (f"packed ({row['plan']})", ms(row["packed_ms"]), "", f"{row['packed_gb']:.2f}", "")
    cells: list[tuple[str, ...]] = [(f"{row['shape']}, {widths}", *ours, differing)]
    for name, found in row["floats"].items():
        if found["ms"] is None:
            cells.append(("", f"{name}: {found['why_not']}", "", "", "", "", ""))
            continue
        faster, less = found["ms"] / row["packed_ms"], found["gb"] / row["packed_gb"]
        measured = (ms(found["ms"]), times(faster), f"{found['gb']:.2f}", times(less))
        cells.append(("", name, *measured, ""))
    return cells
