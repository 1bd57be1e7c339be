"""Predictions from files to files, without torch: what ``bignn predict`` does."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, counted, input_error, not_for_a_store
from bignn.files import atomic_path, check_writable
from bignn.graph import load
from bignn.graph.graph import UNLABELLED
from bignn.graph.names import Names
from bignn.kernels.reference import first_largest
from bignn.kernels.threads import set_num_threads
from bignn.runtime import Output, PackedGraph, PackedModel, pack_graph
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.neighbourhood import AnyPackedGraph
from bignn.runtime.node_order import Order
from bignn.runtime.predicted_values import chosen_output, gives_classes, scores_of
from bignn.runtime.store import Store, is_store, predict_store
from bignn.runtime.tensors import GRAPH_SUFFIX, check_suffix


def predict_file(
    model_path: str,
    dataset: str,
    *,
    nodes: list[str] | None = None,
    out: str | None = None,
    output: Output | None = None,
    plan: str | None = None,
    device: str = "cpu",
    explain: bool = False,
    threads: int | None = None,
    order: Order | None = None,
    save_graph: str | None = None,
    memory: str | None = None,
) -> dict[str, Any]:
    """Predict a graph, given by name or file, or a store, with a packed model's file.

    ``nodes`` are names where the graph has names, and numbers where it has none. ``output`` is as
    in :meth:`PackedModel.predict`: by default classes, labels or values, as the model was trained.
    """
    if is_store(dataset):
        others = {
            "nodes": None if nodes is None else ",".join(nodes),
            **{"plan": plan, "order": order, "save-graph": save_graph},
            **{"explain": explain or None, "device": None if device == "cpu" else device},
        }
        for name, value in others.items():
            if value is not None:
                raise not_for_a_store(name, value)
        _check_different({"model": model_path}, {"out": out})
        return _predict_store(model_path, dataset, out, output, memory or "4G", threads)
    if memory is not None:
        raise input_error("memory", "left out but for a store", repr(memory))
    first, second = Path(model_path).suffix, Path(dataset).suffix
    if first == ".npz" or (second == ".bignn" and first != ".bignn"):
        raise InputError(
            f"'{model_path}' is no packed model; the model comes first, as 'bignn predict "
            "mine.bignn mine.npz'"
        )
    check_out(out)
    _check_different(
        {"model": model_path, "dataset": dataset}, {"out": out, "save-graph": save_graph}
    )
    if save_graph is not None:
        check_suffix(save_graph, GRAPH_SUFFIX, "save-graph")
        check_writable(save_graph)
    if threads is not None:
        set_num_threads(threads)
    model = PackedModel.open(model_path)
    output = chosen_output(output, model.output)
    start = time.perf_counter()
    with _as_arguments(model_path, dataset):
        graph = open_graph(dataset, model, order)
    packing = time.perf_counter() - start
    if explain and not model.network.layers:
        raise InputError(
            "'explain' is for models of binary features and weights, which have a plan"
        )
    wanted = None if nodes is None else _numbers(nodes, _node_names(model, graph))
    has_scores = output == "classes" and (out is None or Path(out).suffix != ".npy")
    scores = None
    start = time.perf_counter()
    with _as_arguments(model_path, dataset):
        if has_scores:
            values, scores = _classes_and_scores(model, graph, wanted, plan, device)
        else:
            values = model.predict(graph, wanted, output=output, plan=plan, device=device)
    seconds = time.perf_counter() - start
    ids = np.arange(len(values)) if wanted is None else wanted
    if out is not None:
        write(out, values, lambda: _table(model, graph, ids, values, scores, output))
    if save_graph is not None:
        graph.save(save_graph)
    chosen = None
    if model.network.layers:
        chosen = model.explain(graph, plan=plan, device=device, measure=explain)
    report: dict[str, Any] = {
        "model": model_path,
        "dataset": dataset,
        "num_nodes": len(ids),
        "seconds": seconds,
        "packing_seconds": packing,
        "device": device,
        "plan": None if chosen is None else chosen.ways,
        "output": output,
        "test_acc": _test_accuracy(model, graph, ids, values, output),
        "out": out,
        "saved_graph": save_graph,
    }
    if explain and chosen is not None:
        report["explanation"] = str(chosen)
    if out is None:
        table = _table(model, graph, ids, values, scores, output)
        report["nodes"] = table.nodes
        report["predictions"] = table.columns["class"] if values.ndim == 1 else values.tolist()
        if scores is not None:
            report["scores"] = [float(score) for score in table.columns["score"]]
    return report


def _predict_store(
    model_path: str,
    folder: str,
    out: str | None,
    output: Output | None,
    memory: str,
    threads: int | None,
) -> dict[str, Any]:
    if out is None:
        raise input_error("out", "a file name ending in .npy for a store", "none")
    if threads is not None:
        set_num_threads(threads)
    model, store = PackedModel.open(model_path), Store(folder)
    output = chosen_output(output, model.output)
    report = predict_store.predict_store(model, store, out, output=output, memory=memory)
    has_classes = gives_classes(output, model.output)
    accuracy = predict_store.accuracy_of(store, out) if has_classes else None
    asked = {"model": model_path, "dataset": folder, "output": output}
    return {**asked, "test_acc": accuracy, **report}


def check_out(out: str | None) -> None:
    """Refuse a file that predictions cannot be written to."""
    if out is None:
        return
    if Path(out).suffix not in (".csv", ".npy"):
        raise input_error("out", "a file name ending in .csv or .npy", repr(out))
    check_writable(out)


def _classes_and_scores(
    model: PackedModel,
    graph: AnyPackedGraph,
    nodes: NDArray[np.int64] | None,
    plan: str | None,
    device: str,
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Predict classes and their scores; on the CPU, those of all nodes by blocks."""
    if nodes is not None or device != "cpu":
        logits = model.predict(graph, nodes, output="logits", plan=plan, device=device)
        return first_largest(logits), scores_of(logits)
    blocks = [
        (first_largest(logits), scores_of(logits))
        for _, logits in model.stream(graph, output="logits", plan=plan)
    ]
    classes, scores = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return classes, scores


def _node_names(model: PackedModel, graph: AnyPackedGraph) -> Names | None:
    """Return the names of what is predicted: graphs, and nodes of several types, have none."""
    if isinstance(graph, PackedHeteroGraph) or model.network.is_pooled:
        return None
    return graph.node_names


def _numbers(nodes: list[str], names: Names | None) -> NDArray[np.int64]:
    """Find the nodes that were asked for, by name or by number."""
    if not nodes:
        raise input_error("nodes", "names or ids such as 0,5,9", "none")
    if names is not None:
        return names.numbers(nodes)
    try:
        return np.array([int(node) for node in nodes], dtype=np.int64)
    except (ValueError, OverflowError):
        got = repr(",".join(nodes))
        fix = "the graph has no names"
        raise input_error("nodes", "ids such as 0,5,9", got, fix) from None


class PredictionTable(NamedTuple):
    """Predictions as columns, by names where there are any and by numbers where there are none.

    Attributes:
        kind: what a row is of, ``"node"`` or ``"graph"``.
        nodes: the name or number of each.
        columns: by the head of the column, its cells.

    """

    kind: str
    nodes: Sequence[str | int]
    columns: dict[str, Sequence[Any]]


def _table(
    model: PackedModel,
    graph: AnyPackedGraph,
    ids: NDArray[np.int64],
    values: NDArray[Any],
    scores: NDArray[np.float32] | None,
    output: Output,
) -> PredictionTable:
    kind = "graph" if model.network.is_pooled else "node"
    theirs = graph.class_names if isinstance(graph, PackedGraph) else None
    names = _node_names(model, graph)
    return prediction_table(kind, ids, values, scores, names, class_names(model, theirs), output)


def prediction_table(
    kind: str,
    ids: NDArray[np.int64],
    values: NDArray[Any],
    scores: NDArray[np.float32] | None,
    names: Names | None,
    classes: tuple[str, ...] | None,
    output: Output,
) -> PredictionTable:
    """Make columns of predictions, with the names that there are; labels are 0 and 1."""
    numbers = ids.tolist()
    nodes: Sequence[str | int] = numbers
    if names is not None and len(ids) >= len(names) and (ids == np.arange(len(ids))).all():
        nodes = [*names, *numbers[len(names) :]]  # all of them, which is faster than one by one
    elif names is not None:
        nodes = [names[number] if number < len(names) else number for number in numbers]
    if values.ndim == 1:
        found = values.tolist()
        columns: dict[str, Sequence[Any]] = {
            "class": found if classes is None else [classes[number] for number in found]
        }
        if scores is not None:
            columns["score"] = [f"{score:.6f}" for score in scores.tolist()]
        return PredictionTable(kind, nodes, columns)
    what = _HEADS.get(output, "class")
    heads = classes or [f"{what}_{number}" for number in range(values.shape[1])]
    cells = values.astype(np.int64) if values.dtype == np.bool_ else values
    return PredictionTable(kind, nodes, dict(zip(heads, cells.T.tolist(), strict=True)))


#: How heads of columns without names begin, where numbers are not of classes.
_HEADS = {"labels": "label", "label_probabilities": "label", "values": "value"}


def class_names(model: PackedModel, theirs: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the model's names of classes; where it has none, the graph's, if they fit."""
    if model.class_names is not None or theirs is None:
        return model.class_names
    return theirs if len(theirs) == model.num_classes else None


@contextmanager
def _as_arguments(model_path: str, dataset: str) -> Iterator[None]:
    """Name the command's argument in errors about the graph, and a command that mends them."""
    try:
        yield
    except InputError as error:
        line = str(error)
        if not line.startswith("'graph' "):
            raise
        line, _, fix = line.replace("'graph'", "'dataset'", 1).partition("; ")
        if "pack_graph" in fix:
            again = f"bignn predict {model_path} GRAPH.npz --save-graph {dataset}"
            fix = f"pack the graph for this model: '{again}'"
        raise type(error)(f"{line}; {fix}" if fix else line) from error


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`predict_file`."""
    if "layers" in report:
        return predict_store.describe(report)
    accuracy = report["test_acc"]
    lines = [
        f"{counted(report['num_nodes'], 'node')} in {1e3 * report['seconds']:.2f} ms"
        + (f" on {report['device']}" if report["device"] != "cpu" else "")
        + (f", plan {report['plan']}" if report["plan"] else "")
        + (
            ""
            if accuracy is None
            else f", test accuracy {accuracy:.1f} % of the test nodes among them"
        )
    ]
    if "explanation" in report:
        lines.append(report["explanation"])
    lines += [f"wrote {report[key]}" for key in ("out", "saved_graph") if report[key] is not None]
    return "\n".join([*lines, *first_predictions(report)])


def first_predictions(report: dict[str, Any]) -> list[str]:
    """Format the first predictions, where no file has them."""
    lines: list[str] = []
    if report["out"] is None:
        shown = list(zip(report["nodes"], report["predictions"], strict=True))[:10]
        scores = report.get("scores", [None] * len(shown))
        lines += [
            f"  node {node}: {_short(value, score)}"
            for (node, value), score in zip(shown, scores, strict=False)
        ]
        if len(report["nodes"]) > len(shown):
            more = len(report["nodes"]) - len(shown)
            lines.append(f"  ... and {more} more; --out FILE writes them all")
    return lines


def write(
    path: str | os.PathLike[str], values: NDArray[Any], make_table: Callable[[], PredictionTable]
) -> None:
    """Write predictions as ``.npy`` (the values alone) or ``.csv`` (a line per node)."""
    with atomic_path(path) as temporary:
        if Path(path).suffix == ".npy":
            with temporary.open("wb") as file:
                np.save(file, values)
            return
        with temporary.open("w", encoding="utf-8", newline="") as text:
            rows, table = csv.writer(text, lineterminator="\n"), make_table()
            rows.writerow([table.kind, *table.columns])
            rows.writerows(zip(table.nodes, *table.columns.values(), strict=True))


def _check_different(inputs: dict[str, str], outputs: dict[str, str | None]) -> None:
    """Refuse to write over what is read, or twice to the same file."""
    taken = {Path(path).resolve(): name for name, path in inputs.items()}
    for name, path in outputs.items():
        if path is None:
            continue
        if (other := taken.get(Path(path).resolve())) is not None:
            raise input_error(name, f"another file than '{other}'", repr(path))
        taken[Path(path).resolve()] = name


def open_graph(dataset: str, model: PackedModel, order: Order | None = None) -> AnyPackedGraph:
    """Open a packed graph's file; load and pack anything else."""
    is_packed = Path(dataset).is_file() and not dataset.endswith(".npz")
    if is_packed or dataset.endswith(GRAPH_SUFFIX):
        if order is not None:
            raise InputError(
                f"'order' is for graphs that are packed now; {dataset} keeps the order that it was "
                "packed in"
            )
        if model.network.inputs:
            return PackedHeteroGraph.open(dataset)
        return PackedGraph.open(dataset)
    return pack_graph(load(dataset), like=model, order=order)


def _test_accuracy(
    model: PackedModel,
    graph: AnyPackedGraph,
    ids: NDArray[Any],
    values: NDArray[Any],
    output: Output,
) -> float | None:
    """Percent of the test nodes among ``ids`` whose class is right; None if there are none."""
    if not gives_classes(output, model.output):
        return None
    classes = values if values.ndim == 1 else values.argmax(axis=1)
    if isinstance(graph, PackedHeteroGraph) or model.network.is_pooled:
        return None
    if "y" not in graph.labels or "test_idx" not in graph.labels:
        return None
    tested = np.isin(ids, graph.labels["test_idx"])
    if not tested.any():
        return None
    y = in_numbers_of(model.class_names, graph.class_names, graph.labels["y"][ids[tested]])
    return 100 * float((y == classes[tested]).mean())


def in_numbers_of(
    ours: Sequence[str] | None, theirs: Sequence[str] | None, y: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Give a graph's classes the numbers that a model has for the same names; -1 for others."""
    if ours is None or theirs is None or ours == theirs:
        return y
    number = {name: place for place, name in enumerate(ours)}
    numbers = np.array([number.get(name, UNLABELLED) for name in theirs], dtype=np.int64)
    return np.where(y == UNLABELLED, UNLABELLED, numbers[y])


def _short(value: Any, score: float | None) -> str:
    if isinstance(value, list):
        return " ".join(
            str(int(number)) if isinstance(number, bool) else f"{number:.3f}" for number in value
        )
    name = f"class {value}" if isinstance(value, int) else value
    return name if score is None else f"{name}, {score:.2f}"
