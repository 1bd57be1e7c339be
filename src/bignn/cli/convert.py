"""``bignn convert``."""

from __future__ import annotations

import argparse
from typing import Any

import bignn
from bignn.cli.command import Report, command
from bignn.errors import InputError, wrong


def add_convert(commands: Any) -> None:
    """Adds ``bignn convert``."""
    parser = command(
        commands,
        "convert",
        _convert,
        "Make a graph .npz from tables in CSV, TSV or Parquet, or split the nodes of one.",
    )
    add = parser.add_argument
    add("out", help="the .npz file to write")
    add("--edges", metavar="FILE", help="source, target[, weight]")
    add("--features", metavar="FILE", help="a row per node, numeric columns")
    add("--labels", metavar="FILE", help="a label per node, last column; empty means unknown")
    add("--graph", metavar="FILE", help="a .npz to split, instead of tables")
    add("--id", metavar="COLUMN", help="column that names the nodes in features and labels")
    add(
        "--undirected",
        action="store_true",
        help="add the reverse of every edge; repeated edges become one, weights add up",
    )
    add("--split", metavar="A,B,C", help="random train,val,test split in percent, as 60,20,20")
    add("--seed", type=int, default=0, help="of the split (default: 0)")
    add("--no-header", action="store_true", help="text tables have no row of column names")


def _convert(options: argparse.Namespace) -> Report:
    from bignn.graph.convert import convert

    split = None
    if options.split is not None:
        try:
            split = [float(part) for part in options.split.split(",")]
        except ValueError:
            raise wrong("split", "percentages such as 60,20,20", repr(options.split)) from None
    if not options.out.endswith(".npz"):
        raise wrong("out", "a file name ending in .npz", repr(options.out))
    if options.graph is not None:
        return _split(options, split)
    for name in ("edges", "features"):
        if getattr(options, name) is None:
            raise InputError(
                f"'{name}' is missing; give --edges and --features (or --graph, to split a .npz)"
            )
    graph, classes = convert(
        options.edges,
        options.features,
        options.labels,
        id_column=options.id,
        undirected=options.undirected,
        split=split,
        seed=options.seed,
        header=not options.no_header,
    )
    return _saved(graph, options.out, classes)


def _split(options: argparse.Namespace, split: list[float] | None) -> Report:
    from bignn.graph.convert import with_split

    of_tables = ("edges", "features", "labels", "undirected", "id")
    if given := [f"--{name}" for name in of_tables if getattr(options, name)]:
        raise InputError(f"'graph' has its tables already; leave out {', '.join(given)}")
    if split is None:
        raise InputError("'split' is missing; with 'graph' give percentages such as 60,20,20")
    graph = with_split(bignn.load(options.graph), split, options.seed)
    return _saved(graph, options.out, [str(number) for number in range(graph.num_classes)])


def _saved(graph: bignn.Graph, out: str, classes: list[str]) -> Report:
    bignn.save(graph, out)
    sizes = {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
    }
    return {"out": out, **sizes, "classes": classes}, _describe_convert


def _describe_convert(report: dict[str, Any]) -> str:
    return (
        f"wrote {report['out']}: {report['num_nodes']} nodes, {report['num_edges']} directed "
        f"edges, {report['num_features']} features, {len(report['classes'])} classes"
        + "".join(f"\n  class {number}: {name}" for number, name in enumerate(report["classes"]))
    )
