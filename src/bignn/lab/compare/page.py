"""A comparison as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bignn.lab.compare.measured import Row
from bignn.lab.compare.wording import (
    WAYS,
    accuracy_on,
    cells_of,
    columns_of,
    count,
    graph_line,
    next_commands,
    notes,
    remarks,
    with_times,
)
from bignn.lab.report.document import Document, Figure, Listing, Part, Section, Series, Table
from bignn.lab.report.wording import name_of
from bignn.train.averages import plus_minus


def document_of(
    report: dict[str, Any], papers: Mapping[str, Mapping[str, Any]] | None = None
) -> Document:
    """The comparison as a page, with the paper's figures beside where they are given."""
    name = name_of(Path(report["dataset"]).stem)
    return Document(
        f"Float against binary on {name}",
        f"{graph_line(report['graph'])}. Accuracies, sizes, times and memory are measured on this "
        "graph, by one command"
        + ("; binary models are distilled from float ones." if report["distilled"] else "."),
        _headline(report),
        (
            _result(report),
            *([_beside_the_paper(report, papers)] if papers else []),
            _measured(report),
            _plans(report),
            Section(
                "next",
                "What to do next",
                (
                    "The checkpoint of the best seed becomes one file that predicts without torch:",
                    Listing("\n".join(command for _, command in next_commands(report))),
                ),
            ),
            _made(report),
        ),
    )


def _headline(report: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Of the first binary model."""
    row = next((row for row in report["models"] if row["compared"] is not None), None)
    if row is None:
        return ()
    beside, name, twin = {**row["compared"]}, name_of(row["model"]), name_of(row["float_twin"])
    on = accuracy_on(report)
    taught = ", distilled," if report["distilled"] else ""
    points = f"points of {on} accuracy, {name}{taught} against {twin}"
    found = [(f"{beside['accuracy_points']:+.1f}", points)]
    if row["machine_was_busy"]:  # no headline of what must be measured again
        beside |= {"times_faster": None, "times_faster_than_pyg": None}
    for key, what in (
        ("model_times_smaller", f"smaller weights, {name} than {twin}"),
        ("times_faster", f"the speed of {twin}'s fastest float way"),
        ("times_faster_than_pyg", f"the speed of {twin} by PyG's layers on an edge index"),
        (
            "memory_times_less",
            f"less memory of features, weights and activations than {twin}'s fastest float way",
        ),
        ("memory_times_less_than_pyg", "less memory than PyG's layers on an edge index take"),
    ):
        if beside[key] is not None:
            found.append((f"{beside[key]:.1f}x", what))
    return tuple(found)


def _result(report: dict[str, Any]) -> Section:
    rows = report["models"]
    text = (
        (
            "One seed"
            if len(report["seeds"]) == 1
            else f"Mean ± standard deviation over {len(report['seeds'])} seeds"
        )
        + "; in brackets the binary model beside its float twin: points of accuracy, times "
        "smaller, less or faster. "
        f"Predictions on {count(report['threads'], 'thread')}."
    )
    table = Table(
        "Float and binary models", columns_of(report), tuple(cells_of(row) for row in rows)
    )
    parts: list[Part] = [text, table, *_figures(rows), *notes(report), *remarks(report)]
    return Section("result", "The comparison", tuple(parts))


def _figures(rows: Sequence[Row]) -> list[Figure]:
    """Bars of memory and time, a group per float model and its binary twins."""
    found = []
    for name, key, caption, unit in (
        ("memory", "peak_mib", "Peak memory of features, weights and activations, MiB", "MiB"),
        ("time", "ms", "Time to predict all nodes, ms", "ms"),
    ):
        bars: dict[str, dict[str, float]] = {}
        for row in rows:
            group = name_of(row["float_twin"] or row["model"])
            for way, measured in row["ways"].items():
                label = _bar(row, way)
                if label is not None and measured[key]:
                    bars.setdefault(label, {})[group] = measured[key]
        groups = tuple(dict.fromkeys(group for values in bars.values() for group in values))
        if groups:
            series = tuple(
                Series(label, groups, tuple(values.get(group) for group in groups))
                for label, values in bars.items()
            )
            found.append(Figure(name, caption, "bars", "", unit, series, log_y=True))
    return found


def _bar(row: Row, way: str) -> str | None:
    """The name of a bar; None for ways that are neither the fastest nor what PyG's examples do."""
    if way == "packed":
        return "binary, packed"
    if way == row["predicted_by"]:
        return "float, the fastest way"
    return "float, PyG on an edge index" if way == "pyg" else None


def _beside_the_paper(report: dict[str, Any], papers: Mapping[str, Mapping[str, Any]]) -> Section:
    cells = []
    for row in report["models"]:
        if row["model"] not in papers:
            continue
        theirs = papers[row["model"]]
        mean, std = theirs["accuracy"]
        cells.append(
            (
                name_of(row["model"]),
                plus_minus(row["accuracy_mean"], row["accuracy_std"]),
                f"{mean:.1f} ± {std:.1f}",
                f"{row['model_bytes'] / 1024:,.2f}",
                f"{theirs['model_kib']:,.2f}",
                f"{row['data_bytes'] / 1024:,.1f}",
                f"{theirs['data_kib']:,.1f}",
            )
        )
    columns = (
        *("model", "accuracy, %", "the paper's", "weights, KiB", "the paper's"),
        *("features, KiB", "the paper's"),
    )
    text = (
        "The paper counts bits; arrays hold rows of 64-bit words, so measured sizes are a little "
        "above its estimate."
    )
    return Section("paper", "Beside the paper", (text, Table("", columns, tuple(cells))))


def _measured(report: dict[str, Any]) -> Section:
    cells = []
    for row in report["models"]:
        for key, way in row["ways"].items():
            best = " (fastest)" if key == row["predicted_by"] and len(row["ways"]) > 1 else ""
            cells.append(
                (
                    row["model"],
                    WAYS[key] + best,
                    with_times(way["ms"], None),
                    with_times(way["peak_mib"], None),
                )
            )
    text = (
        "All ways of a float model and its binary twins take turns in the same rounds (each float "
        "way beside the binary ones, where they do not fit memory together); medians. "
        "Memory is measured in a process of its own: of the fastest way, and of PyG's layers on an "
        "edge index."
    )
    columns = ("model", "way", "predict all nodes, ms", "peak, MiB")
    return Section(
        "ways", "Every way to predict", (text, Table("Ways measured", columns, tuple(cells)))
    )


def _plans(report: dict[str, Any]) -> Section:
    parts: list[Part] = [
        "How the packed engine runs each model: T transforms, then sums; G sums bits, then "
        "transforms; S goes over the ones of sparse features."
    ]
    for row in report["models"]:
        if row["explained"] is not None:
            parts += [f"{name_of(row['model'])}:", Listing(row["explained"])]
    if len(parts) == 1:
        parts = ["None of these models has a packed form."]
    return Section("plans", "Plans of the packed models", tuple(parts))


def _made(report: dict[str, Any]) -> Section:
    by = report["made_by"]
    versions = [("bignn", by["bignn"]), ("Python", by["python"])]
    versions += [(name, version) for name, version in by["packages"].items() if version]
    cells = (
        ("machine", by["cpu"]),
        ("platform", by["platform"]),
        ("kernels", by["backend"]),
        ("threads", str(report["threads"])),
        ("trained on", report["device"]),
        *versions,
    )
    seconds = report["training_seconds"]
    return Section(
        "made",
        "How it was made",
        (
            f"`{report['command']}`",
            f"Checkpoints are in `{report['out']}`; the same command reads them and measures "
            f"again. Training took {seconds:,.0f} s in all.",
            Table("Versions and machine", ("what", "which"), cells),
        ),
    )
