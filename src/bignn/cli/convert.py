"""The command ``bignn convert``."""

from __future__ import annotations

import argparse
from typing import Any

import bignn
from bignn.cli.command import Report, command
from bignn.errors import InputError, counted, input_error
from bignn.graph.graph import SPLITS

_TABLES = ("edges", "features", "labels")
#: Options of tables that a graph from a .npz file has no use for.
_OF_TABLES = (
    *("edges", "features", "undirected", "feature_columns", "ignore_columns", "categorical"),
    *("missing", "make_features", "source_column", "target_column", "weight_column"),
)


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
    add("--edges", metavar="FILE", help="table with a row per edge; source and target are the "
        "columns of these names (or src, dst; from, to), or else the first two")  # fmt: skip
    add("--features", metavar="FILE", help="table with a row per node; columns of numbers, and of "
        "lists in Parquet, are features")  # fmt: skip
    add("--labels", metavar="FILE", help="table with a label per node, in the order of the "
        "features or by --id; an empty cell means unknown")  # fmt: skip
    add("--graph", metavar="FILE", help="a .npz file to label (--labels) or split (--split), "
        "instead of tables")  # fmt: skip
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
    add("--seed", type=int, default=0, help="seed of the split and of random features (default: 0)")
    _add_columns(parser.add_argument_group("columns").add_argument)
    _add_rules(parser.add_argument_group("features").add_argument)


def _add_columns(add: Any) -> None:
    add(
        "--id",
        metavar="COLUMN",
        help="column that names the nodes, in features and labels; in labels alone, or with a "
        "--graph without names, it holds their numbers from 0",
    )
    add("--label-id", metavar="COLUMN", help="the same in labels, where it has another name there")
    add("--label-column", metavar="COLUMN", help="column of the label, in labels or, without such "
        "a table, in features")  # fmt: skip
    add("--feature-columns", metavar="A,B", help="columns that are features (default: all others)")
    add("--ignore-columns", metavar="A,B", help="columns of features to leave out")
    add("--source-column", metavar="COLUMN", help="column of edges with the sources")
    add("--target-column", metavar="COLUMN", help="column of edges with the targets")
    add("--weight-column", metavar="COLUMN", help="column of edges with their weights (default: "
        "no weights)")  # fmt: skip
    add(
        "--no-header",
        action="store_true",
        help="text tables have no row of column names; columns are called 0, 1, ...",
    )
    add("--no-header-in", metavar="TABLES", help="the same of some tables: edges, features or "
        "labels, separated by commas")  # fmt: skip


def _add_rules(add: Any) -> None:
    add("--categorical", choices=("refuse", "one-hot", "codes", "ignore"), help="columns of text: "
        "a feature per value, numbers from 1 in sorted order, or left out "
        "(default: refuse)")  # fmt: skip
    add("--missing", choices=("refuse", "zero", "mean", "median", "flag"), help="what stands for "
        "an empty cell (or NA, NaN, null among numbers): 0, the column's mean or median, or 0 and "
        "a further feature that is 1 there (default: refuse)")  # fmt: skip
    add("--make-features", metavar="KIND", help="features of nodes that have none: degree "
        "(bits: at least 1, 2, 4, ... edges), constant, random or random:COLUMNS")  # fmt: skip


def _convert(options: argparse.Namespace) -> Report:
    from bignn.graph.readers.convert import convert

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
    if options.edges is None:
        raise InputError(
            "'edges' is missing; give --edges and --features (or --graph, to label or split a .npz)"
        )
    graph, notes = convert(
        options.edges,
        options.features,
        options.labels,
        columns=_columns(options),
        categorical=options.categorical or "refuse",
        missing=options.missing or "refuse",
        make_features=options.make_features,
        undirected=options.undirected,
        split=split,
        seed=options.seed,
        no_header_in=_no_header_in(options),
    )
    return _saved(graph, options.out, notes)


def _columns(options: argparse.Namespace) -> Any:
    from bignn.graph.readers.convert import TableColumns

    def listed(name: str) -> list[str] | None:
        given = getattr(options, name)
        return None if given is None else [part.strip() for part in given.split(",")]

    return TableColumns(
        id=options.id,
        label_id=options.label_id,
        label=options.label_column,
        features=listed("feature_columns"),
        ignored=listed("ignore_columns") or (),
        source=options.source_column,
        target=options.target_column,
        weight=options.weight_column,
    )


def _no_header_in(options: argparse.Namespace) -> tuple[str, ...]:
    if options.no_header_in is None:
        return _TABLES if options.no_header else ()
    tables = tuple(part.strip() for part in options.no_header_in.split(","))
    if not set(tables) <= set(_TABLES):
        raise input_error(
            "no_header_in", f"some of {', '.join(_TABLES)}", repr(options.no_header_in)
        )
    return tables


def _changed(options: argparse.Namespace, split: list[float] | None) -> Report:
    """Label or split a graph from a .npz file, or both."""
    from bignn.graph.readers.convert import with_labels, with_split

    given = [name for name in _OF_TABLES if getattr(options, name)]
    if surplus := [f"--{name.replace('_', '-')}" for name in given]:
        raise InputError(f"--graph has its tables already; leave out {', '.join(surplus)}")
    if split is None and options.labels is None:
        raise InputError("--graph needs --labels FILE, or --split with percentages: 60,20,20")
    graph = bignn.load(options.graph)
    notes: list[str] = []
    if options.labels is not None:
        columns, no_header_in = _columns(options), _no_header_in(options)
        graph, notes = with_labels(
            graph, options.labels, columns=columns, no_header_in=no_header_in
        )
    else:
        of_labels = ("id", "label_id", "label_column")
        if surplus := [name for name in of_labels if getattr(options, name) is not None]:
            flag = surplus[0].replace("_", "-")
            raise InputError(f"--{flag} with --graph is for --labels; leave it out")
    if split is not None:
        graph = with_split(graph, split, options.seed)
    return _saved(graph, options.out, notes)


def _saved(graph: bignn.Graph, out: str, notes: list[str]) -> Report:
    bignn.save(graph, out)
    sizes = {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
    }
    parts = [getattr(graph, name) for name in SPLITS]
    split = [0 if ids is None else len(ids) for ids in parts]
    classes = graph.class_names
    if classes is None:
        classes = [str(number) for number in range(graph.num_classes)]
    report = {
        "out": out,
        **sizes,
        "classes": list(classes),
        "split": split if any(split) else None,
        "has_node_names": graph.node_names is not None,
        "notes": notes,
    }
    return report, _describe_convert


def _describe_convert(report: dict[str, Any]) -> str:
    sizes = [
        counted(report["num_nodes"], "node") + (" with names" if report["has_node_names"] else ""),
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
        + "".join(f"\n  note: {note}" for note in report["notes"])
    )
