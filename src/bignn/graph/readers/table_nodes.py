"""The nodes that tables are of: names and numbers, and what cells that name them stand for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, printable
from bignn.graph.names import Names
from bignn.graph.readers.tables import InputTable

#: Names of columns that name nodes more often than they are features, in lower case.
ID_NAMES = frozenset({"id", "ids", "name", "node", "node_id", "nodeid", "node id", "nodes"})
#: Columns that are looked at to find one that names nodes.
_MOST_COLUMNS = 16


@dataclass(frozen=True)
class TableNodes:
    """The nodes of a graph that is made from tables.

    Attributes:
        count: number of nodes.
        names: their names; None where they are numbered from 0.
        features: the table of features, whose columns may hold names that were meant.

    """

    count: int
    names: Names | None = None
    features: InputTable | None = None

    def numbers(self, table: InputTable, column: str) -> NDArray[np.int64]:
        """Return the numbers of the nodes that a column names; refuse one that is not there."""
        cells = table.texts(column)
        if "" in cells:
            row = cells.index("") + 1
            raise FileError(f"'{table.path}': column '{column}' is empty in row {row}")
        if self.names is None:
            bad = next((cell for cell in cells if not self._is_number(cell)), None)
        else:
            bad = next((cell for cell in cells if cell not in self.names), None)
        if bad is not None:
            raise FileError(f"'{table.path}': {self._why_not(bad, cells)}")
        if self.names is None:
            return np.array([int(cell) for cell in cells], dtype=np.int64)
        return self.names.numbers(cells)

    def _is_number(self, cell: str) -> bool:
        try:
            return 0 <= int(cell) < self.count
        except ValueError:
            return False

    def _why_not(self, bad: str, cells: list[str]) -> str:
        """Describe a node that is not there, and what may have been meant."""
        if self.names is not None:
            return f"node '{printable(bad)}' has no row in the features; add one or drop it"
        line = f"'{printable(bad)}' is not a node number in 0..{self.count - 1}; "
        if bad == str(self.count) and "0" not in cells and all(map(str.isdecimal, cells)):
            return f"{line}these seem to count from 1, nodes are counted from 0"
        if (owner := self._owner(cells)) is not None:
            named = f"if column '{owner}' of the features names the nodes"
            return f"{line}{named}, pass --id {quote(owner)}"
        return f"{line}if nodes have names, pass --id COLUMN"

    def _owner(self, cells: list[str]) -> str | None:
        """Find a column of features that has all these cells, each in one row."""
        if self.features is None:
            return None
        owners = _distinct_columns(self.features)
        wanted = set(cells)
        return next((name for name in owners if wanted <= set(self.features.texts(name))), None)


def names_in(table: InputTable, column: str) -> Names:
    """Return the names of a column that has each node once."""
    cells = table.texts(column)
    seen: set[str] = set()
    for row, cell in enumerate(cells, 1):
        if not cell:
            raise FileError(f"'{table.path}': column '{column}' is empty in row {row}")
        seen.add(cell)
        if len(seen) < row:
            line = f"'{table.path}': node '{printable(cell)}' has two rows by column '{column}'"
            others = [name for name in _distinct_columns(table) if name != column]
            if others:
                line += f"; pass --id {quote(others[0])} if '{others[0]}' names the nodes"
            raise FileError(line)
    return Names.of(cells)


def _distinct_columns(table: InputTable) -> Iterator[str]:
    """Yield the columns whose cells are all different, among the first ones."""
    flat = [
        name for name, some in table.columns.items() if some.ndim == 1 and name not in table.faults
    ]
    for name in flat[:_MOST_COLUMNS]:
        cells = table.texts(name)
        if len(set(cells)) == len(cells):
            yield name
