"""The command ``bignn synth``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, add_threads, command, set_threads


def add_synth(commands: Any) -> None:
    """Add ``bignn synth``."""
    parser = command(
        commands,
        "synth",
        _synth,
        "Write a synthetic graph of a published shape to a store: skewed degrees, and classes that "
        "a model can learn; the same bytes for the same seed.",
    )
    add = parser.add_argument
    add("shape", help="papers100M, or a name that 'bignn datasets' lists")
    add("-o", "--out", required=True, metavar="DIR", help="the store's folder")
    add("--scale", type=float, default=1.0, help="share of the nodes, edges and labels (default: "
        "1)")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of the graph (default: 0)")
    add_threads(add)


def _synth(options: argparse.Namespace) -> Report:
    from bignn.runtime.store.synthetic import describe, write_synthetic

    if options.threads is not None:
        set_threads(options.threads)
    report = write_synthetic(options.shape, options.out, scale=options.scale, seed=options.seed)
    return report, describe
