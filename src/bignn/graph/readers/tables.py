"""Makes a graph from tables in CSV, TSV or Parquet: an edge list, features, labels."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, InputError, counted, input_error, missing_extra
from bignn.files import check_regular_file
from bignn.graph.edges import both_directions
from bignn.graph.graph import SPLITS, UNLABELLED, Graph, from_arrays
from bignn.graph.pyg import GraphLike, as_graph
from bignn.graph.split import random_split

#: Names of a first column that hardly is a feature, in lower case.
_ID_NAMES = {"id", "ids", "name", "node", "node_id", "nodeid", "node id", "nodes"}
_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": None, ".edges": None}


@dataclass(frozen=True)
class InputTable:
    """A table of named columns; text cells stay text until numbers are asked for."""

    path: Path
    columns: dict[str, NDArray[Any]]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def numbers(self, name: str) -> NDArray[np.float32]:
        """Return a column as float32; refuse a cell that is no number, by its row."""
        try:
            with np.errstate(over="ignore"):  # numbers beyond float32 become infinite: refused
                values = self.columns[name].astype(np.float32)
            if not np.isfinite(values).all():
                row = int(np.argmin(np.isfinite(values)))
                raise FileError(
                    f"'{self.path}': column '{name}' must hold finite numbers of float32's range, "
                    f"got '{self.columns[name][row]}' in row {row + 1}"
                )
            return values
        except (ValueError, TypeError) as error:
            if isinstance(error, FileError):
                raise
            cells = enumerate(_text(self.columns[name]), start=1)
            row, bad = next(((row, cell) for row, cell in cells if not _is_number(cell)), (0, ""))
            where = f"'{self.path}': column '{name}'"
            if not bad and row:
                line = f"{where} is empty in row {row}; give every cell a number"
            else:
                line = f"{where} is not numeric ('{bad}' in row {row}); if it names the nodes, "
                line += f"pass --id {name}"
            raise FileError(line) from None


def read_table(path: str | os.PathLike[str], *, header: bool = True) -> InputTable:
    """Read .csv, .tsv, .txt (blanks between columns; ``#`` starts a comment line) or .parquet."""
    file = check_regular_file(path, "a table in CSV, TSV or Parquet")
    if file.suffix == ".parquet":
        return _read_parquet(file)
    if file.suffix not in _DELIMITERS:
        endings = ", ".join([*_DELIMITERS, ".parquet"])
        raise FileError(f"'{file}' has an unknown ending; known are {endings}")
    rows = _read_text(file, _DELIMITERS[file.suffix])
    if not any(cell for row in rows for cell in row):
        raise FileError(f"'{file}' is empty; give a table")
    _check_separator(file, rows)
    if header:
        names, rows = rows[0], rows[1:]
        if all(_is_number(cell) for cell in names):
            raise FileError(
                f"'{file}' seems to have no header: its first row is {names[:4]}; pass --no-header"
            )
        if len(set(names)) != len(names):
            raise FileError(f"'{file}' has two columns of the same name")
    else:
        names = [str(index) for index in range(len(rows[0]))]
    for number, row in enumerate(rows):
        if len(row) != len(names):
            held = counted(len(row), "cell")
            raise FileError(f"'{file}': row {number + 1} has {held}, expected {len(names)}")
    cells = np.array(rows, dtype=np.str_).reshape(len(rows), len(names))
    return InputTable(file, {name: cells[:, index] for index, name in enumerate(names)})


def _check_separator(file: Path, rows: list[list[str]]) -> None:
    """Refuse a table of one column whose rows another sign cuts into as many parts each."""
    if any(len(row) != 1 for row in rows):
        return
    for sign, name in ((";", "semicolons"), ("\t", "tabs"), (",", "commas")):
        if len(counts := {row[0].count(sign) for row in rows}) == 1 and counts != {0}:
            expected = {".csv": "commas", ".tsv": "tabs"}.get(file.suffix, "blanks")
            raise FileError(
                f"'{file}' seems to have {name} between its columns; write {expected}, which "
                f"'{file.suffix}' stands for"
            )


def convert(
    edges: str | os.PathLike[str],
    features: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    *,
    id_column: str | None = None,
    undirected: bool = False,
    split: Sequence[float] | None = None,
    seed: int = 0,
    header: bool = True,
) -> tuple[Graph, list[str]]:
    """Build a graph from tables.

    Args:
        edges: table with the columns source, target and, optionally, weight.
        features: table with one row per node and numeric columns.
        labels: table with one label per node; empty cells mean unknown. Without ``id_column`` it
            has a single column, in the order of ``features``.
        id_column: the column of ``features`` and ``labels`` that names a node; the edges use
            these names. Without it, nodes are numbered from 0 in the order of ``features``. If
            only ``labels`` has the column, it holds these numbers.
        undirected: whether to add the reverse of every edge. Edges given more than once, in either
            direction, become one, whose weight is their sum.
        split: percentages of the labelled nodes for training, validation and test, at random.
        seed: seed of the split.
        header: whether text tables begin with a row of column names.

    Returns:
        The graph, and the class names in the order of their ids.

    """
    table = read_table(features, header=header)
    label_table = None if labels is None else read_table(labels, header=header)
    in_labels_alone = (
        label_table is not None
        and id_column in label_table.columns
        and id_column not in table.columns
    )
    ids = None if in_labels_alone else _node_ids(table, id_column)
    feature_names = [name for name in table.columns if name != id_column]
    if table.num_rows == 0 or not feature_names:
        raise FileError(f"'{table.path}' has no rows of features")
    if id_column is None:
        _check_no_ids(table)
    arrays: dict[str, NDArray[Any]] = {
        "x": np.stack([table.numbers(name) for name in feature_names], axis=1)
    }
    arrays |= _edges(read_table(edges, header=header), ids, table.num_rows, undirected)
    classes: list[str] = []
    if label_table is not None:
        arrays["y"], classes = _labels(label_table, ids, id_column, table.num_rows)
    if split is not None:
        if "y" not in arrays:
            raise InputError("'split' needs labels; give --labels")
        arrays |= random_split(arrays["y"], split, seed)
    return from_arrays(arrays, name=f"{edges}, {features}"), classes


def with_labels(
    graph: GraphLike,
    labels: str | os.PathLike[str],
    *,
    id_column: str | None = None,
    header: bool = True,
) -> tuple[Graph, list[str]]:
    """Return a copy of a graph with the labels of a table, and the class names.

    The table is as in :func:`convert`; ``id_column`` is its column of node numbers.
    """
    graph = as_graph(graph)
    table = read_table(labels, header=header)
    y, classes = _labels(table, None, id_column, graph.num_nodes)
    return replace(graph, y=y), classes


def with_split(graph: GraphLike, split: Sequence[float], seed: int = 0) -> Graph:
    """Return a copy of a graph whose labelled nodes are split at random, as in :func:`convert`."""
    graph = as_graph(graph)
    if graph.y is None:
        raise InputError(f"{graph.name}: 'split' needs labels 'y'")
    parts: dict[str, Any] = {**dict.fromkeys(SPLITS), **random_split(graph.y, split, seed)}
    return replace(graph, **parts)


def _read_text(file: Path, delimiter: str | None) -> list[list[str]]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as opened:
            if delimiter is None:
                lines = (line for line in opened if not line.startswith("#"))
                return [cells for line in lines if (cells := line.split())]
            rows = [
                [cell.strip() for cell in row] for row in csv.reader(opened, delimiter=delimiter)
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"'{file}' is not a text table ({error})") from None
    # A blank line is an empty cell in a table of one column, and nothing in a wider one.
    if all(len(row) <= 1 for row in rows):
        return [row or [""] for row in rows]
    return [row for row in rows if row]


def _read_parquet(file: Path) -> InputTable:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        if (line := missing_extra(f"reading '{file}'", error)) is None:
            raise
        raise InputError(line) from error
    try:
        table = parquet.read_table(file)
    except (ArrowException, OSError) as error:
        line = str(error).splitlines()[0]
        raise FileError(f"'{file}' is not a readable Parquet file ({line})") from None
    return InputTable(file, {name: table[name].to_numpy() for name in table.column_names})


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_node_number(cell: str, num_nodes: int) -> bool:
    try:
        return 0 <= int(cell) < num_nodes
    except ValueError:
        return False


def _text(column: NDArray[Any]) -> list[str]:
    """Return a column's cells as text, so that ids 7 and "7" are the same node in every format."""
    return ["" if cell is None or cell != cell else str(cell).strip() for cell in column.tolist()]


def _node_ids(table: InputTable, id_column: str | None) -> dict[str, int] | None:
    if id_column is None:
        return None
    if id_column not in table.columns:
        raise input_error(
            "id",
            f"a column of '{table.path}' ({', '.join(list(table.columns)[:6])})",
            repr(id_column),
        )
    names = _text(table.columns[id_column])
    ids = {name: index for index, name in enumerate(names)}
    if len(ids) != len(names):
        twice = next(name for index, name in enumerate(names) if ids[name] != index)
        raise FileError(f"'{table.path}': node '{twice}' has two rows")
    return ids


def _check_no_ids(table: InputTable) -> None:
    """Refuse features whose first column seems to name the nodes."""
    first = next(iter(table.columns))
    cells = _text(table.columns[first])
    is_named = first.lower() in _ID_NAMES and len(set(cells)) == len(cells)
    is_counted = len(cells) > 2 and cells == [str(row) for row in range(len(cells))]
    if len(table.columns) > 1 and (is_named or is_counted):
        raise FileError(
            f"'{table.path}': the first column, '{first}', seems to name the nodes; pass "
            f"--id {first}, or put another column first if it is a feature"
        )


def _resolve(
    table: InputTable, column: NDArray[Any], ids: dict[str, int] | None, num_nodes: int
) -> NDArray[np.int64]:
    names = _text(column)
    if ids is None:
        bad = next((name for name in names if not _is_node_number(name, num_nodes)), None)
        if bad is not None:
            raise FileError(
                f"'{table.path}': '{bad}' is not a node number in 0..{num_nodes - 1}; "
                "if nodes have names, pass --id COLUMN"
            )
        return np.array([int(name) for name in names], dtype=np.int64)
    try:
        return np.array([ids[name] for name in names], dtype=np.int64)
    except KeyError as error:
        raise FileError(
            f"'{table.path}': node {error} has no row in the features; add one or drop it"
        ) from None


def _edges(
    table: InputTable, ids: dict[str, int] | None, num_nodes: int, undirected: bool
) -> dict[str, NDArray[Any]]:
    columns = list(table.columns.values())
    if table.num_rows and len(columns) not in (2, 3):
        raise FileError(
            f"'{table.path}' has {counted(len(columns), 'column')}, "
            "expected source, target[, weight]"
        )
    if not table.num_rows:
        return {"edge_index": np.zeros((2, 0), dtype=np.int64)}
    source = _resolve(table, columns[0], ids, num_nodes)
    target = _resolve(table, columns[1], ids, num_nodes)
    weight = table.numbers(list(table.columns)[2]) if len(columns) == 3 else None
    pairs = np.stack([source, target])
    if undirected:
        pairs, weight = both_directions(source, target, weight)
    arrays: dict[str, NDArray[Any]] = {"edge_index": pairs}
    if weight is not None:
        arrays["edge_weight"] = weight
    return arrays


def _labels(
    table: InputTable, ids: dict[str, int] | None, id_column: str | None, num_nodes: int
) -> tuple[NDArray[np.int64], list[str]]:
    column_names = list(table.columns)
    if id_column is not None and id_column not in table.columns:
        raise FileError(f"'{table.path}' has no column '{id_column}' to name its nodes")
    if id_column is None and len(column_names) == 2:
        first = column_names[0]
        raise FileError(
            f"'{table.path}' has two columns; pass --id {first} if '{first}' names the nodes, or "
            "give a table of labels alone, in the order of the features"
        )
    if len(column_names) != (1 if id_column is None else 2):
        raise FileError(
            f"'{table.path}' has {counted(len(column_names), 'column')}, expected one label per "
            "node" + ("" if id_column is None else f" beside '{id_column}'")
        )
    (label_column,) = (name for name in column_names if name != id_column)
    names = _text(table.columns[label_column])
    if id_column is not None:
        nodes = _resolve(table, table.columns[id_column], ids, num_nodes)
        if np.unique(nodes).size != nodes.size:
            raise FileError(f"'{table.path}' labels a node twice")
    else:
        if table.num_rows != num_nodes:
            raise FileError(
                f"'{table.path}' has {counted(table.num_rows, 'label')} for "
                f"{counted(num_nodes, 'node')}; "
                "pass --id COLUMN if only some nodes are labelled"
            )
        nodes = np.arange(num_nodes)
    known = sorted({name for name in names if name}, key=_natural)
    number = {name: index for index, name in enumerate(known)} | {"": UNLABELLED}
    y = np.full(num_nodes, UNLABELLED, dtype=np.int64)
    y[nodes] = [number[name] for name in names]
    return y, known


def _natural(name: str) -> tuple[int, float, str]:
    """Return a sort key: numbers in numeric order, before words in alphabetical order."""
    return (0, float(name), name) if _is_number(name) else (1, 0.0, name)
