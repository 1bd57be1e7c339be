"""The command ``bignn predict``."""

from __future__ import annotations

import argparse
import csv
import os
from typing import Any, get_args

from bignn.cli.command import Report, add_device, add_threads, add_timeout, command
from bignn.errors import InputError, input_error
from bignn.runtime.predicted_values import Output


def add_predict(commands: Any) -> None:
    """Add ``bignn predict``."""
    parser = command(
        commands,
        "predict",
        _predict,
        "Predict the nodes of a graph with a packed model; needs no torch, unless the graph is in "
        "parts.",
    )
    add = parser.add_argument
    add("model", help="a .bignn file")
    add("dataset", help="the name of a dataset, a .npz file, a packed graph (see --save-graph), or "
        "the folder of a store ('bignn pack-features') or, under torchrun, of parts "
        "('bignn partition')")  # fmt: skip
    add("--nodes", metavar="NODES", help="nodes to predict: their names, such as "
        "paper_17,paper_18, or where the graph has none their ids, such as 0,5,9 "
        "(default: all)")  # fmt: skip
    add("--out", metavar="FILE", help="file for the predictions: .csv, with names and scores (the "
        "predicted class's probability) or a column per label or value, or .npy, with "
        "numbers; of a store needed, and .npy only")  # fmt: skip
    add("--output", choices=get_args(Output), help="what to predict (default: what the model was "
        "trained for, classes, labels or values)")  # fmt: skip
    add(
        "--plan",
        help="order of work in every layer, T, G or S, or a letter per layer (default: "
        "the fastest by prediction)",
    )
    add("--explain", action="store_true", help="show the plan, its predicted costs and its times")
    add_device(add, "predict", "; the answers are the same")
    add_threads(add)
    add("--memory", metavar="SIZE", help="of a store: memory to use, such as 8G, at least 256M; a "
        "run that was stopped is continued by the same command (default: 4G)")  # fmt: skip
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
    add = parser.add_argument_group("parts").add_argument
    add("--halo", choices=["bits", "floats"], default="bits", help="how parts send rows to each "
        "other; floats is to compare with (default: bits)")  # fmt: skip
    add_timeout(add)


def _predict(options: argparse.Namespace) -> Report | None:
    from bignn.runtime import predict_file
    from bignn.runtime.parts.part_files import is_partition

    if is_partition(options.dataset):
        return _predict_parts(options)
    if "LOCAL_WORLD_SIZE" in os.environ:
        from bignn.train.distributed import joined_world, under_torchrun

        if under_torchrun():
            fix = "'bignn partition' makes one"
            with joined_world("cpu", options.timeout):  # one of the processes reports it
                expected = "a folder of parts under torchrun"
                raise input_error("dataset", expected, options.dataset, fix)
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


def _predict_parts(options: argparse.Namespace) -> Report | None:
    """Predict one of the parts; None in processes that follow the one that reports."""
    from bignn.train.distributed import joined_world
    from bignn.train.parts import predict_parts

    with joined_world("cpu", options.timeout) as world:
        for name in ("nodes", "explain", "order", "save_graph"):
            if getattr(options, name) not in (None, False):
                raise InputError(f"'{name}' is for graphs that are not in parts; leave it out")
        if options.device != "cpu":
            raise input_error("device", "'cpu' for a graph in parts", repr(options.device))
        report = predict_parts.predict_parts(
            options.model,
            options.dataset,
            world,
            out=options.out,
            output=options.output,
            plan=options.plan,
            threads=options.threads,
            form=options.halo,
        )
    return (report, predict_parts.describe) if world.is_leader else None
