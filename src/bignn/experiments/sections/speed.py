"""What was measured of packed models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bignn.experiments.bench import speedups
from bignn.experiments.document import Figure, Part, Section, Series, Table
from bignn.experiments.results import Results
from bignn.experiments.words import SHAPE_OF, ms, name_of, times


def shape_speeds(results: Results, names: Sequence[str]) -> list[Table]:
    """Packed prediction on synthetic graphs of the sizes of these datasets."""
    shapes = {SHAPE_OF[name]: name for name in names}
    cells = [
        (
            f"{name_of(shapes[row['shape']])}, {name_of(row['model'])}",
            ms(row["packed_ms"]),
            ms(row["best_float_ms"]),
            times(row["speedup_vs_best_float"]),
            times(row["speedup_vs_pyg_sparse"] or row["speedup_vs_pyg"]),
            times(row["speedup_vs_simulated"]),
        )
        for row in results.bench
        if row["shape"] in shapes
    ]
    columns = (
        *("synthetic graph of that size", "packed, ms", "best float, ms"),
        *("faster than best float", "than PyG's best", "than a float simulation"),
    )
    return [Table("Measured speed", columns, tuple(cells))] if cells else []


def speed(results: Results) -> Section:
    """What ``bignn bench`` measured."""
    rows = [row for row in results.bench if row["suite"] != "gemm"]
    cells = tuple(
        (
            f"{row['shape']}{'*' if row['suite'] == 'shapes' else ''}, {name_of(row['model'])}",
            row["plan"] or "",
            ms(row["packed_ms"]),
            ms(row["best_float_ms"]),
            times(row["speedup_vs_best_float"]),
            times(row["speedup_vs_pyg"]),
            times(row["speedup_vs_pyg_sparse"]),
            times(row["speedup_vs_simulated"]),
            "" if row["peak_mib_float"] is None else f"{row['peak_mib_float']:,.0f}",
            "" if row["peak_mib_packed"] is None else f"{row['peak_mib_packed']:,.1f}",
            "" if row["agreement"] is None else f"{100 * row['agreement']:.2f} %",
        )
        for row in rows
    )
    columns = (
        *("graph and model", "plan", "packed, ms", "best float, ms", "faster", "than PyG"),
        *("than PyG, CSR", "than a simulation", "peak MiB, float", "packed", "classes as torch's"),
    )
    threads = "/".join(map(str, sorted({row["threads"] for row in rows})))
    text = (
        f"`bignn bench`, {threads} threads, medians of one run per suite; best float is the "
        "fastest of PyG on an edge index, PyG on CSR and torch by hand. Plans: T transforms, then "
        "sums; G sums bits, then transforms; S goes over the ones of sparse features. Memory is "
        "the peak of features and activations. Where others use the machine too, ratios move from "
        "run to run, by up to a third where it was tried. Graphs with a * are random ones of the "
        "published sizes with random weights, where sums near 0, and with them classes, can differ "
        "from torch's rounding."
        + (f" Measured on {', '.join(results.bench_machines)}." if results.bench_machines else "")
    )
    parts: list[Part] = [text, Table("", columns, cells)]
    if rows:
        parts += [speedups(rows), _memory(rows)]
    return Section("speed", "Speed and memory", tuple(parts))


def _memory(rows: Sequence[dict[str, Any]]) -> Figure:
    """Peak memory of both."""
    some = [row for row in rows if row["peak_mib_float"] and row["peak_mib_packed"]]
    names = tuple(f"{row['shape']}, {name_of(row['model'])}" for row in some)
    return Figure(
        "memory",
        "Peak memory of features and activations, MiB",
        "bars",
        "",
        "MiB",
        (
            Series("best float", names, tuple(row["peak_mib_float"] for row in some)),
            Series("packed", names, tuple(row["peak_mib_packed"] for row in some)),
        ),
        log_y=True,
    )
