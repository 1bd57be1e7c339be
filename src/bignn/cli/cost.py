"""The command ``bignn cost``."""

from __future__ import annotations

import argparse
from typing import Any

import bignn
from bignn.cli.command import Report, add_threads, command
from bignn.cli.recipe_flags import add_recipe_flags, changes_of
from bignn.cost import Sizes
from bignn.errors import FileError, InputError, input_error
from bignn.graph import Graph
from bignn.graph.datasets import find
from bignn.graph.published_sizes import PUBLISHED_SIZES
from bignn.train.recipes import RECIPES

_CHANGES = ("hidden_channels", "num_layers", "heads", "out_heads", "binarize_head", "input_bits")
_SIZES = ("nodes", "edges", "features", "classes")


def add_cost(commands: Any) -> None:
    """Add ``bignn cost``."""
    parser = command(
        commands,
        "cost",
        _cost,
        "Estimate model size, data size and operations, float beside binary; no data needed.",
    )
    add = parser.add_argument
    add("dataset", nargs="?", help="a name that 'bignn datasets' lists, with its published sizes, "
        "or a .npz file; leave it out for a planned graph (--nodes ...)")  # fmt: skip
    add(
        "--model",
        default="bi-gcn",
        choices=tuple(RECIPES),
        metavar="NAME",
        help="a model of 'bignn train' (default: bi-gcn)",
    )
    add_recipe_flags(parser, _CHANGES)
    add("--nodes", type=int, metavar="N", help="nodes of a planned graph")
    add("--edges", type=int, metavar="N", help="undirected edges of a planned graph")
    add("--features", type=int, metavar="N", help="features per node of a planned graph")
    add("--classes", type=int, metavar="N", help="classes of a planned graph")
    add("--measure", action="store_true", help="also run a packed model with random weights, on "
        "the graph if it is here, or on a random graph of its size")  # fmt: skip
    add(
        "--scale",
        type=float,
        default=1.0,
        help="factor on the size of the random graph (default: 1)",
    )
    add_threads(add, " to measure with")
    add = parser.add_argument_group("machines").add_argument
    add("--machines", type=int, metavar="K", help="also what K machines hold and send each other, "
        "the graph in as many parts")  # fmt: skip
    add("--halo-rows", type=int, metavar="N", help="rows that the parts read of each other, as "
        "'bignn partition' counts them (default: those of parts drawn at random)")  # fmt: skip
    add("--link", type=float, default=10.0, metavar="GBIT", help="rate of a machine's link in "
        "Gbit/s (default: 10)")  # fmt: skip


def _cost(options: argparse.Namespace) -> Report:
    if not options.measure:
        for flag, default in (("scale", 1.0), ("threads", None)):
            if getattr(options, flag) != default:
                raise input_error(flag, "left out without --measure", getattr(options, flag))
    if options.machines is None:
        for flag, default in (("halo_rows", None), ("link", 10.0)):
            if getattr(options, flag) != default:
                raise input_error(flag, "left out without --machines", getattr(options, flag))
    graph = _graph(options)
    from bignn.train.recipes import cost as costs

    counted, document = costs.report(options.model, graph, changes_of(options, _CHANGES))
    if options.machines is not None:
        asked = options.machines, options.halo_rows, options.link
        document["machines"] = costs.machines_report(counted, *asked)
    if options.measure:
        from bignn.lab.bench import planned

        if options.threads is not None:
            bignn.set_num_threads(options.threads)
        if isinstance(graph, str):
            graph = _at_hand(graph, options.scale) or counted.sizes
        measured = planned.run(counted.architecture, graph, scale=options.scale)
        document["measured"] = measured
    return document, costs.describe


def _graph(options: argparse.Namespace) -> Graph | Sizes | str:
    """Return a published name, a graph from a file, or the sizes of a planned graph."""
    sizes = {name: getattr(options, name) for name in _SIZES}
    missing = [f"--{name}" for name, size in sizes.items() if size is None]
    if options.dataset is not None:
        if len(missing) < len(sizes):
            raise InputError(
                f"give a dataset ('{options.dataset}') or the sizes of a planned graph "
                "(--nodes, --edges, ...), not both"
            )
        name: str = options.dataset
        return name if name in PUBLISHED_SIZES else bignn.load(name)
    if len(missing) == len(sizes):
        raise InputError(
            "give a dataset, or --nodes, --edges, --features and --classes of a planned graph"
        )
    if missing:
        raise InputError(f"a planned graph also needs {', '.join(missing)}")
    return Sizes(**sizes)


def _at_hand(name: str, scale: float) -> Graph | None:
    """Return the graph if it is wanted whole and need not be downloaded."""
    if scale != 1:
        return None
    try:
        find(name)
    except FileError:
        return None
    return bignn.load(name)
