"""``bignn demo``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, command


def add_demo(commands: Any) -> None:
    """Adds ``bignn demo``."""
    parser = command(commands, "demo", _demo, "Compare GCN and Bi-GCN on Cora; two minutes.")
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="(default: runs/demo)")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="(default: 2)")
    parser.add_argument("--epochs", type=int, help="at most so many epochs (default: 1000)")


def _demo(options: argparse.Namespace) -> Report:
    from bignn.lab import demo

    report = demo.run(options.out, seeds=options.seeds, epochs=options.epochs)
    return report, demo.describe
