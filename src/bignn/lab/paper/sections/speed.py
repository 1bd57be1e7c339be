"""What was measured of packed models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bignn.lab.bench.suite_report import row_names, speedups
from bignn.lab.paper.results import Results
from bignn.lab.paper.wording import SHAPE_OF
from bignn.lab.report.document import Figure, Part, Section, Series, Table
from bignn.lab.report.wording import ms, name_of, times

Row = dict[str, Any]


def shape_speeds(results: Results, names: Sequence[str]) -> list[Table]:
    """Packed prediction on synthetic graphs of the sizes of these datasets."""
    shapes = {SHAPE_OF[name]: name for name in names}
    cells = [
        (
            f"{name_of(shapes[row['shape']])}, {name_of(row['model'])}",
            ms(row["packed_ms"]),
            ms(row["best_float_ms"]),
            times(row["speedup_vs_best_float"]),
            times(row.get("fastest_speedup_vs_best_float")),
            times(_than_pyg(row)),
            times(row["speedup_vs_simulated"]),
        )
        for row in results.bench
        if row["shape"] in shapes
    ]
    columns = (
        *("synthetic graph of that size", "packed, ms", "best float, ms"),
        *("faster than best float", "by fastest bursts", "than PyG's best"),
        "than a float simulation",
    )
    return [Table("Measured speed", columns, tuple(cells))] if cells else []


def _than_pyg(row: Row) -> float | None:
    """How many times faster than the fastest of PyG's ways."""
    ratios = (row["speedup_vs_pyg"], row["speedup_vs_pyg_sparse"])
    return min((ratio for ratio in ratios if ratio is not None), default=None)


def speed(results: Results) -> Section:
    """What ``bignn bench`` measured."""
    rows = [row for row in results.bench if row["suite"] != "gemm"]
    cells = tuple(
        (
            name + "*" * (row["suite"] == "shapes"),
            row["plan"] or "",
            ms(row["packed_ms"]),
            ms(row["best_float_ms"]),
            times(row["speedup_vs_best_float"]),
            times(row.get("fastest_speedup_vs_best_float")),
            times(row["speedup_vs_pyg"]),
            times(row["speedup_vs_pyg_sparse"]),
            times(row["speedup_vs_simulated"]),
            "" if row["agreement"] is None else f"{100 * row['agreement']:.2f} %",
        )
        for name, row in zip(row_names(rows), rows, strict=True)
    )
    columns = (
        *("graph and model", "plan", "packed, ms", "best float, ms", "faster", "by fastest bursts"),
        *("than PyG", "than PyG, CSR", "than a simulation", "classes as torch's"),
    )
    threads = "/".join(map(str, sorted({row["threads"] for row in rows})))
    text = (
        f"`bignn bench`, {threads} threads, a row from one run each; best float is the fastest of "
        "PyG on an edge index, PyG on CSR and torch by hand. Times and ratios are medians; by "
        "fastest bursts: the fastest burst of calls of the best float against ours, nearer to an "
        "idle machine. Plans: T transforms, then sums; G sums bits, then transforms; S goes over "
        "the ones of sparse features. Memory is the peak of features, weights and activations. "
        "Where others use the machine too, ratios move from run to run, by up to 40 % where it "
        "was tried. Graphs with a * are random ones of the published sizes with random weights, "
        "where sums near 0, and with them classes, can differ from torch's rounding."
    )
    parts: list[Part] = [text, Table("Time to predict all nodes", columns, cells)]
    if held_up := [
        name for name, row in zip(row_names(rows), rows, strict=True) if row.get("machine_was_busy")
    ]:
        parts.append(
            f"Other processes took cores while these were timed: {'; '.join(held_up)}. That slows "
            "torch's threads down more than ours: their ratios are to be measured again."
        )
    if unwatched := [
        name
        for name, row in zip(row_names(rows), rows, strict=True)
        if row.get("machine_was_busy") is None
    ]:
        parts.append(f"Not watched for other processes: {'; '.join(unwatched)}.")
    if rows:
        parts += [_memory_table(rows), _where(rows), speedups(rows), _memory(rows)]
    return Section("speed", "Speed and memory", tuple(parts))


def _memory_table(rows: Sequence[Row]) -> Table:
    cells = tuple(
        (
            name + "*" * (row["suite"] == "shapes"),
            _mib(row["peak_mib_float"]),
            _mib(row["peak_mib_packed"]),
            times(row["memory_ratio"]),
            _mib(row.get("graph_mib_float")),
            _mib(row.get("graph_mib_packed")),
            times(row.get("memory_ratio_with_graph")),
        )
        for name, row in zip(row_names(rows), rows, strict=True)
    )
    columns = (
        *("graph and model", "best float, MiB", "packed, MiB", "times less"),
        *("edges in floats, MiB", "edges packed, MiB", "times less with edges"),
    )
    return Table("Peak memory of features, weights and activations", columns, cells)


def _mib(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _where(rows: Sequence[Row]) -> Table:
    """What is known of the machine of each row, a file at a time."""
    files: dict[str, list[str]] = {}
    for name, row in zip(row_names(rows), rows, strict=True):
        files.setdefault(row["file"], []).append(name)
    of_file = {row["file"]: row for row in rows}
    cells = tuple(
        (
            file,
            "; ".join(names),
            of_file[file]["machine"] or "machine not recorded",
            of_file[file]["version"] or "not recorded",
        )
        for file, names in files.items()
    )
    return Table("Where it was measured", ("file", "rows", "machine", "bignn"), cells)


def _memory(rows: Sequence[Row]) -> Figure:
    """Peak memory of both."""
    some = [row for row in rows if row["peak_mib_float"] and row["peak_mib_packed"]]
    names = row_names(some)
    return Figure(
        "memory",
        "Peak memory of features, weights and activations, MiB",
        "bars",
        "",
        "MiB",
        (
            Series("best float", names, tuple(row["peak_mib_float"] for row in some)),
            Series("packed", names, tuple(row["peak_mib_packed"] for row in some)),
        ),
        log_y=True,
    )
