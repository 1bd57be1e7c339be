"""The command ``bignn convert``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import bignn
from bignn.cli.command import Report, command
from bignn.errors import InputError, counted, input_error
from bignn.graph.graph import SPLITS


def add_convert(commands: Any) -> None:
    """Add ``bignn convert``."""
    parser = command(
        commands,
        "convert",
        _convert,
        "Make a .npz graph from tables in CSV, TSV or Parquet, or label or split an existing one.",
    )
    add = parser.add_argument
    add("out", help="the .npz file to write")
    add("--edges", metavar="FILE", help="table with the columns source, target[, weight]")
    add("--features", metavar="FILE", help="table with a row per node and numeric columns")
    add("--labels", metavar="FILE", help="table with a label per node, in the order of the "
        "features or by --id; an empty cell means unknown")  # fmt: skip
    add("--graph", metavar="FILE", help="a .npz file to label (--labels) or split (--split), "
        "instead of tables")  # fmt: skip
    add(
        "--id",
        metavar="COLUMN",
        help="column that names the nodes, in features and labels; in labels alone, or with "
        "--graph, it holds their numbers from 0",
    )
    add(
        "--undirected",
        action="store_true",
        help="add the reverse of every edge; repeated edges become one, their weights add up",
    )
    add(
        "--split",
        metavar="A,B,C",
        help="percentages of a random train,val,test split, such as 60,20,20",
    )
    add("--seed", type=int, default=0, help="seed of the split (default: 0)")
    add(
        "--no-header",
        action="store_true",
        help="text tables have no row of column names; columns are called 0, 1, ...",
    )


def _convert(options: argparse.Namespace) -> Report:
    from bignn.graph.readers.tables import convert

    split = None
    if options.split is not None:
        try:
            split = [float(part) for part in options.split.split(",")]
        except ValueError:
            raise input_error(
                "split", "percentages such as 60,20,20", repr(options.split)
            ) from None
    if not options.out.endswith(".npz"):
        raise input_error("out", "a file name ending in .npz", repr(options.out))
    if options.graph is not None:
        return _changed(options, split)
    for name in ("edges", "features"):
        if getattr(options, name) is None:
            raise InputError(
                f"'{name}' is missing; give --edges and --features (or --graph, to label "
                "or split a .npz)"
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


def _changed(options: argparse.Namespace, split: list[float] | None) -> Report:
    """Label or split a graph from a .npz file, or both."""
    from bignn.graph.readers.tables import with_labels, with_split

    of_tables = ("edges", "features", "undirected")
    if surplus := [f"--{name}" for name in of_tables if getattr(options, name)]:
        raise InputError(f"--graph has its tables already; leave out {', '.join(surplus)}")
    if split is None and options.labels is None:
        raise InputError("--graph needs --labels FILE, or --split with percentages: 60,20,20")
    graph = bignn.load(options.graph)
    classes = [str(number) for number in range(graph.num_classes)]
    if options.labels is not None:
        graph, classes = with_labels(
            graph, options.labels, id_column=options.id, header=not options.no_header
        )
    elif options.id is not None:
        raise InputError("--id with --graph is for --labels; leave it out")
    if split is not None:
        graph = with_split(graph, split, options.seed)
    return _saved(graph, options.out, classes)


def _saved(graph: bignn.Graph, out: str, classes: list[str]) -> Report:
    bignn.save(graph, out)
    sizes = {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
    }
    parts = [getattr(graph, name) for name in SPLITS]
    split = [0 if ids is None else len(ids) for ids in parts]
    if any(_is_fraction(name) for name in classes):
        print(
            f"bignn convert: warning: labels are classes, and numbers such as {classes[0]} became "
            f"{len(classes)} of them; bignn has no regression",
            file=sys.stderr,
        )
    report = {"out": out, **sizes, "classes": classes, "split": split if any(split) else None}
    return report, _describe_convert


def _is_fraction(name: str) -> bool:
    try:
        return not float(name).is_integer()
    except ValueError:
        return False


def _describe_convert(report: dict[str, Any]) -> str:
    sizes = [
        counted(report["num_nodes"], "node"),
        counted(report["num_edges"], "directed edge"),
        counted(report["num_features"], "feature"),
        counted(len(report["classes"]), "class", "classes"),
    ]
    if report["split"] is not None:
        sizes.append("split " + "/".join(map(str, report["split"])))
    return (
        f"wrote {report['out']}: {', '.join(sizes)}"
        + ("" if report["num_edges"] else "\n  the edge table has no rows")
        + "".join(f"\n  class {number}: {name}" for number, name in enumerate(report["classes"]))
    )
