"""Predictions from files to files, without torch: what ``bignn predict`` does."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, counted, input_error
from bignn.files import atomic_path, check_writable
from bignn.graph import load
from bignn.kernels.threads import set_num_threads
from bignn.runtime import Output, PackedGraph, PackedModel, pack_graph
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.neighbourhood import AnyPackedGraph
from bignn.runtime.node_order import Order
from bignn.runtime.tensors import GRAPH_SUFFIX, check_suffix


def predict_file(
    model_path: str,
    dataset: str,
    *,
    nodes: list[int] | None = None,
    out: str | None = None,
    output: Output = "classes",
    plan: str | None = None,
    device: str = "cpu",
    explain: bool = False,
    threads: int | None = None,
    order: Order | None = None,
    save_graph: str | None = None,
) -> dict[str, Any]:
    """Predict a graph, given by name or file, with a packed model's file."""
    first, second = Path(model_path).suffix, Path(dataset).suffix
    if first == ".npz" or (second == ".bignn" and first != ".bignn"):
        raise InputError(
            f"'{model_path}' is no packed model; the model comes first, as 'bignn predict "
            "mine.bignn mine.npz'"
        )
    if out is not None:
        if Path(out).suffix not in (".csv", ".npy"):
            raise input_error("out", "a file name ending in .csv or .npy", repr(out))
        check_writable(out)
    _check_different(
        {"model": model_path, "dataset": dataset}, {"out": out, "save-graph": save_graph}
    )
    if save_graph is not None:
        check_suffix(save_graph, GRAPH_SUFFIX, "save-graph")
        check_writable(save_graph)
    if threads is not None:
        set_num_threads(threads)
    model = PackedModel.open(model_path)
    start = time.perf_counter()
    with _as_arguments(model_path, dataset):
        graph = _graph(dataset, model, order)
    packing = time.perf_counter() - start
    if explain and not model.network.layers:
        raise InputError(
            "'explain' is for models of binary features and weights, which have a plan"
        )
    start = time.perf_counter()
    with _as_arguments(model_path, dataset):
        values = model.predict(graph, nodes, output=output, plan=plan, device=device)
    seconds = time.perf_counter() - start
    ids = np.arange(len(values)) if nodes is None else np.asarray(nodes, dtype=np.int64)
    if out is not None:
        write(out, ids, values)
    if save_graph is not None:
        graph.save(save_graph)
    classes = values if values.ndim == 1 else values.argmax(axis=1)
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
        "test_acc": None if model.network.is_pooled else _test_accuracy(graph, ids, classes),
        "out": out,
        "saved_graph": save_graph,
    }
    if explain and chosen is not None:
        report["explanation"] = str(chosen)
    if out is None:
        report["nodes"] = ids.tolist()
        report["predictions"] = values.tolist()
    return report


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
    if report["out"] is None:
        shown = list(zip(report["nodes"], report["predictions"], strict=True))[:10]
        lines += [f"  node {node}: {_short(value)}" for node, value in shown]
        if len(report["nodes"]) > len(shown):
            more = len(report["nodes"]) - len(shown)
            lines.append(f"  ... and {more} more; --out FILE writes them all")
    return "\n".join(lines)


def write(path: str | os.PathLike[str], ids: NDArray[Any], values: NDArray[Any]) -> None:
    """Write predictions as ``.npy`` (the values alone) or ``.csv`` (a line per node)."""
    with atomic_path(path) as temporary:
        if Path(path).suffix == ".npy":
            with temporary.open("wb") as file:
                np.save(file, values)
            return
        with temporary.open("w", encoding="utf-8") as file:
            names = (
                ["class"] if values.ndim == 1 else [f"class_{c}" for c in range(values.shape[1])]
            )
            file.write(",".join(["node", *names]) + "\n")
            for node, value in zip(ids.tolist(), values.tolist(), strict=True):
                cells = [value] if values.ndim == 1 else value
                file.write(",".join([str(node), *map(str, cells)]) + "\n")


def _check_different(inputs: dict[str, str], outputs: dict[str, str | None]) -> None:
    """Refuse to write over what is read, or twice to the same file."""
    taken = {Path(path).resolve(): name for name, path in inputs.items()}
    for name, path in outputs.items():
        if path is None:
            continue
        if (other := taken.get(Path(path).resolve())) is not None:
            raise input_error(name, f"another file than '{other}'", repr(path))
        taken[Path(path).resolve()] = name


def _graph(dataset: str, model: PackedModel, order: Order | None) -> AnyPackedGraph:
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


def _test_accuracy(graph: AnyPackedGraph, ids: NDArray[Any], classes: NDArray[Any]) -> float | None:
    """Percent of the test nodes among ``ids`` whose class is right; None if there are none."""
    if isinstance(graph, PackedHeteroGraph):
        return None
    if "y" not in graph.labels or "test_idx" not in graph.labels:
        return None
    tested = np.isin(ids, graph.labels["test_idx"])
    if not tested.any():
        return None
    return 100 * float((graph.labels["y"][ids[tested]] == classes[tested]).mean())


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(f"{number:.3f}" for number in value)
    return f"class {value}"
