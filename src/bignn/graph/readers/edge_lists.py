"""Reads lists of edges block by block: binary, CSV and Parquet, in bounded memory."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, printable
from bignn.files import check_regular_file, checked_path, files_of_folder
from bignn.graph.readers.npz import npy_layout
from bignn.graph.readers.tables import open_parquet, parquet_batches

_TEXT = {".csv": ",", ".tsv": "\t", ".txt": None, ".edges": None}
ENDINGS = (".npy", ".parquet", *_TEXT)
#: Bytes of text that are read at a time.
_TEXT_BYTES = 1 << 24

Pair = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class EdgeFile:
    """A file of edges.

    Attributes:
        path: the file.
        size: its bytes, for progress.
        read: makes an iterator of (sources, targets) by blocks of about so many edges; blocks are
            the same in every run.
        row_of: finds the row of an edge by its number, for messages; a file of text has rows that
            are no edges.

    """

    path: Path
    size: int
    read: Callable[[int], Iterator[Pair]]
    row_of: Callable[[int], int] = int

    def facts(self) -> list[Any]:
        """Return what tells this file from a changed one: name, size and time of change."""
        status = self.path.stat()
        return [self.path.name, status.st_size, status.st_mtime_ns]

    def may_be_cut_off(self) -> bool:
        """Whether this is text whose last line has no end, as its last number may have none."""
        if self.path.suffix not in _TEXT or not self.size:
            return False
        with self.path.open("rb") as opened:
            opened.seek(-1, os.SEEK_END)
            return opened.read(1) not in b"\r\n"


def edge_files(path: str | os.PathLike[str]) -> list[EdgeFile]:
    """Open a file of edges, or all of a folder in the natural order of their names."""
    given = checked_path(path)
    files = files_of_folder(given, ENDINGS) if given.is_dir() else [given]
    return [_open(file) for file in files]


def _open(file: Path) -> EdgeFile:
    check_regular_file(file, "a .npy, .parquet or .csv file, or a folder of them")
    size = file.stat().st_size
    if file.suffix == ".npy":
        return EdgeFile(file, size, _npy_reader(file))
    if file.suffix == ".parquet":
        return EdgeFile(file, size, _parquet_reader(file))
    if file.suffix in _TEXT:
        header = _header_rows(file)
        return EdgeFile(
            file, size, _text_reader(file, header), lambda edge: _text_row(file, header, edge)
        )
    raise FileError(f"'{file}' has an unknown ending; known are {', '.join(ENDINGS)}")


def _npy_reader(file: Path) -> Callable[[int], Iterator[Pair]]:
    """Make a reader of an array [edges, 2] or, as PyG's ``edge_index``, [2, edges]."""
    shape, fortran_order, dtype, start = npy_layout(file)
    if dtype.kind not in "iu" or len(shape) != 2 or 2 not in shape:
        raise FileError(f"'{file}' must hold node ids [edges, 2] or [2, edges], got {dtype} "
                        f"{list(shape)}")  # fmt: skip
    held, claimed = file.stat().st_size - start, shape[0] * shape[1] * dtype.itemsize
    if held != claimed:
        row = held // max(1, shape[1] * dtype.itemsize)
        raise FileError(f"'{file}' claims {claimed:,} bytes but holds {held:,}: it is cut off in "
                        f"row {row:,}; write it again")  # fmt: skip
    # Ends are side by side where the array lies as [edges, 2].
    is_interleaved = (shape[1] == 2) != fortran_order if shape[0] != 2 else fortran_order
    count = shape[0] if shape[0] != 2 else shape[1]

    def read(block: int) -> Iterator[Pair]:
        for begin in range(0, count, block):
            size = min(block, count - begin)
            if is_interleaved:
                offset = start + 2 * begin * dtype.itemsize
                pairs = np.fromfile(file, dtype, 2 * size, offset=offset).reshape(-1, 2)
                yield np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
                continue
            first, second = (
                np.fromfile(file, dtype, size, offset=start + (begin + row) * dtype.itemsize)
                for row in (0, count)
            )
            yield first, second

    return read


def _parquet_reader(file: Path) -> Callable[[int], Iterator[Pair]]:
    names = open_parquet(file).schema_arrow.names
    if len(names) < 2:
        raise FileError(f"'{file}' must have two columns, source and target, got {names}")

    def read(block: int) -> Iterator[Pair]:
        first = 0
        for batch in parquet_batches(file, block, names[:2]):
            ends = []
            for name, column in zip(names[:2], batch.columns, strict=True):
                if column.null_count:
                    row = first + column.is_null().index(True).as_py()
                    raise FileError(f"'{file}': column '{name}' is empty in row {row}, expected a "
                                    "node id")  # fmt: skip
                cells = column.to_numpy(zero_copy_only=False)
                if cells.dtype.kind not in "iu":
                    raise FileError(f"'{file}': column '{name}' holds {cells.dtype}, not node ids")
                ends.append(cells)
            first += batch.num_rows
            yield ends[0], ends[1]

    return read


def _cells(line: str, file: Path) -> list[str]:
    return [cell.strip() for cell in line.split(_TEXT[file.suffix])]


def _is_edge(line: str) -> bool:
    """Whether a line of text is one of edges, and not empty or a comment."""
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _header_rows(file: Path) -> int:
    """Return the number of rows up to the names of the columns; 0 if these have no names."""
    with file.open(encoding="utf-8-sig", errors="replace") as opened:
        for row, line in enumerate(opened):
            if _is_edge(line):
                is_named = not all(_is_id(cell) for cell in _cells(line, file)[:2])
                return row + 1 if is_named else 0
    return 0


def _is_id(cell: str) -> bool:
    return cell.lstrip("-").isdecimal()


def _fits(cell: str) -> bool:
    return abs(int(cell)) < 2**63


def _text_row(file: Path, header_rows: int, edge: int) -> int:
    """Return the row of the edge of that number."""
    with file.open(encoding="utf-8-sig", errors="replace") as opened:
        rows = (row for row, line in enumerate(opened) if row >= header_rows and _is_edge(line))
        return next(islice(rows, edge, None))


def _text_reader(file: Path, header_rows: int) -> Callable[[int], Iterator[Pair]]:
    delimiter = _TEXT[file.suffix]

    def read(block: int) -> Iterator[Pair]:
        row = header_rows
        with file.open("rb") as opened:
            for _ in range(header_rows):
                opened.readline()
            size = min(_TEXT_BYTES, 8 * block)
            while chunk := opened.read(size):
                chunk += opened.readline()
                lines = chunk.count(b"\n") + (not chunk.endswith(b"\n"))
                pairs = _parsed(file, chunk, delimiter, row)
                row += lines
                yield np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

    return read


def _parsed(file: Path, chunk: bytes, delimiter: str | None, first_row: int) -> NDArray[np.int64]:
    """Parse lines of two numbers, and further columns that are not read."""
    try:
        return np.loadtxt(
            io.BytesIO(chunk),
            dtype=np.int64,
            delimiter=delimiter,
            usecols=(0, 1),
            ndmin=2,
            encoding="utf-8-sig",
        )
    except (ValueError, IndexError, UnicodeDecodeError):
        for row, line in enumerate(chunk.decode("utf-8", "replace").splitlines(), first_row):
            cells = _cells(line.partition("#")[0], file)
            if not _is_edge(line):
                continue
            is_edge = len(cells) >= 2 and all(map(_is_id, cells[:2]))
            if not is_edge or not all(map(_fits, cells[:2])):
                raise FileError(
                    f"'{file}': row {row} must begin with two node ids, got '{printable(line, 40)}'"
                ) from None
        raise FileError(f"'{file}' is not a table of node ids") from None
