"""The command ``bignn demo``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, command


def add_demo(commands: Any) -> None:
    """Add ``bignn demo``."""
    parser = command(commands, "demo", _demo, "Compare GCN and Bi-GCN on Cora; takes two minutes.")
    add = parser.add_argument
    add("--out", default="runs/demo", metavar="DIR", help="folder for checkpoints and the page "
        "(default: runs/demo)")  # fmt: skip
    add("--seeds", type=int, default=2, metavar="N", help="train with seeds 0 to N-1 (default: 2)")
    add("--epochs", type=int, metavar="N", help="maximum number of epochs (default: 1000)")


def _demo(options: argparse.Namespace) -> Report:
    from bignn.lab import demo

    report = demo.run(options.out, seeds=options.seeds, epochs=options.epochs)
    return report, demo.describe
