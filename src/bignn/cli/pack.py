"""The command ``bignn pack``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bignn.cli.command import Report, command
from bignn.errors import InputError, input_error


def add_pack(commands: Any) -> None:
    """Add ``bignn pack``."""
    parser = command(
        commands, "pack", _pack, "Make a packed model (.bignn) from a checkpoint of 'bignn train'."
    )
    parser.add_argument("checkpoint", help="a .safetensors file written by 'bignn train'")
    parser.add_argument("out", help="the .bignn file to write")


def _pack(options: argparse.Namespace) -> Report:
    from bignn.packing import pack
    from bignn.train.checkpoint import load_model

    if options.out.endswith(".safetensors") and options.checkpoint.endswith(".bignn"):
        command_line = f"bignn pack {options.out} {options.checkpoint}"
        raise InputError(f"the checkpoint comes first: '{command_line}'")
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
