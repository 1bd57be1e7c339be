"""Reads tables in CSV, TSV, blank-separated text and Parquet, as columns."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, InputError, counted, input_error, missing_extra
from bignn.files import check_regular_file

_DELIMITERS = {".csv": ",", ".tsv": "\t", ".txt": None, ".edges": None}


@dataclass(frozen=True)
class InputTable:
    """A table of named columns; text cells stay text until numbers are asked for.

    Attributes:
        path: the file.
        columns: the cells of each column [rows]; of a Parquet column of lists a matrix of floats
            [rows, items], with NaN for what is missing.
        faults: why columns cannot be read, which matters only where one is asked for.

    """

    path: Path
    columns: dict[str, NDArray[Any]]
    faults: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def cells(self, name: str) -> NDArray[Any]:
        """Return a column; refuse one that cannot be read."""
        if name in self.faults:
            raise FileError(f"'{self.path}': column '{name}' {self.faults[name]}")
        return self.columns[name]

    def texts(self, name: str) -> list[str]:
        """Return a column's cells as text, so that 7 and "7" are the same in every format."""
        column = self.cells(name)
        if column.ndim != 1:
            raise FileError(
                f"'{self.path}': column '{name}' holds lists, which are features; name another one"
            )
        return [_text(cell) for cell in column.tolist()]

    def check_column(self, argument: str, name: str) -> None:
        """Refuse the name of a column that is not there."""
        if name not in self.columns:
            shown = ", ".join(list(self.columns)[:6])
            more = ", ..." if len(self.columns) > 6 else ""
            raise input_error(argument, f"a column of '{self.path}' ({shown}{more})", repr(name))


def read_table(path: str | os.PathLike[str], *, header: bool = True, what: str = "") -> InputTable:
    """Read .csv, .tsv, .txt (blanks between columns; ``#`` starts a comment line) or .parquet.

    ``what`` is the table's flag, for messages; without ``header`` columns are called 0, 1, ...
    """
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
        if all(is_number(cell) for cell in names):
            fix = f"--no-header-in {what}" if what else "--no-header"
            raise FileError(
                f"'{file}' seems to have no header: its first row is {names[:4]}; pass {fix}"
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
    columns = {name: cells[:, index] for index, name in enumerate(names)}
    counted_rows = [str(row) for row in range(len(rows))]
    if len(names) > 1 and "" in columns and columns[""].tolist() == counted_rows:
        del columns[""]  # pandas writes the numbers of rows so
    return InputTable(file, columns)


def is_number(cell: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _text(cell: Any) -> str:
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float) and cell.is_integer():  # whole numbers beside missing ones
        return str(int(cell))
    return str(cell).strip()


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


def open_parquet(file: Path) -> Any:
    """Open a Parquet file, to be read whole or by batches of rows."""
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        if (line := missing_extra(f"reading '{file}'", error)) is None:
            raise
        raise InputError(line) from error
    try:
        return parquet.ParquetFile(file)
    except (ArrowException, OSError) as error:
        raise _unreadable(file, error) from None


def parquet_batches(file: Path, batch_rows: int, columns: list[str] | None = None) -> Iterator[Any]:
    """Yield the rows of a Parquet file by batches; name the row at which one cannot be read."""
    batches = open_parquet(file).iter_batches(batch_size=batch_rows, columns=columns)
    from pyarrow import ArrowException

    row = 0
    while True:
        try:
            batch = next(batches, None)
        except (ArrowException, OSError) as error:
            why = str(error).splitlines()[0]
            raise FileError(
                f"'{file}' is damaged: rows from {row} on cannot be read ({why}); write it again"
            ) from None
        if batch is None:
            return
        row += batch.num_rows
        yield batch


def _unreadable(file: Path, error: Exception) -> FileError:
    return FileError(f"'{file}' is not a readable Parquet file ({str(error).splitlines()[0]})")


def _read_parquet(file: Path) -> InputTable:
    opened = open_parquet(file)
    from pyarrow import ArrowException

    try:
        table = opened.read()
    except (ArrowException, OSError) as error:
        raise _unreadable(file, error) from None
    if len(set(table.column_names)) != len(table.column_names):
        raise FileError(f"'{file}' has two columns of the same name")
    columns, faults = {}, {}
    for name in table.column_names:
        try:
            columns[name] = _cells(table[name])
        except _ColumnFault as fault:
            columns[name] = np.full(table.num_rows, None)
            faults[name] = str(fault)
    return InputTable(file, columns, faults)


def cells_of_parquet(column: Any) -> tuple[NDArray[Any], str]:
    """Return a Parquet column as an array, and why it cannot be read, if it cannot."""
    import pyarrow as pa

    try:
        return _cells(pa.chunked_array([column])), ""
    except _ColumnFault as fault:
        return np.empty(0), str(fault)


class _ColumnFault(Exception):  # noqa: N818
    """What is wrong with a column of a Parquet file."""


def _cells(column: Any) -> NDArray[Any]:
    """Return a Parquet column as an array; dates become text, which is no number."""
    from pyarrow import types

    kind = column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(column)
    if types.is_nested(kind) or types.is_binary(kind):
        raise _ColumnFault(f"holds {kind}, expected numbers, text or lists of numbers")
    if types.is_temporal(kind):
        return np.array([None if cell is None else str(cell) for cell in column.to_pylist()])
    if column.null_count and (types.is_integer(kind) or types.is_boolean(kind)):
        return np.array(column.to_pylist(), dtype=np.object_)  # not floats
    cells: NDArray[Any] = column.to_numpy()
    return cells


def _lists(column: Any) -> NDArray[np.float64]:
    """Return a column of lists of numbers as a matrix, with NaN for missing lists and items."""
    import pyarrow as pa
    from pyarrow import compute

    lengths = compute.list_value_length(column)
    different = [size for size in compute.unique(lengths).to_pylist() if size is not None]
    if len(different) != 1 or different[0] == 0:
        held = ", ".join(map(str, sorted(different)[:4])) or "no"
        raise _ColumnFault(f"must hold lists of one length, got {held} items")
    is_there = compute.is_valid(column).to_numpy()
    try:
        items = compute.list_flatten(column.filter(compute.is_valid(column)))
        numbers = items.cast(pa.float64()).to_numpy()
    except pa.ArrowException:
        raise _ColumnFault(f"holds lists of {column.type.value_type}, not of numbers") from None
    rows = np.full((len(column), different[0]), np.nan)
    rows[is_there] = numbers.reshape(-1, different[0])
    return rows
