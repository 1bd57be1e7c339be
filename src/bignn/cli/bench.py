"""The command ``bignn bench``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, add_threads, check_plot, command, one_of, set_threads
from bignn.cli.recipe_flags import add_recipe_flags
from bignn.kernels import checked_backend
from bignn.kernels.native import KNOWN_INSTRUCTION_SETS

#: Names that ``bignn.lab.bench`` takes; importing it would import torch.
SUITES = ("gemm", "citation", "shapes")
MODELS = ("gcn", "sage", "gat")


def add_bench(commands: Any) -> None:
    """Add ``bignn bench``."""
    parser = command(
        commands,
        "bench",
        _bench,
        "Measure packed models against PyG, torch and a float simulation, in one run.",
    )
    add = parser.add_argument
    add(
        "suites",
        nargs="*",
        type=one_of(SUITES),
        metavar="SUITE",
        help="gemm, citation or shapes (default: all)",
    )
    add("--model", default="gcn", choices=MODELS, help="model to measure on graphs (default: gcn)")
    add("--scale", type=float, default=1.0, help="factor on the nodes and edges of 'shapes' "
        "(default: 1)")  # fmt: skip
    add(
        "--only",
        metavar="NAMES",
        help="graphs to measure, such as cora,arxiv (default: all of the suites)",
    )
    add_threads(add)
    add(
        "--backend",
        choices=KNOWN_INSTRUCTION_SETS,
        help="instruction set to run on; torch and MKL are held to the same one (default: the "
        "fastest of each)",
    )
    add_recipe_flags(parser, ["edge_bits"])
    add("--no-memory", action="store_true", help="do not measure peak memory")
    add("--plot", metavar="FILE", help="draw the speedups (.png, .svg or .pdf)")


def _bench(options: argparse.Namespace) -> Report:
    check_plot(options.plot)
    checked_backend(options.backend)
    from bignn.lab.bench.torch_instructions import torch_held_to

    with torch_held_to(options.backend):  # while torch loads
        from bignn.lab.bench import suite_report, suites

        set_threads(options.threads)
        report = suites.run(
            options.suites,
            model=options.model,
            scale=options.scale,
            only=None if options.only is None else options.only.split(","),
            memory=not options.no_memory,
            edge_bits=options.edge_bits,
            backend=options.backend,
        )
    if options.plot is not None:
        suite_report.plot(report, options.plot)
    return report, suite_report.describe
