"""What is said of a comparison, on a terminal as on a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bignn.lab.compare.measured import Row
from bignn.train.averages import plus_minus

#: How a model was run, in words.
WAYS = {
    "packed": "packed",
    "pyg": "PyG, edge_index",
    "pyg_sparse": "PyG, CSR",
    "torch_sparse": "torch by hand",
    "torch": "torch, bignn.nn",
}


def graph_line(facts: dict[str, Any]) -> str:
    """The sizes of a graph."""
    kind = "weighted edges" if facts["is_weighted"] else "edges"
    return (
        f"{count(facts['nodes'], 'node')}, {facts['edges']:,} directed {kind}, "
        f"{count(facts['features'], 'feature')}, {count(facts['classes'], 'class')}"
    )


def count(number: int, what: str) -> str:
    """As "1 node", "2,708 nodes"."""
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def accuracy_on(report: dict[str, Any]) -> str:
    """The split that accuracies are of."""
    return "test" if report["accuracy_on"] == "test" else "validation"


def columns_of(report: dict[str, Any]) -> tuple[str, ...]:
    """The heads of :func:`cells_of`."""
    return (
        *("model", "hidden", f"{accuracy_on(report)} accuracy, %", "weights, KiB"),
        "features, KiB",
        *("peak, MiB", "predict, ms", "by"),
    )


def notes(report: dict[str, Any]) -> list[str]:
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
        "rows of 64 and the scales of nodes (where features are few, padding can cost more than "
        "bits save).",
        f"Predict: all nodes, on the CPU; float models in the fastest of their ways ({listed}), "
        "binary ones in the packed engine; medians of the same rounds.",
    ]
    if any(row["peak_mib"] is not None for row in rows):
        found.append(
            "Peak: memory of features, weights and activations meanwhile, in a process of its own."
        )
    found.append("What is measured is the model of the seed with the lowest validation loss.")
    return found


def cells_of(row: Row) -> tuple[str, ...]:
    """A model's row of the table."""
    beside = row["compared"] or {}
    points = beside.get("accuracy_points")
    spread = plus_minus(row["accuracy_mean"], row["accuracy_std"])
    return (
        row["model"],
        str(row["hidden"]),
        spread if points is None else f"{spread} ({points:+.1f})",
        with_times(row["model_bytes"] / 1024, beside.get("model_times_smaller")),
        with_times(row["data_bytes"] / 1024, beside.get("data_times_smaller")),
        with_times(row["peak_mib"], beside.get("memory_times_less")),
        with_times(row["predict_ms"], speed(row, "times_faster")) + "*" * row["machine_was_busy"],
        "-" if row["predicted_by"] is None else WAYS[row["predicted_by"]],
    )


def with_times(value: float | None, times: float | None) -> str:
    """A number, and how many times better than the float twin's it is."""
    if value is None:
        return "-"
    number = f"{value:,.1f}" if value >= 10 else f"{value:.2f}"
    return number if times is None else f"{number} ({times:.1f}x)"


def remarks(report: dict[str, Any]) -> list[str]:
    """What the numbers do not say by themselves."""
    return [*_of_all(report), *(text for row in report["models"] for text in _of_one(row))]


def _of_all(report: dict[str, Any]) -> Iterator[str]:
    rows = report["models"]
    if report["accuracy_on"] == "val":
        yield "The graph has no test split: accuracies are those of validation nodes."
    if report["graph"]["classes"] == 1:
        yield "All labels are the same class: accuracies say nothing."
    unweighted = [row["model"] for row in rows if not row["uses_edge_weights"]]
    if report["graph"]["is_weighted"] and unweighted:
        yield f"Edge weights are not used by {', '.join(unweighted)}, as in PyG."
    if any(row["machine_was_busy"] for row in rows):
        yield (
            "* Other processes took cores meanwhile, which slows torch's threads down more than "
            "ours. Ways are chosen and compared by their fastest bursts here, but these are not "
            "to be relied upon either: measure again when the machine is idle (the same command)."
        )


def _of_one(row: Row) -> Iterator[str]:
    name = row["model"]
    if row["float_twin"] is not None and row["predicted_by"] is None:
        yield f"{name} has float parts, which the packed engine does not speed up: '-'."
    if row["predicted_by"] == "packed" and not row["is_all_bits"]:
        yield f"{name}'s last map has float weights and runs in NumPy."
    if row["distilled"] is not None:
        yield _of_distillation(row)
    if faster := speed(row, "times_faster_than_pyg"):
        less = row["compared"]["memory_times_less_than_pyg"]
        mark = "*" if row["machine_was_busy"] else ""
        yield (
            f"{name} is {faster:.1f}x{mark} faster than PyG's layers on an edge index"
            + (f", and takes {less:.1f}x less memory." if less else ".")
        )
    if row["agreement"] is not None and row["agreement"] < 1:
        yield (
            f"{name}, packed, predicts {100 * row['agreement']:.3f} % of the nodes as torch "
            "does; the rest are near ties that float32 sums decide."
        )
    if row["sparse_data_bytes"] is not None:
        yield f"Stored sparse, {name}'s features take {row['sparse_data_bytes'] / 1024:,.1f} KiB."
    if (advice := row["recommended_width"]) is not None:
        per_head = -(-advice["width"] // row["heads"])
        yield (
            f"{name}: {row['hidden']} hidden neurons; to hold what those of "
            f"{row['float_twin']} do, {advice['width']} are recommended"
            f" (--bi-hidden {per_head}{', per head' if row['heads'] > 1 else ''})."
        )


def _of_distillation(row: Row) -> str:
    """Of a float model: who taught the others, and what it reaches when taught like them."""
    name, student, teacher = row["model"], row["distilled"], row["as_teacher"]
    reached = plus_minus(student["accuracy_mean"], student["accuracy_std"])
    who = name
    if teacher["accuracy"] != row["accuracy"]:
        taught_by = plus_minus(teacher["accuracy_mean"], teacher["accuracy_std"])
        who = f"a {name} trained to be a teacher ({taught_by} %)"
    student_line = f"a float {name} distilled from it reaches {reached} %."
    return f"Distilled models learned from {who}; {student_line}"


def speed(row: Row, key: str) -> float | None:
    """A ratio of medians; of the fastest bursts where medians tell of other processes."""
    found: float | None = (row["compared"] or {}).get(
        f"fastest_{key}" if row["machine_was_busy"] else key
    )
    return found


def next_commands(report: dict[str, Any]) -> list[tuple[str, str]]:
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
