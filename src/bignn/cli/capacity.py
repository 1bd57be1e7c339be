"""The command ``bignn capacity``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bignn.cli.command import (
    Report,
    add_dataset,
    add_device,
    add_jobs,
    add_threads,
    check_plot,
    command,
    numbers,
    set_threads,
)
from bignn.cli.recipe_flags import add_recipe_flags, changes_of
from bignn.train.recipes import TWINS

_CHANGES = ("epochs", "patience", "lr", "weight_decay", "dropout", "num_layers", "norm")


def add_capacity(commands: Any) -> None:
    """Add ``bignn capacity``."""
    parser = command(
        commands,
        "capacity",
        _capacity,
        "Find how wide a float model and its binary version must be, by training and by entropy.",
    )
    add = parser.add_argument
    add_dataset(add)
    floats = tuple(dict.fromkeys(TWINS.values()))
    add("--model", default="gcn", choices=floats, metavar="NAME", help="a float model with a "
        f"binary version: {', '.join(floats)} (default: gcn)")  # fmt: skip
    add("--widths", type=numbers, metavar="W,W", help="numbers of hidden neurons to try, per head "
        "with attention (default: 4,8,...,1024)")  # fmt: skip
    add("--bins", type=int, metavar="M", help="bins for a neuron's values (default: the paper's "
        "for this graph, or 200)")  # fmt: skip
    add("--seeds", type=int, default=5, metavar="N", help="train with seeds 0 to N-1 (default: 5)")
    add(
        "--distill",
        action="store_true",
        help="train the binary model as the student of a float one",
    )
    add("--as-paper", action="store_true", help="train both models with the paper's settings "
        "for citation graphs, whatever the graph, instead of by our recipes")  # fmt: skip
    add_recipe_flags(parser.add_argument_group("both models"), _CHANGES)
    add_device(add)
    add("--out", default="runs/capacity", metavar="DIR", help="folder for runs; finished ones are "
        "not run again (default: runs/capacity)")  # fmt: skip
    add_jobs(add, "train")
    add_threads(add)
    add("--plot", metavar="FILE", help="draw accuracy against width (.png, .svg or .pdf)")


def _capacity(options: argparse.Namespace) -> Report:
    from bignn.lab.paper import width, width_report
    from bignn.lab.paper.rows import WIDTHS
    from bignn.train.jobs import checked_jobs

    checked_jobs(options.jobs)
    check_plot(options.plot)
    if options.threads is not None:
        set_threads(options.threads)
    changes = changes_of(options, _CHANGES)
    study = width.Study(
        options.dataset,
        options.model,
        options.widths or WIDTHS,
        options.seeds,
        options.bins,
        options.as_paper,
        options.distill,
        tuple((name, value) for name, value in changes.items() if value is not None),
    )
    report = width.run(study, Path(options.out), device=options.device, jobs=options.jobs)
    if options.plot is not None:
        from bignn.lab.report import figures

        figures.save(width_report.figure(report), options.plot)
    return report, width_report.describe
