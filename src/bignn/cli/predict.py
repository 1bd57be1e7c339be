"""The command ``bignn predict``."""

from __future__ import annotations

import argparse
import csv
from typing import Any

from bignn.cli.command import Report, add_device, add_threads, command
from bignn.errors import input_error


def add_predict(commands: Any) -> None:
    """Add ``bignn predict``."""
    parser = command(
        commands,
        "predict",
        _predict,
        "Predict the nodes of a graph with a packed model; needs no torch.",
    )
    add = parser.add_argument
    add("model", help="a .bignn file")
    add("dataset", help="the name of a dataset, a .npz file, a packed graph (see --save-graph), or "
        "the folder of a store (see 'bignn pack-features')")  # fmt: skip
    add("--nodes", metavar="NODES", help="nodes to predict: their names, such as "
        "paper_17,paper_18, or where the graph has none their ids, such as 0,5,9 "
        "(default: all)")  # fmt: skip
    add("--out", metavar="FILE", help="file for the predictions: .csv, with names and scores (the "
        "predicted class's probability), or .npy, with numbers")  # fmt: skip
    add("--output", default="classes", choices=["classes", "probabilities", "logits"],
        help="what to predict (default: classes)")  # fmt: skip
    add(
        "--plan",
        help="order of work in every layer, T, G or S, or a letter per layer (default: "
        "the fastest by prediction)",
    )
    add("--explain", action="store_true", help="show the plan, its predicted costs and its times")
    add_device(add, "predict", "; the answers are the same")
    add_threads(add)
    add("--memory", metavar="SIZE", help="of a store: memory to use, such as 8G; a run that was "
        "stopped is continued by the same command (default: 4G)")  # fmt: skip
    add(
        "--order",
        choices=["locality"],
        help="pack nodes so that neighbours are near each other in memory: predictions of large "
        "graphs with communities are faster, and the same (default: as given)",
    )
    add(
        "--save-graph",
        metavar="FILE",
        help="also write the packed graph (.bigraph), for later predictions",
    )


def _predict(options: argparse.Namespace) -> Report:
    from bignn.runtime import predict_file

    nodes = None
    if options.nodes is not None:
        try:
            cells = next(csv.reader([options.nodes], skipinitialspace=True), [])
        except csv.Error:  # line breaks
            raise input_error("nodes", "names between commas", repr(options.nodes)) from None
        nodes = [cell.strip() for cell in cells if cell.strip()]
    report = predict_file.predict_file(
        options.model,
        options.dataset,
        nodes=nodes,
        out=options.out,
        output=options.output,
        plan=options.plan,
        device=options.device,
        explain=options.explain,
        threads=options.threads,
        order=options.order,
        save_graph=options.save_graph,
        memory=options.memory,
    )
    return report, predict_file.describe
