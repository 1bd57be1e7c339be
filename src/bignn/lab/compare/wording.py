"""The table, notes and remarks of a comparison, on a terminal as on a page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bignn.config.input_bits import SIGN
from bignn.lab.compare.measured import Row
from bignn.lab.compare.verdict import accuracy_on, width_per_head
from bignn.lab.report.document import Footnotes, Table
from bignn.train.averages import plus_minus

#: Names of the ways to run a model.
WAYS = {
    "packed": "packed",
    "pyg": "PyG, edge_index",
    "pyg_sparse": "PyG, CSR",
    "torch_sparse": "torch by hand",
    "torch": "torch, bignn.nn",
}
NO_MEMORY = "memory was not measured: `--no-memory`"
NO_MEMORY_HERE = "memory could not be measured on this system"
BUSY = (
    "Other processes used the cores meanwhile, which slows torch's threads down more than ours. "
    "Ways are chosen and compared by their fastest bursts here, but these are not reliable either: "
    "run the same command again when the machine is idle."
)


def graph_line(sizes: dict[str, Any]) -> str:
    """Describe the sizes of a graph in a line."""
    kind = "weighted edges" if sizes["is_weighted"] else "edges"
    return (
        f"{count(sizes['nodes'], 'node')}, {sizes['edges']:,} directed {kind}, "
        f"{count(sizes['features'], 'feature')}, {count(sizes['classes'], 'class')}"
    )


def count(number: int, what: str) -> str:
    """Write a number of things, as "1 node" or "2,708 nodes"."""
    plural = f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number:,} {what if number == 1 else plural}"


def why_no_memory(report: dict[str, Any]) -> str | None:
    """Return why there is no peak memory; None if there is."""
    if any(row["peak_mib"] is not None for row in report["models"]):
        return None
    return NO_MEMORY_HERE if report["memory"] else NO_MEMORY


def table_of(report: dict[str, Any]) -> Table:
    """Make the table of all models; binary ones have their ratio to the float twin in brackets."""
    rows, notes = report["models"], Footnotes()
    ways = "; and ".join(
        f"{row['model']}: {'; '.join(WAYS[way] for way in row['ways'])}"
        for row in rows
        if row["float_twin"] is None
    )
    columns = (
        "model"
        + notes.mark(
            "Sizes, memory and times are those of the seed with the lowest validation loss."
        ),
        "hidden",
        f"{accuracy_on(report)} accuracy, %",
        "training, s"
        + notes.mark("Of one seed; of the best quality with its teachers and the models tried."),
        "weights, KiB" + notes.mark("Arrays of weights and their scales."),
        "features, KiB"
        + notes.mark(
            "Dense float32; for binary models their bits, in rows of 64, and a scale per node "
            "(where features are few, padding can cost more than bits save)."
        ),
        "peak, MiB" + notes.mark(_about_memory(report)),
        "predict, ms"
        + notes.mark(
            f"All nodes, on the CPU; float models in the fastest of their ways ({ways}), binary "
            "ones in the packed engine; medians of the same rounds."
        ),
        "run by",
    )
    return Table(
        "Float and binary models", columns, tuple(_cells(row, notes) for row in rows), notes.texts
    )


def _about_memory(report: dict[str, Any]) -> str:
    why = why_no_memory(report)
    if why is not None:
        return f"{why[0].upper()}{why[1:]}."
    return (
        "Peak memory of features, weights and activations while all nodes are predicted, in a "
        "process of its own."
    )


def _cells(row: Row, notes: Footnotes) -> tuple[str, ...]:
    beside = row["compared"] or {}
    points = beside.get("accuracy_points")
    spread = plus_minus(row["accuracy_mean"], row["accuracy_std"])
    way = "-" if row["predicted_by"] is None else WAYS[row["predicted_by"]]
    features = with_times(row["data_bytes"] / 1024, beside.get("data_times_smaller"))
    if row["sparse_data_bytes"] is not None:
        features += notes.mark(f"Stored sparse: {row['sparse_data_bytes'] / 1024:,.1f} KiB.")
    predict = with_times(row["predict_ms"], speed(row, "times_faster"))
    if row["machine_was_busy"]:
        predict += notes.mark(BUSY)
    if row["float_twin"] is not None and row["predicted_by"] is None:
        way += notes.mark("Has float parts, which the packed engine does not speed up.")
    if row["predicted_by"] == "packed" and not row["is_all_bits"]:
        way += notes.mark("The last layer has float weights and runs in NumPy.")
    return (
        row["model"],
        str(row["hidden"]),
        spread if points is None else f"{spread} ({points:+.1f})",
        with_times(row["seconds_per_run"], None),
        with_times(row["model_bytes"] / 1024, beside.get("model_times_smaller")),
        features,
        with_times(row["peak_mib"], beside.get("memory_times_less")),
        predict,
        way,
    )


def with_times(value: float | None, times: float | None) -> str:
    """Write a number, and how many times better than the float twin's it is."""
    if value is None:
        return "-"
    number = f"{value:,.1f}" if value >= 10 else f"{value:.2f}"
    return number if times is None else f"{number} ({times:.1f}x)"


def remarks(report: dict[str, Any]) -> list[str]:
    """Return sentences about what the table does not show by itself."""
    return [*_on_all(report), *(text for row in report["models"] for text in _on_one(row))]


def _on_all(report: dict[str, Any]) -> Iterator[str]:
    if report["accuracy_on"] == "val":
        yield "The graph has no test split: accuracies are those of validation nodes."
    if report["graph"]["classes"] == 1:
        yield "All labels are the same class: accuracies mean nothing."
    unweighted = [row["model"] for row in report["models"] if not row["uses_edge_weights"]]
    if report["graph"]["is_weighted"] and unweighted:
        yield f"Edge weights are not used by {', '.join(unweighted)}, as in PyG."


def _on_one(row: Row) -> Iterator[str]:
    name = row["model"]
    if row.get("input_bits", SIGN) != SIGN:
        yield (
            f"{name} reads several bits of each feature, since they are dense "
            f"(`--input-bits {row['input_bits']}`; `sign` is one bit each)."
        )
    if row["distilled"] is not None:
        yield _on_distillation(row)
    if (taught := row["taught"]) is not None:
        chosen = "with its teachers" if taught["follows"] else "without teachers"
        wide = f", {row['hidden']} hidden neurons" if row["quality"] == "best" else ""
        yield (
            f"{name} is the model {chosen}{wide}: validation accuracy "
            f"{taught['val_acc']['distilled']:.1f} % with them, {taught['val_acc']['alone']:.1f} % "
            "without."
        )
    if faster := speed(row, "times_faster_than_pyg"):
        less = row["compared"]["memory_times_less_than_pyg"]
        yield (
            f"{name} is {faster:.1f}x as fast as PyG's layers on an edge index"
            + (f", and takes {less:.1f}x less memory" if less else "")
            + (" (by fastest bursts)." if row["machine_was_busy"] else ".")
        )
    if row["agreement"] is not None and row["agreement"] < 1:
        yield (
            f"{name}, packed, predicts {100 * row['agreement']:.3f} % of the nodes as torch "
            "does; the rest are near ties that float32 sums decide."
        )
    if (advice := row["recommended_width"]) is not None and row["quality"] == "plain":
        per_head = ", per head" if row["heads"] > 1 else ""
        yield (
            f"{name} has {row['hidden']} hidden neurons; {advice['width']} hold as many bits as "
            f"the hidden layer of {row['float_twin']} (`--bi-hidden {width_per_head(row)}`"
            f"{per_head}), which is worth a try where accuracy is lost."
        )


def _on_distillation(row: Row) -> str:
    """Describe who taught the students of a float model, and what a float student reaches."""
    name, student, teacher = row["model"], row["distilled"], row["as_teacher"]
    reached = plus_minus(student["accuracy_mean"], student["accuracy_std"])
    who = name
    if teacher["accuracy"] != row["accuracy"]:
        taught_by = plus_minus(teacher["accuracy_mean"], teacher["accuracy_std"])
        who = f"a {name} trained to be a teacher ({taught_by} %)"
    student_line = f"a float {name} distilled from it reaches {reached} %."
    return f"Distilled models learned from {who}; {student_line}"


def speed(row: Row, key: str) -> float | None:
    """Return a ratio of medians, or of the fastest bursts where the machine was busy."""
    found: float | None = (row["compared"] or {}).get(
        f"fastest_{key}" if row["machine_was_busy"] else key
    )
    return found


def next_commands(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the commands that use the trained models, each with a word for it."""
    found = []
    dataset = shlex.quote(report["dataset"])
    found += [("train", tried["command"]) for tried in report["advice"] if tried["command"]]
    for row in report["models"]:
        if row["plan"] is None:
            continue
        packed = shlex.quote(str(Path(report["out"]) / f"{row['model']}.bignn"))
        found += [
            ("pack", f"bignn pack {shlex.quote(row['checkpoint'])} {packed}"),
            ("predict", f"bignn predict {packed} {dataset} --out {row['model']}.csv"),
        ]
    return found
