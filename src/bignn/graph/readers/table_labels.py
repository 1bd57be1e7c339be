"""Makes classes of a table's labels."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, counted, printable
from bignn.graph.graph import UNLABELLED
from bignn.graph.names import unless_numbers
from bignn.graph.readers.feature_columns import MISSING_WORDS
from bignn.graph.readers.table_nodes import ID_NAMES, TableNodes
from bignn.graph.readers.tables import InputTable, is_number


class TableLabels(NamedTuple):
    """Classes of nodes.

    Attributes:
        y: the class of each node, -1 where unknown.
        class_names: their names; None where they are the numbers themselves.
        notes: what of the labels may not have been meant.

    """

    y: NDArray[np.int64]
    class_names: Sequence[str] | None
    notes: list[str]


def read_labels(
    table: InputTable, nodes: TableNodes, label_column: str | None, id_column: str | None
) -> TableLabels:
    """Read the labels of a table, by the column that names the nodes or in their order."""
    if id_column is not None and id_column not in table.columns:
        held = ", ".join(f"'{name}'" for name in table.columns)
        raise FileError(
            f"'{table.path}' has no column '{id_column}' to name its nodes (it has {held}); name "
            "it with --label-id COLUMN"
        )
    label_column = _label_column(table, label_column, id_column)
    if id_column is None:
        if table.num_rows != nodes.count:
            raise FileError(
                f"'{table.path}' has {counted(table.num_rows, 'label')} for "
                f"{counted(nodes.count, 'node')}; "
                "pass --id COLUMN if only some nodes are labelled"
            )
        numbers = np.arange(nodes.count)
    else:
        numbers = nodes.numbers(table, id_column)
        _, first, of_row = np.unique(numbers, return_index=True, return_inverse=True)
        if first.size != numbers.size:
            again = int(np.flatnonzero(first[of_row] != np.arange(numbers.size))[0])
            node, row = printable(table.texts(id_column)[again]), int(first[of_row][again])
            raise FileError(
                f"'{table.path}' labels node '{node}' twice, in rows {row + 1} and {again + 1}; "
                "leave one of them"
            )
    return labels_of(table.texts(label_column), numbers, nodes.count)


def labels_of(cells: Sequence[str], nodes: NDArray[np.int64], num_nodes: int) -> TableLabels:
    """Make classes of labels, numbers in numeric order before words in alphabetical order."""
    known = sorted({cell for cell in cells if cell}, key=natural_order)
    number = {name: place for place, name in enumerate(known)} | {"": UNLABELLED}
    y = np.full(num_nodes, UNLABELLED, dtype=np.int64)
    y[nodes] = [number[cell] for cell in cells]
    notes = []
    if odd := [name for name in known if name == "-1" or name.lower() in MISSING_WORDS]:
        notes.append(
            f"'{odd[0]}' is a class of its own; leave a cell empty where the label is not known"
        )
    if any(is_number(name) and not float(name).is_integer() for name in known):
        notes.append(
            f"labels are classes, and numbers such as {known[0]} became {len(known)} of them; "
            "bignn convert has no regression"
        )
    return TableLabels(y, unless_numbers(known) if known else None, notes)


def natural_order(name: str) -> tuple[int, float, str]:
    """Return a sort key: numbers in numeric order, before words in alphabetical order."""
    return (0, float(name), name) if is_number(name) else (1, 0.0, name)


def _label_column(table: InputTable, label_column: str | None, id_column: str | None) -> str:
    """Return the column of labels; refuse a table where it is not certain."""
    if label_column is not None:
        table.check_column("label_column", label_column)
        return label_column
    others = [name for name in table.columns if name != id_column]
    if len(others) == 1:
        return others[0]
    if id_column is None and len(others) == 2:
        raise FileError(f"'{table.path}' has two columns; {_choice(table, others)}")
    beside = "" if id_column is None else f" beside '{id_column}'"
    held = counted(len(table.columns), "column")
    line = f"'{table.path}' has {held}, expected one label per node{beside}"
    if others:
        line += f"; choose it: --label-column {quote(others[-1])}"
    raise FileError(line)


def _choice(table: InputTable, names: list[str]) -> str:
    """Say which of two columns may name the nodes, and which may be the label."""
    cells = {name: table.texts(name) for name in names}
    different = [name for name in names if len(set(cells[name])) == len(cells[name])]
    different = [name for name in different if name.lower() in ID_NAMES] or different
    if len(different) != 1:
        first, second = names
        return (
            f"if '{first}' names the nodes, pass --id {quote(first)}; if '{second}' does, "
            f"--id {quote(second)}"
        )
    (owner,) = different
    (label,) = (name for name in names if name != owner)
    return (
        f"pass --id {quote(owner)} if '{owner}' names the nodes, or --label-column {quote(label)} "
        "if rows are in the order of the features"
    )
