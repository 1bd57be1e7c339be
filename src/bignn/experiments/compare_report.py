"""What is shown of a comparison: lines for a terminal, a document for a page."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bignn.experiments.seeds import told
from bignn.pages.document import Document, Figure, Listing, Part, Section, Series, Table
from bignn.pages.words import name_of

#: How a model was run, in words.
WAYS = {
    "packed": "packed",
    "pyg": "PyG, edge_index",
    "pyg_sparse": "PyG, CSR",
    "torch_sparse": "torch by hand",
    "torch": "torch, bignn.nn",
}
Row = dict[str, Any]


def describe(report: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    facts = report["graph"]
    lines = [
        f"{report['dataset']}: {_graph(facts)}; {_count(len(report['seeds']), 'seed')}, "
        f"{_count(report['threads'], 'thread')}"
        + ("; binary models distilled" if report["distilled"] else ""),
        "",
        *_aligned([_columns(report), *(_cells(row) for row in report["models"])]),
        "",
        *_folded(_notes(report)),
        *_folded(_remarks(report)),
        "",
        *(f"{what:<10}{command}" for what, command in _next(report)),
        *([f"{'page':<10}{report['page']}"] if report.get("page") else []),
    ]
    return "\n".join(lines)


def document_of(
    report: dict[str, Any], papers: Mapping[str, Mapping[str, Any]] | None = None
) -> Document:
    """The comparison as a page, with the paper's figures beside where they are given."""
    name = name_of(Path(report["dataset"]).stem)
    return Document(
        f"Float against binary on {name}",
        f"{_graph(report['graph'])}. Accuracies, sizes, times and memory are measured on this "
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
                    Listing("\n".join(command for _, command in _next(report))),
                ),
            ),
            _made(report),
        ),
    )


# --- the parts of both --------------------------------------------------------------------------


def _graph(facts: dict[str, Any]) -> str:
    kind = "weighted edges" if facts["is_weighted"] else "edges"
    return (
        f"{_count(facts['nodes'], 'node')}, {facts['edges']:,} directed {kind}, "
        f"{_count(facts['features'], 'feature')}, {_count(facts['classes'], 'class')}"
    )


def _count(number: int, what: str) -> str:
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def _accuracy_on(report: dict[str, Any]) -> str:
    return "test" if report["accuracy_on"] == "test" else "validation"


def _columns(report: dict[str, Any]) -> tuple[str, ...]:
    return (
        *("model", "hidden", f"{_accuracy_on(report)} accuracy, %", "weights, KiB"),
        "features, KiB",
        *("peak, MiB", "predict, ms", "by"),
    )


def _notes(report: dict[str, Any]) -> list[str]:
    """How the columns were measured."""
    rows = report["models"]
    ways = {
        row["model"]: ", ".join(WAYS[way] for way in row["ways"])
        for row in rows
        if row["float_twin"] is None
    }
    listed = "; ".join(f"{name}: {these}" for name, these in ways.items())
    found = [
        "Weights: arrays of weights and their scales. Features: dense float32, or a bit each in "
        "rows of 64 and the scales of nodes (few features take more than they did).",
        f"Predict: all nodes, on the CPU; float models in the fastest of their ways ({listed}), "
        "binary ones in the packed engine; medians of the same rounds.",
    ]
    if any(row["peak_mib"] is not None for row in rows):
        found.append(
            "Peak: memory of features, weights and activations meanwhile, in a process of its own."
        )
    found.append("What is measured is the model of the seed with the lowest validation loss.")
    return found


def _cells(row: Row) -> tuple[str, ...]:
    beside = row["compared"] or {}
    points = beside.get("accuracy_points")
    spread = told(row["accuracy_mean"], row["accuracy_std"])
    return (
        row["model"],
        str(row["hidden"]),
        spread if points is None else f"{spread} ({points:+.1f})",
        _with_times(row["model_bytes"] / 1024, beside.get("model_times_smaller")),
        _with_times(row["data_bytes"] / 1024, beside.get("data_times_smaller")),
        _with_times(row["peak_mib"], beside.get("memory_times_less")),
        _with_times(row["predict_ms"], _speed(row, "times_faster")) + "*" * row["machine_was_busy"],
        "-" if row["predicted_by"] is None else WAYS[row["predicted_by"]],
    )


def _with_times(value: float | None, times: float | None) -> str:
    if value is None:
        return "-"
    told = f"{value:,.1f}" if value >= 10 else f"{value:.2f}"
    return told if times is None else f"{told} ({times:.1f}x)"


def _remarks(report: dict[str, Any]) -> list[str]:
    """What the numbers do not say by themselves."""
    found = []
    if report["accuracy_on"] == "val":
        found.append("The graph has no test split: accuracies are those of validation nodes.")
    if report["graph"]["classes"] == 1:
        found.append("All labels are the same class: accuracies say nothing.")
    unweighted = [row["model"] for row in report["models"] if not row["uses_edge_weights"]]
    if report["graph"]["is_weighted"] and unweighted:
        found.append(f"Edge weights are not used by {', '.join(unweighted)}, as in PyG.")
    if any(row["machine_was_busy"] for row in report["models"]):
        found.append(
            "* Other processes held the threads up: medians are far above the fastest bursts, by "
            "which ways are chosen and compared here. Measure again when the machine is idle."
        )
    for row in report["models"]:
        name = row["model"]
        if row["float_twin"] is not None and row["predicted_by"] is None:
            found.append(f"{name} has float parts, which the packed engine does not speed up: '-'.")
        if row["predicted_by"] == "packed" and not row["is_all_bits"]:
            found.append(f"{name}'s last map has float weights and runs in NumPy.")
        if (student := row["distilled"]) is not None:
            reached = told(student["accuracy_mean"], student["accuracy_std"])
            teacher = row["as_teacher"]
            is_itself = teacher["accuracy"] == row["accuracy"]
            reached_by_it = told(teacher["accuracy_mean"], teacher["accuracy_std"])
            who = (
                f"{name}" if is_itself else f"a {name} trained to be a teacher ({reached_by_it} %)"
            )
            found.append(
                f"Distilled models learned from {who}; a float {name} that learned from it as well "
                f"has {reached} %."
            )
        if faster := _speed(row, "times_faster_than_pyg"):
            less = row["compared"]["memory_times_less_than_pyg"]
            found.append(
                f"{name} is {faster:.1f}x faster than PyG's layers on an edge index"
                + (f", and takes {less:.1f}x less memory." if less else ".")
            )
        if row["agreement"] is not None and row["agreement"] < 1:
            found.append(
                f"{name}, packed, predicts {100 * row['agreement']:.3f} % of the nodes as torch "
                "does; the rest are near ties that float32 sums decide."
            )
        if row["sparse_data_bytes"] is not None:
            size = f"{row['sparse_data_bytes'] / 1024:,.1f} KiB"
            kind = "floats" if row["float_twin"] is None else "ones"
            found.append(f"{name}'s features have few {kind}: with their places alone, {size}.")
        advice = row["recommended_width"]
        if advice is not None:
            found.append(
                f"{name}: {row['hidden']} hidden neurons; to hold what those of "
                f"{row['float_twin']} do, {advice['width']} are recommended"
                f" (--bi-hidden {_per_head(row)}{', per head' if row['heads'] > 1 else ''})."
            )
    return found


def _speed(row: Row, key: str) -> float | None:
    """A ratio of medians; of the fastest bursts where medians tell of other processes."""
    found: float | None = (row["compared"] or {}).get(
        f"fastest_{key}" if row["machine_was_busy"] else key
    )
    return found


def _per_head(row: Row) -> int:
    return int(-(-row["recommended_width"]["width"] // row["heads"]))


def _next(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Commands, each with a word for it."""
    found = []
    dataset = shlex.quote(report["dataset"])
    for row in report["models"]:
        if row["plan"] is None:
            continue
        packed = shlex.quote(str(Path(report["out"]) / f"{row['model']}.bignn"))
        found += [
            ("pack", f"bignn pack {shlex.quote(row['checkpoint'])} {packed}"),
            ("predict", f"bignn predict {packed} {dataset} --out {row['model']}.csv"),
        ]
    return found


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table: the first and the last column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if number in (0, last) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * (sum(widths) + 2 * last))
    return lines


def _folded(paragraphs: Sequence[str]) -> list[str]:
    return [line for text in paragraphs for line in textwrap.wrap(text, 100)]


# --- the page -----------------------------------------------------------------------------------


def _headline(report: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Of the first binary model."""
    row = next((row for row in report["models"] if row["compared"] is not None), None)
    if row is None:
        return ()
    beside, name, twin = {**row["compared"]}, name_of(row["model"]), name_of(row["float_twin"])
    on = _accuracy_on(report)
    taught = ", distilled," if report["distilled"] else ""
    told = f"points of {on} accuracy, {name}{taught} against {twin}"
    found = [(f"{beside['accuracy_points']:+.1f}", told)]
    beside |= {key: _speed(row, key) for key in ("times_faster", "times_faster_than_pyg")}
    for key, what in (
        ("model_times_smaller", f"smaller weights, {name} than {twin}"),
        ("times_faster", f"the speed of {twin}'s fastest float way"),
        ("times_faster_than_pyg", f"the speed of {twin} by PyG's layers on an edge index"),
        (
            "memory_times_less",
            "less memory of features, weights and activations than that fastest way",
        ),
        ("memory_times_less_than_pyg", "less than PyG's layers take"),
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
        f"Predictions on {_count(report['threads'], 'thread')}."
    )
    table = Table("Float and binary models", _columns(report), tuple(_cells(row) for row in rows))
    parts: list[Part] = [text, table, *_figures(rows), *_notes(report), *_remarks(report)]
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
                told(row["accuracy_mean"], row["accuracy_std"]),
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
                    _with_times(way["ms"], None),
                    _with_times(way["peak_mib"], None),
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
