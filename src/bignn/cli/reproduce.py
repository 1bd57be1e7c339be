"""The command ``bignn reproduce``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bignn.cli.command import (
    Report,
    add_device,
    add_jobs,
    add_threads,
    command,
    one_of,
    set_threads,
)

#: The sections of ``bignn.lab.paper``, importing which would import torch.
TABLES = (
    *("datasets", "cora-cost", "transductive", "inductive", "ogb", "entropy", "overview"),
    *("extraction", "depth", "depth-cost", "width", "twins", "family", "dense"),
    *("ablation", "speed", "gpu", "store"),
)


def add_reproduce(commands: Any) -> None:
    """Add ``bignn reproduce``."""
    parser = command(
        commands,
        "reproduce",
        _reproduce,
        "Reproduce the paper's tables and figures, with our results beside them.",
    )
    add = parser.add_argument
    add("what", nargs="*", type=one_of((*TABLES, "all")), metavar="TABLE|FIGURE",
        help=f"{', '.join(TABLES)}, or all (default: all)")  # fmt: skip
    add(
        "--seeds", type=int, metavar="N", help="number of seeds per row (default: the experiment's)"
    )
    add(
        "--only",
        metavar="NAMES",
        help="datasets and models to run, such as cora,bi-gcn (default: all)",
    )
    add_jobs(add, "train")
    add_device(add)
    add_threads(add)
    add("--out", default="runs/paper", metavar="DIR", help="folder for runs; finished ones are not "
        "run again (default: runs/paper)")  # fmt: skip
    add("--write", metavar="FILE", help="page to write, its figures beside it (default: "
        "DIR/results.md)")  # fmt: skip
    again = parser.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="resume from the runs in --out; "
                       "the default")  # fmt: skip
    again.add_argument("--anew", action="store_true", help="move the runs in --out aside first")


def _reproduce(options: argparse.Namespace) -> Report:
    from bignn.lab.paper import reproduce

    if options.threads is not None:
        set_threads(options.threads)
    names = [] if "all" in options.what else options.what
    report = reproduce.run(
        names,
        Path(options.out),
        seeds=options.seeds,
        only=() if options.only is None else options.only.split(","),
        device=options.device,
        jobs=options.jobs,
        anew=options.anew,
        page=None if options.write is None else Path(options.write),
    )
    return report, reproduce.describe
