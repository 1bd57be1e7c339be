"""Predictions of a graph in parts, a process for each: what ``bignn predict MODEL DIR`` does."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import bignn
from bignn.errors import counted
from bignn.kernels.reference import first_largest
from bignn.kernels.threads import set_num_threads
from bignn.runtime import Output, PackedModel, tensors
from bignn.runtime.parts.graph_part import GraphPart
from bignn.runtime.parts.messages import MessageForm
from bignn.runtime.parts.part_files import open_part
from bignn.runtime.parts.part_run import PartRun
from bignn.runtime.predict_file import (
    check_out,
    class_names,
    first_predictions,
    in_numbers_of,
    prediction_table,
    write,
)
from bignn.runtime.predicted_values import chosen_output, finished, gives_classes, scores_of
from bignn.train.distributed import World
from bignn.train.parts.halo import HaloExchange


def predict_parts(
    model_path: str,
    folder: str,
    world: World,
    *,
    out: str | None = None,
    output: Output | None = None,
    plan: str | None = None,
    threads: int | None = None,
    form: MessageForm = "bits",
) -> dict[str, Any]:
    """Predict a graph in parts with a packed model's file, as one of the processes of a world.

    Predictions come together in the leader, which writes them.
    """
    if world.is_leader:
        check_out(out)
    if threads is not None:
        set_num_threads(threads)
    model = PackedModel.open(model_path)
    output = chosen_output(output, model.output)
    part = open_part(folder, world.rank, world.size)
    check_alike(world, part, model, [output, plan or "", form])
    start = time.perf_counter()
    exchange = HaloExchange(world, part)
    run = PartRun(model.network, part, exchange, plan=plan, form=form)
    packing = time.perf_counter() - start
    world.barrier()  # the time of the prediction is of all processes together
    start = time.perf_counter()
    scores = None
    if output == "classes" and (out is None or not out.endswith(".npy")):
        logits = run.logits()
        values, scores = first_largest(logits), scores_of(logits)
    elif output == "classes":
        values = run.classes()
    else:
        values = finished(run.logits(), output)
    world.barrier()
    seconds = time.perf_counter() - start
    accuracy = None
    if gives_classes(output, model.output):
        classes = values if values.ndim == 1 else values.argmax(axis=1)
        accuracy = _test_accuracy(world, model, part, classes)
    report: dict[str, Any] = {
        "model": model_path,
        "dataset": folder,
        "num_nodes": part.partition.num_nodes,
        "num_parts": world.size,
        "seconds": seconds,
        "packing_seconds": packing,
        "waited_seconds": max(row[0] for row in world.gather(run.waited)),
        "plan": run.ways,
        "output": output,
        "test_acc": accuracy,
        "exchange": _exchanged(world, run, exchange, form),
        "out": out,
    }
    count = part.partition.num_nodes
    whole = in_whole_graph(world, part, values, count)
    of_scores = None if scores is None else in_whole_graph(world, part, scores, count)
    if whole is None:
        return report
    names = class_names(model, part.partition.class_names)
    ids = np.arange(count)
    described = (of_scores, None, names, output)
    if out is not None:
        write(out, whole, lambda: prediction_table("node", ids, whole, *described))
        return report
    table = prediction_table("node", ids, whole, *described)
    report["nodes"] = table.nodes
    report["predictions"] = table.columns["class"] if whole.ndim == 1 else whole.tolist()
    if of_scores is not None:
        report["scores"] = [float(score) for score in table.columns["score"]]
    return report


def check_alike(world: World, part: GraphPart, model: PackedModel, options: list[str]) -> None:
    """Refuse processes whose versions, parts, models or options are not the same."""
    arrays, header = model.parts()
    world.check_same(
        {"their version of bignn": bignn.__version__}, "install one version everywhere"
    )
    world.check_same(
        {"their parts": part.partition.digest},
        "copy the parts of one 'bignn partition' to all machines",
    )
    world.check_same(
        {"their model": tensors.digest_of(json.dumps(header), arrays)},
        "copy one .bignn file to all machines",
    )
    world.check_same({"their options": json.dumps(options)})


def in_whole_graph(
    world: World, part: GraphPart, values: NDArray[Any], num_nodes: int
) -> NDArray[Any] | None:
    """Bring values of the owned nodes together in the leader, by the whole graph's numbers."""
    counts = [int(row[0]) for row in world.gather(part.num_nodes)]
    if not world.is_leader:
        with world.communicating():
            for array in (part.nodes, values):
                torch.distributed.send(torch.from_numpy(np.array(array)), 0)
        return None
    whole = np.empty((num_nodes, *values.shape[1:]), dtype=values.dtype)
    whole[part.nodes] = values
    for rank in range(1, world.size):
        nodes = torch.empty(counts[rank], dtype=torch.int64)
        theirs = torch.from_numpy(np.empty((counts[rank], *values.shape[1:]), dtype=values.dtype))
        with world.communicating():
            torch.distributed.recv(nodes, rank)
            torch.distributed.recv(theirs, rank)
        whole[nodes.numpy()] = theirs.numpy()
    return whole


def _test_accuracy(
    world: World, model: PackedModel, part: GraphPart, classes: NDArray[Any]
) -> float | None:
    """Percent of all test nodes whose class is right; None if there are none."""
    right = count = 0
    if part.y is not None and part.test_idx is not None:
        y = in_numbers_of(model.class_names, part.partition.class_names, part.y[part.test_idx])
        right, count = int((y == classes[part.test_idx]).sum()), len(y)
    right_of_all, of_all = world.totals(right, count)
    return 100 * right_of_all / of_all if of_all else None


def _exchanged(
    world: World, run: PartRun, exchange: HaloExchange, form: MessageForm
) -> dict[str, Any]:
    """Count what was sent, all processes together, beside the same rows as float32."""
    sent = int(world.totals(exchange.forward.sent)[0])
    layers = []
    for some in run.exchanged:
        rows, num_bytes = map(int, world.totals(some.rows, some.num_bytes))
        layers.append(
            {
                "rows": rows,
                "columns": some.columns,
                "bytes": num_bytes,
                "float32_bytes": 4 * rows * some.columns,
            }
        )
    as_floats = sum(layer["float32_bytes"] for layer in layers)
    return {
        "form": form,
        "bytes": sent,
        "float32_bytes": as_floats,
        "ratio": as_floats / sent if sent else None,
        "layers": layers,
    }


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`predict_parts`."""
    exchange, accuracy = report["exchange"], report["test_acc"]
    lines = [
        f"{counted(report['num_nodes'], 'node')} in {counted(report['num_parts'], 'part')}, "
        f"{1e3 * report['seconds']:.2f} ms, of which {1e3 * report['waited_seconds']:.2f} ms "
        f"waiting for rows of other parts, plan {report['plan']}"
        + ("" if accuracy is None else f", test accuracy {accuracy:.1f} %")
    ]
    if exchange["bytes"]:
        lines.append(
            f"sent {exchange['bytes']:,} bytes ({exchange['form']}); the same rows as float32: "
            f"{exchange['float32_bytes']:,} bytes, {exchange['ratio']:.1f} times as many"
        )
    if report["out"] is not None:
        lines.append(f"wrote {report['out']}")
    return "\n".join([*lines, *first_predictions(report)])
