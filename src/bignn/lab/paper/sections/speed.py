"""Sections of the speed and memory of packed models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bignn.kernels.layer import HIDDEN_EDGE_BITS
from bignn.lab.bench.suite_report import row_names, speedups
from bignn.lab.paper.results import Results
from bignn.lab.paper.wording import SHAPES_OF
from bignn.lab.report.document import Figure, Footnotes, Part, Section, Series, Table
from bignn.lab.report.wording import ms, times

Row = dict[str, Any]


def shape_speeds(results: Results, names: Sequence[str]) -> list[Table]:
    """Make a table of packed prediction on synthetic graphs of the sizes of these datasets."""
    shapes = {shape: label for name in names for shape, label in SHAPES_OF[name].items()}
    rows = [row for row in results.bench if row["shape"] in shapes]
    cells = [
        (
            label,
            ms(row["packed_ms"]),
            ms(row["best_float_ms"]),
            times(row["speedup_vs_best_float"]),
            times(row.get("fastest_speedup_vs_best_float")),
            times(_than_pyg(row)),
            times(row["speedup_vs_simulated"]),
        )
        for label, row in zip(row_names(rows, shapes), rows, strict=True)
    ]
    columns = (
        *("synthetic graph of that size", "packed, ms", "best float, ms"),
        *("faster than best float", "by fastest bursts", "than PyG's best"),
        "than a float simulation",
    )
    return [Table("Measured speed", columns, tuple(cells))] if cells else []


def _than_pyg(row: Row) -> float | None:
    """Return how many times faster than the faster of PyG's ways ours is."""
    ratios = (row["speedup_vs_pyg"], row["speedup_vs_pyg_sparse"])
    return min((ratio for ratio in ratios if ratio is not None), default=None)


_SYNTHETIC = (
    "A random graph of the published size with random weights, where sums near 0, and with them "
    "classes, can differ from torch's rounding."
)
_BUSY = (
    "Other processes took cores while this was timed, which slows torch's threads down more than "
    "ours: to be measured again."
)
_NOT_WATCHED = "Measured by a version that did not watch for other processes."
_FLOAT_WEIGHTS = (
    "A model with float weights of neighbours, which the packed one rounds to 17 and 20 bits, and "
    "torch does not; in the other rows both have few bits (`edge_bits`)."
)


def speed(results: Results) -> Section:
    """Make the section of what ``bignn bench`` measured."""
    rows = [row for row in results.bench if row["suite"] != "gemm"]
    threads = "/".join(map(str, sorted({row["threads"] for row in rows})))
    text = (
        f"`bignn bench`, {threads} threads, each row from one run. Where others use the machine "
        "too, ratios change from run to run, by up to 40 % where it was tried."
    )
    parts: list[Part] = [text, _time_table(rows)]
    if rows:
        parts += [_memory_table(rows), _machines(rows), speedups(rows), _memory(rows)]
    return Section("speed", "Speed and memory", tuple(parts))


def _time_table(rows: Sequence[Row]) -> Table:
    notes = Footnotes()
    columns = (
        "graph and model",
        "plan"
        + notes.mark(
            "A letter per layer: T transforms, then sums; G sums bits, then transforms; S goes "
            "over the ones of sparse features."
        ),
        "packed, ms" + notes.mark("Times and ratios are medians."),
        "best float, ms"
        + notes.mark(
            "The fastest timed of PyG on an edge index, PyG on CSR and torch by hand (MKL); empty "
            "where torch by hand was not timed."
        ),
        "faster",
        "by fastest bursts"
        + notes.mark(
            "The fastest burst of calls of the best float against ours, nearer to an idle machine."
        ),
        *("than PyG", "than PyG, CSR"),
        "than a simulation" + notes.mark("The binary model computed in floats by torch."),
        "classes as torch's",
    )
    cells = tuple(
        (
            name + _marks(row, notes),
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
    return Table("Time to predict all nodes", columns, cells, notes.texts)


def _marks(row: Row, notes: Footnotes) -> str:
    """Return the references to the footnotes of a row."""
    texts = {
        _SYNTHETIC: row["suite"] == "shapes",
        _BUSY: row.get("machine_was_busy") is True,
        _NOT_WATCHED: row.get("machine_was_busy") is None,
        _FLOAT_WEIGHTS: _has_float_weights(row),
    }
    return "".join(notes.mark(text) for text, holds in texts.items() if holds)


def _has_float_weights(row: Row) -> bool:
    """Return whether a measured model's weights were not rounded in training.

    Versions that did not record the bits had no others.
    """
    bits: list[int] = row.get("edge_bits") or [HIDDEN_EDGE_BITS]
    return max(bits) >= HIDDEN_EDGE_BITS


def _memory_table(rows: Sequence[Row]) -> Table:
    notes = Footnotes()
    cells = tuple(
        (
            name + (notes.mark(_SYNTHETIC) if row["suite"] == "shapes" else ""),
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
    caption = "Peak memory of features, weights and activations"
    return Table(caption, columns, cells, notes.texts)


def _mib(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _machines(rows: Sequence[Row]) -> Table:
    """Make a table of the machine of each row, a file at a time."""
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
    """Draw the peak memory of the best float way and of ours."""
    some = [row for row in rows if row["peak_mib_float"] and row["peak_mib_packed"]]
    names = row_names(some)
    return Figure(
        "memory",
        "Peak memory of features, weights and activations, MiB",
        "dots",
        "",
        "MiB",
        (
            Series("best float", names, tuple(row["peak_mib_float"] for row in some)),
            Series("packed", names, tuple(row["peak_mib_packed"] for row in some)),
        ),
        log_y=True,
    )
