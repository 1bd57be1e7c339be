"""``bignn pack`` and ``bignn predict``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bignn.cli.command import Report, add_threads, command
from bignn.errors import InputError, input_error


def add_pack(commands: Any) -> None:
    """Adds ``bignn pack``."""
    parser = command(
        commands, "pack", _pack, "Make a packed model (.bignn) from a checkpoint of 'bignn train'."
    )
    parser.add_argument("checkpoint", help="a .safetensors file written by 'bignn train'")
    parser.add_argument("out", help="the .bignn file to write")


def _pack(options: argparse.Namespace) -> Report:
    from bignn.packing import pack
    from bignn.train.checkpoint import load_model

    if options.out.endswith(".safetensors") and options.checkpoint.endswith(".bignn"):
        given = f"bignn pack {options.out} {options.checkpoint}"
        raise InputError(f"the checkpoint comes first: '{given}'")
    if not options.out.endswith(".bignn"):
        raise input_error("out", "a file name ending in .bignn", repr(options.out))
    packed = pack(load_model(options.checkpoint))
    packed.save(options.out)
    sizes = packed.sizes
    report = {
        "out": options.out,
        "weight_bytes": sizes.weights + sizes.biases,
        "input_bytes": sizes.input,
        "file_bytes": Path(options.out).stat().st_size,
        "is_binary": packed.network.is_binary,
        "operations": [step["op"] for step in packed.operations],
    }
    return report, _describe_pack


def _describe_pack(report: dict[str, Any]) -> str:
    kind = "all bits" if report["is_binary"] else "with float parts"
    return (
        f"wrote {report['out']}: {report['file_bytes']:,} bytes, {kind} "
        f"({report['weight_bytes']:,} of weights, scales and biases, "
        f"{report['input_bytes']:,} of input statistics)"
    )


def add_predict(commands: Any) -> None:
    """Adds ``bignn predict``."""
    parser = command(
        commands, "predict", _predict, "Predict the nodes of a graph with a packed model; no torch."
    )
    add = parser.add_argument
    add("model", help="a .bignn file")
    add("dataset", help="cora, ..., a .npz file, or a packed graph (see --save-graph)")
    add("--nodes", metavar="IDS", help="only these, as 0,5,9 (default: all)")
    add("--out", metavar="FILE", help="write predictions: .csv or .npy")
    add("--output", default="classes", choices=["classes", "probabilities", "logits"])
    add("--plan", help="force ways: T, G or S, or a letter per layer (default: planned)")
    add("--explain", action="store_true", help="show the plan, its costs and times")
    add_threads(add)
    add("--save-graph", metavar="FILE", help="also write the packed graph, to predict from later")


def _predict(options: argparse.Namespace) -> Report:
    from bignn.runtime import predict_file

    nodes = None
    if options.nodes is not None:
        try:
            nodes = [int(part) for part in options.nodes.split(",")]
        except ValueError:
            raise input_error("nodes", "ids such as 0,5,9", repr(options.nodes)) from None
    report = predict_file.predict_file(
        options.model,
        options.dataset,
        nodes=nodes,
        out=options.out,
        output=options.output,
        plan=options.plan,
        explain=options.explain,
        threads=options.threads,
        save_graph=options.save_graph,
    )
    return report, predict_file.describe
