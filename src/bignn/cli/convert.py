"""``bignn convert``."""

from __future__ import annotations

import argparse
from typing import Any

import bignn
from bignn.cli.command import Report, command
from bignn.errors import wrong


def add_convert(commands: Any) -> None:
    """Adds ``bignn convert``."""
    parser = command(
        commands, "convert", _convert, "Make a graph .npz from tables in CSV, TSV or Parquet."
    )
    add = parser.add_argument
    add("out", help="the .npz file to write")
    add("--edges", required=True, metavar="FILE", help="source, target[, weight]")
    add("--features", required=True, metavar="FILE", help="a row per node, numeric columns")
    add("--labels", metavar="FILE", help="a label per node, last column; empty means unknown")
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
    bignn.save(graph, options.out)
    sizes = {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
    }
    return {"out": options.out, **sizes, "classes": classes}, _describe_convert


def _describe_convert(report: dict[str, Any]) -> str:
    return (
        f"wrote {report['out']}: {report['num_nodes']} nodes, {report['num_edges']} directed "
        f"edges, {report['num_features']} features, {len(report['classes'])} classes"
        + "".join(f"\n  class {number}: {name}" for number, name in enumerate(report["classes"]))
    )
