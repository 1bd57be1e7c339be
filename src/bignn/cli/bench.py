"""The command ``bignn bench``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import (
    Report,
    add_device,
    add_threads,
    check_plot,
    command,
    one_of,
    set_threads,
)
from bignn.cli.recipe_flags import add_recipe_flags
from bignn.errors import input_error
from bignn.kernels import checked_backend
from bignn.kernels.cuda.device import cuda_device
from bignn.kernels.native import KNOWN_INSTRUCTION_SETS
from bignn.runtime.backends.gpu import device_number

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
    add(
        "--against",
        metavar="NAMES",
        help="contenders to time beside the packed model: some of pyg, pyg_sparse, torch_sparse "
        "and simulated, which also counts the nodes that agree with torch (default: all)",
    )
    add_device(add, "measure graphs", ", where GCN runs against torch and PyG")
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
    if options.device != "cpu":
        return _bench_on_gpu(options)
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
            against=None if options.against is None else options.against.split(","),
        )
    if options.plot is not None:
        suite_report.plot(report, options.plot)
    return report, suite_report.describe


def _bench_on_gpu(options: argparse.Namespace) -> Report:
    for name in ("plot", "backend", "against"):
        value = getattr(options, name)
        if value is not None:
            raise input_error(name, "left out on a GPU", repr(value))
    if options.model != "gcn":
        raise input_error("model", "'gcn' on a GPU", repr(options.model))
    if "gemm" in options.suites:
        raise input_error("suites", "citation or shapes on a GPU", "'gemm'")
    cuda_device(device_number(options.device))  # an error where it cannot be used
    from bignn.lab.bench import gpu

    set_threads(options.threads)
    report = gpu.run(
        options.suites or [name for name in SUITES if name != "gemm"],
        device=options.device,
        scale=options.scale,
        only=None if options.only is None else options.only.split(","),
        edge_bits=options.edge_bits,
    )
    return report, gpu.describe
