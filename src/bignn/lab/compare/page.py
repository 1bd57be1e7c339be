"""A comparison as the document of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bignn.lab.compare.measured import Row
from bignn.lab.compare.verdict import accuracy_on, binary_name, verdict
from bignn.lab.compare.wording import (
    WAYS,
    count,
    graph_line,
    next_commands,
    remarks,
    table_of,
    why_no_memory,
    with_times,
)
from bignn.lab.report.document import Document, Figure, Listing, Part, Section, Series, Table
from bignn.lab.report.wording import name_of
from bignn.train.averages import plus_minus

_MISSING = "–"


def document_of(
    report: dict[str, Any], papers: Mapping[str, Mapping[str, Any]] | None = None
) -> Document:
    """Make the page of a comparison, with the paper's figures beside ours where they are given."""
    name = name_of(Path(report["dataset"]).stem)
    return Document(
        f"Float against binary on {name}",
        verdict(report),
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
            _machine(report),
        ),
    )


def _headline(report: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the cards of the first binary model; one without a number gives the reason."""
    row = next((row for row in report["models"] if row["compared"] is not None), None)
    if row is None:
        return ()
    beside, name, twin = row["compared"], binary_name(row), name_of(row["float_twin"])
    taught = ", distilled," if report["distilled"] else ""
    fastest = f"{twin}'s fastest float way"
    pyg = "PyG's layers on an edge index"
    what_memory = "memory of features, weights and activations"
    cards = [
        (
            f"{beside['accuracy_points']:+.1f}",
            f"points of {accuracy_on(report)} accuracy, {name}{taught} against {twin}",
        ),
        _card(beside["model_times_smaller"], "smaller weights than", "larger weights than", twin),
    ]
    if row["predicted_by"] is None:
        cards.append((_MISSING, f"no times: {name} has float parts and no packed form"))
    elif row["machine_was_busy"]:
        busy = "no times: other processes used the machine; measure again when it is idle"
        cards.append((_MISSING, busy))
    else:
        cards.append(_card(beside["times_faster"], "faster than", "slower than", fastest))
        if beside["times_faster_than_pyg"] is not None:
            cards.append(_card(beside["times_faster_than_pyg"], "faster than", "slower than", pyg))
    if (why := why_no_memory(report)) is not None:
        cards.append((_MISSING, why))
    elif beside["memory_times_less"] is not None:
        more = f"less {what_memory} than", f"more {what_memory} than"
        cards.append(_card(beside["memory_times_less"], *more, fastest))
        if (less := beside["memory_times_less_than_pyg"]) is not None:
            cards.append(_card(less, "less memory than", "more memory than", pyg))
    return tuple(cards)


def _card(times: float, better: str, worse: str, than: str) -> tuple[str, str]:
    if round(times, 1) == 1:
        same = {"faster": "as fast as", "smaller": "weights as large as"}
        what = better.removeprefix("less ").removesuffix(" than")
        return f"{times:.1f}x", f"{same.get(better.split()[0], f'as much {what} as')} {than}"
    if round(times, 1) > 1:
        return f"{times:.1f}x", f"{better} {than}"
    return f"{1 / times:.1f}x", f"{worse} {than}"


def _result(report: dict[str, Any]) -> Section:
    seeds = len(report["seeds"])
    averaged = "One seed" if seeds == 1 else f"Mean ± standard deviation over {seeds} seeds"
    text = (
        f"The graph has {graph_line(report['graph'])}. {averaged}; in brackets, the binary model "
        "beside its float twin: points of accuracy, times smaller, less or faster. "
        f"Predictions run on {count(report['threads'], 'thread')}."
    )
    parts: list[Part] = [text, table_of(report), *_figures(report), *remarks(report)]
    return Section("result", "The comparison", tuple(parts))


def _figures(report: dict[str, Any]) -> Iterator[Part]:
    """Draw accuracy, memory and time, a row per model and way; what was not measured is named."""
    rows, split = report["models"], accuracy_on(report)
    yield _figure(
        "accuracy",
        f"{split.capitalize()} accuracy, %",
        f"{split} accuracy, %",
        [(_name(row), row, row["accuracy_mean"], row["accuracy_std"] or None) for row in rows],
    )
    shown = [
        (f"{_name(row)}, {label}", row, way)
        for row in rows
        for key, way in row["ways"].items()
        if (label := _way(row, key)) is not None
    ]
    busy = any(row["machine_was_busy"] for row in rows)
    caption = "Time to predict all nodes, ms (medians)"
    caption += "; not reliable: other processes used the machine" if busy else ""
    times = [(label, row, way["ms"], None) for label, row, way in shown]
    yield _figure("time", caption, "ms", times, log=True)
    if (why := why_no_memory(report)) is not None:
        yield f"There is no figure of peak memory, since {why}."
        return
    caption = "Peak memory of features, weights and activations, MiB"
    peaks = [(label, row, way["peak_mib"], None) for label, row, way in shown if way["peak_mib"]]
    yield _figure("memory", caption, "MiB", peaks, log=True)


def _name(row: Row) -> str:
    return name_of(row["model"]) if row["float_twin"] is None else binary_name(row)


def _figure(
    name: str,
    caption: str,
    unit: str,
    dots: Sequence[tuple[str, Row, float, float | None]],
    *,
    log: bool = False,
) -> Figure:
    series = []
    for kind, is_binary in (("float", False), ("binary", True)):
        some = [dot for dot in dots if (dot[1]["float_twin"] is not None) == is_binary]
        labels, _, values, spreads = zip(*some, strict=True) if some else ((), (), (), ())
        series.append(Series(kind, labels, values, spreads))
    groups = tuple(label for label, *_ in dots)
    return Figure(name, caption, "dots", "", unit, tuple(series), log_y=log, groups=groups)


def _way(row: Row, way: str) -> str | None:
    """Return the name of a dot; None for ways that are neither the fastest nor plain PyG."""
    if way == "packed":
        return "packed"
    if way == row["predicted_by"]:
        return f"fastest way ({WAYS[way]})"
    return "PyG on an edge index" if way == "pyg" else None


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
            parts += [f"{_name(row)}:", Listing(row["explained"])]
    if len(parts) == 1:
        parts = ["None of these models has a packed form."]
    return Section("plans", "Plans of the packed models", tuple(parts))


def _machine(report: dict[str, Any]) -> Section:
    doctor = report["made_by"]
    versions = [("bignn", doctor["bignn"]), ("Python", doctor["python"])]
    versions += [(name, version) for name, version in doctor["packages"].items() if version]
    cells = (
        ("machine", doctor["cpu"]),
        ("platform", doctor["platform"]),
        ("kernels", doctor["backend"]),
        ("threads", str(report["threads"])),
        ("trained on", report["device"]),
        *versions,
    )
    seconds = report["training_seconds"]
    return Section(
        "made",
        "Machine and versions",
        (
            f"`{report['command']}`",
            f"Checkpoints are in `{report['out']}`; the same command reads them and measures "
            f"again. Training took {seconds:,.0f} s in all.",
            Table("Versions and machine", ("what", "which"), cells),
        ),
    )
