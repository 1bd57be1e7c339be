"""Makes a graph from tables: an edge list, features, labels."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, InputError, counted, printable
from bignn.graph.edges import both_directions
from bignn.graph.graph import SPLITS, Graph, from_arrays
from bignn.graph.names import Names, names_to_arrays, unless_numbers
from bignn.graph.pyg import GraphLike, as_graph
from bignn.graph.readers.feature_columns import (
    LABEL_NAMES,
    MISSING_WORDS,
    Categorical,
    FeatureRules,
    Missing,
    feature_matrix,
    table_numbers,
)
from bignn.graph.readers.table_labels import TableLabels, labels_of, natural_order, read_labels
from bignn.graph.readers.table_nodes import ID_NAMES, TableNodes, names_in
from bignn.graph.readers.tables import InputTable, is_number, read_table
from bignn.graph.split import random_split
from bignn.graph.structure import check_structure_features, structure_features

TablePath = str | os.PathLike[str]

#: Names that sources and targets of edges go by, in lower case.
_END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))


@dataclass(frozen=True)
class TableColumns:
    """The columns that tables are read by; None for the usual ones.

    Attributes:
        id: names the nodes, in the features and, unless ``label_id`` is given, in the labels.
        label_id: names the nodes in the labels.
        label: the label, in the labels or, without such a table, in the features.
        features: those that are features; None for all others.
        ignored: features that are left out.
        source, target: the ends of edges.
        weight: the weights of edges; None for no weights.

    """

    id: str | None = None
    label_id: str | None = None
    label: str | None = None
    features: Sequence[str] | None = None
    ignored: Sequence[str] = ()
    source: str | None = None
    target: str | None = None
    weight: str | None = None


class ConvertedGraph(NamedTuple):
    """A graph made from tables, and notes on what may not have been meant."""

    graph: Graph
    notes: list[str]


def convert(
    edges: TablePath,
    features: TablePath | None = None,
    labels: TablePath | None = None,
    *,
    columns: TableColumns | None = None,
    categorical: Categorical = "refuse",
    missing: Missing = "refuse",
    make_features: str | None = None,
    undirected: bool = False,
    split: Sequence[float] | None = None,
    seed: int = 0,
    no_header_in: Collection[str] = (),
) -> ConvertedGraph:
    """Build a graph from tables.

    Args:
        edges: table with columns of sources and targets.
        features: table with one row per node. Without it, nodes are those that labels and edges
            name, and ``make_features`` makes their features.
        labels: table with one label per node; empty cells mean unknown. Without a column that names
            the nodes, its rows are in the order of ``features``.
        columns: the columns to read. The edges use the names of the column ``id``; without one,
            nodes are numbered from 0 in the order of ``features``. If only ``labels`` has it, it
            holds these numbers.
        categorical: what becomes of feature columns of text: ``"one-hot"``, a column per value;
            ``"codes"``, numbers from 1 in sorted order; ``"ignore"``.
        missing: what stands for missing features: ``"zero"``, the column's ``"mean"`` or
            ``"median"``; ``"flag"``: 0, and a further column that is 1 where a cell is missing.
            In columns of text it is 0.
        make_features: ``"degree"``, ``"constant"`` or ``"random:COLUMNS"``, for nodes without any.
        undirected: whether to add the reverse of every edge. Edges given more than once, in either
            direction, become one, whose weight is their sum.
        split: percentages of the labelled nodes for training, validation and test, at random.
        seed: seed of the split and of random features.
        no_header_in: the text tables that do not begin with a row of column names: ``"edges"``,
            ``"features"``, ``"labels"``.

    """
    columns = columns or TableColumns()
    if columns.label_id is not None and labels is None:
        raise InputError("'label_id' is for a table of labels; give --labels, or leave it out")
    if make_features is not None:
        check_structure_features(make_features, "make_features")
    elif features is None:
        raise InputError(
            "'features' is missing; give --features FILE, or --make-features degree, constant or "
            "random"
        )
    of_nodes, of_labels = (
        None if path is None else read_table(path, header=what not in no_header_in, what=what)
        for path, what in ((features, "features"), (labels, "labels"))
    )
    of_edges = read_table(edges, header="edges" not in no_header_in, what="edges")
    if of_nodes is not None and of_labels is None and columns.label is not None:
        of_nodes.check_column("label_column", columns.label)  # else labels are read as features
    notes: list[str] = []
    ends = _ends(of_edges, columns, notes)
    nodes = _nodes(of_edges, ends, of_nodes, of_labels, columns)
    rules = FeatureRules(
        categorical,
        missing,
        has_ids=columns.id is not None,
        has_labels=of_labels is not None or columns.label is not None,
    )
    x = None if of_nodes is None else _features(of_nodes, of_labels, columns, rules, notes)
    arrays = _edges(of_edges, ends, columns.weight, nodes, undirected)
    arrays["x"] = _made_features(x, of_nodes, make_features, arrays["edge_index"], nodes, seed)
    found = _labels(of_nodes, of_labels, nodes, columns)
    if found is not None:
        arrays["y"] = found.y
        notes += found.notes
        if found.class_names is not None:
            arrays |= names_to_arrays("class_names", found.class_names)
    if split is not None:
        if found is None:
            raise InputError("'split' needs labels; give --labels, or --label-column")
        arrays |= random_split(found.y, split, seed)
    if nodes.names is not None and unless_numbers(nodes.names) is not None:
        arrays |= names_to_arrays("node_names", nodes.names)
    name = ", ".join(str(path) for path in (edges, features) if path is not None)
    return ConvertedGraph(from_arrays(arrays, name=name), notes)


def with_labels(
    graph: GraphLike,
    labels: TablePath,
    *,
    columns: TableColumns | None = None,
    no_header_in: Collection[str] = (),
) -> ConvertedGraph:
    """Return a copy of a graph with the labels of a table.

    The table is as in :func:`convert`; its column ``id`` holds names where the graph has names, and
    numbers where it has none.
    """
    graph, columns = as_graph(graph), columns or TableColumns()
    table = read_table(labels, header="labels" not in no_header_in, what="labels")
    names = None if graph.node_names is None else Names.of(graph.node_names)
    nodes = TableNodes(graph.num_nodes, names)
    found = read_labels(table, nodes, columns.label, columns.label_id or columns.id)
    labelled = replace(graph, y=found.y, class_names=found.class_names)
    return ConvertedGraph(labelled, found.notes)


def with_split(graph: GraphLike, split: Sequence[float], seed: int = 0) -> Graph:
    """Return a copy of a graph whose labelled nodes are split at random, as in :func:`convert`."""
    graph = as_graph(graph)
    if graph.y is None:
        raise InputError(f"{graph.name}: 'split' needs labels 'y'")
    parts: dict[str, Any] = {**dict.fromkeys(SPLITS), **random_split(graph.y, split, seed)}
    return replace(graph, **parts)


def _ends(table: InputTable, columns: TableColumns, notes: list[str]) -> tuple[str, str]:
    """Return the columns of sources and targets: those asked for, well-known ones, the first."""
    for argument in ("source", "target", "weight"):
        if (name := getattr(columns, argument)) is not None:
            table.check_column(f"{argument}_column", name)
    names = list(table.columns)
    if len(names) < 2:
        raise FileError(
            f"'{table.path}' has {counted(len(names), 'column')}, expected one of sources and one "
            "of targets"
        )
    lower = {name.lower(): name for name in names}
    usual = next((pair for pair in _END_NAMES if set(pair) <= set(lower)), None)
    source, target = names[:2] if usual is None else (lower[end] for end in usual)
    source, target = columns.source or source, columns.target or target
    if source == target:
        raise FileError(
            f"'{table.path}': '{source}' would be source and target; name the other one with "
            f"{'--source-column' if columns.source is None else '--target-column'}"
        )
    unused = [name for name in names if name not in (source, target, columns.weight)]
    if unused:
        is_are = "is" if len(unused) == 1 else "are"
        shown = ", ".join(f"'{name}'" for name in unused[:4])
        note = f"edges go from '{source}' to '{target}'; {shown} {is_are} not used"
        of_numbers = _of_numbers(table, unused)
        if columns.weight is None and of_numbers:
            shown = quote(of_numbers[0]) if len(of_numbers) == 1 else "COLUMN"
            note += f" (for weights: --weight-column {shown})"
        notes.append(note)
    return source, target


def _of_numbers(table: InputTable, names: list[str]) -> list[str]:
    """Name the columns that may hold weights."""
    usable = [name for name in names if table.num_rows > 0 and name not in table.faults]
    return [name for name in usable if table_numbers(table, name) is not None]


def _nodes(
    edges: InputTable,
    ends: tuple[str, str],
    features: InputTable | None,
    labels: InputTable | None,
    columns: TableColumns,
) -> TableNodes:
    """Find the nodes: rows of the features; without them, all that labels and edges name."""
    if features is not None:
        if features.num_rows == 0:
            raise FileError(f"'{features.path}' has no rows of features")
        is_of_labels_alone = (
            labels is not None
            and columns.label_id is None
            and columns.id in labels.columns
            and columns.id not in features.columns
        )
        if columns.id is None or is_of_labels_alone:
            return TableNodes(features.num_rows, None, features)
        features.check_column("id", columns.id)
        return TableNodes(features.num_rows, names_in(features, columns.id), features)
    id_column = columns.label_id or columns.id
    if labels is not None and id_column is None:
        return TableNodes(labels.num_rows)
    found = {name for end in ends for name in edges.texts(end)} - {""}
    if labels is not None and id_column in labels.columns:
        found |= set(names_in(labels, id_column))
    if not found:
        raise FileError(f"'{edges.path}' has no rows, so there are no nodes; give --features")
    return TableNodes(len(found), Names.of(sorted(found, key=natural_order)))


def _features(
    table: InputTable,
    labels: InputTable | None,
    columns: TableColumns,
    rules: FeatureRules,
    notes: list[str],
) -> NDArray[np.float32] | None:
    """Return the features of a table; None where it has no column of them."""
    for argument, some in (("feature", columns.features or ()), ("ignore", columns.ignored)):
        for name in some:
            table.check_column(f"{argument}_columns", name)
    others = {columns.id, *columns.ignored}
    if labels is None:
        others.add(columns.label)
    names = [name for name in columns.features or table.columns if name not in others]
    if columns.features is None:
        if columns.id not in table.columns:
            _check_no_ids(table, names)
        flag = "--ignore-columns" if rules.has_labels else "--label-column"
        notes += [
            f"'{name}' is taken as a feature; if it holds the labels, pass {flag} {quote(name)}"
            for name in names
            if name.lower() in LABEL_NAMES
            and (rules.categorical != "ignore" or table_numbers(table, name) is not None)
        ]
    return feature_matrix(table, names, rules)


def _made_features(
    x: NDArray[np.float32] | None,
    table: InputTable | None,
    kind: str | None,
    edge_index: NDArray[np.int64],
    nodes: TableNodes,
    seed: int,
) -> NDArray[np.float32]:
    """Return the features of a table, or make some where there are none."""
    if x is None and kind is None:
        assert table is not None
        raise FileError(
            f"'{table.path}' has no columns of features; make some: --make-features degree, "
            "constant or random"
        )
    if kind is None or x is not None:
        if kind is not None:
            assert table is not None
            raise InputError(
                f"'make_features' is for nodes without features, and '{table.path}' has some; "
                "leave it out"
            )
        assert x is not None
        return x
    return structure_features(kind, edge_index, nodes.count, seed)


def _check_no_ids(table: InputTable, names: list[str]) -> None:
    """Refuse features whose first column seems to name the nodes."""
    first = next(iter(table.columns))
    if first not in names or len(names) < 2 or table.columns[first].ndim > 1:
        return
    cells = table.texts(first)
    is_named = first.lower() in ID_NAMES and len(set(cells)) == len(cells)
    is_counted = len(cells) > 2 and cells == [str(row) for row in range(len(cells))]
    if is_named or is_counted:
        raise FileError(
            f"'{table.path}': the first column, '{first}', seems to name the nodes; pass "
            f"--id {quote(first)}, or name the features with --feature-columns if it is one"
        )


def _edge_weights(table: InputTable, ends: tuple[str, str], column: str) -> NDArray[np.float32]:
    """Return the weights of edges; refuse texts, lists and missing cells."""
    found = table_numbers(table, column)
    others = _of_numbers(table, [name for name in table.columns if name not in (*ends, column)])
    fix = "leave --weight-column out for edges without weights"
    if others:
        fix = f"name a column of numbers ({', '.join(map(quote, others[:4]))}), or {fix}"
    if found is None:
        cells = table.texts(column)
        is_text = [cell.lower() not in MISSING_WORDS and not is_number(cell) for cell in cells]
        row = is_text.index(True)
        got = f"'{printable(cells[row])}' in row {row + 1}"
        raise FileError(f"'{table.path}': column '{column}' must hold weights, got {got}; {fix}")
    if found.shape[1] != 1:
        raise FileError(f"'{table.path}': column '{column}' holds lists, not weights; {fix}")
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite: refused
        weights = found[:, 0].astype(np.float32)
    if not np.isfinite(weights).all():
        row = int(np.flatnonzero(~np.isfinite(weights))[0])
        cell = printable(table.columns[column][row])
        raise FileError(
            f"'{table.path}': column '{column}' must hold a finite weight for every edge, "
            f"got '{cell}' in row {row + 1}; give it one, or {fix}"
        )
    return weights


def _edges(
    table: InputTable,
    ends: tuple[str, str],
    weight_column: str | None,
    nodes: TableNodes,
    undirected: bool,
) -> dict[str, NDArray[Any]]:
    if not table.num_rows:
        return {"edge_index": np.zeros((2, 0), dtype=np.int64)}
    source, target = (nodes.numbers(table, end) for end in ends)
    weight = None
    if weight_column is not None:
        weight = _edge_weights(table, ends, weight_column)
    pairs = np.stack([source, target])
    if undirected:
        pairs, weight = both_directions(source, target, weight)
    arrays: dict[str, NDArray[Any]] = {"edge_index": pairs}
    if weight is not None:
        arrays["edge_weight"] = weight
    return arrays


def _labels(
    features: InputTable | None, labels: InputTable | None, nodes: TableNodes, columns: TableColumns
) -> TableLabels | None:
    """Read the labels, of their own table or of a column of the features."""
    if labels is not None:
        return read_labels(labels, nodes, columns.label, columns.label_id or columns.id)
    if columns.label is None:
        return None
    if features is None:
        raise InputError("'label_column' needs a table; give --labels or --features")
    return labels_of(features.texts(columns.label), np.arange(nodes.count), nodes.count)
