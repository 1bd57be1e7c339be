"""Reads lists of edges block by block: binary, CSV and Parquet, in bounded memory."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, printable
from bignn.files import check_regular_file, checked_path
from bignn.graph.readers.npz import npy_layout
from bignn.graph.readers.tables import open_parquet

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
        first_row: number of the first edge's row, for messages: 1 where there is a header.

    """

    path: Path
    size: int
    read: Callable[[int], Iterator[Pair]]
    first_row: int = 0

    def facts(self) -> list[Any]:
        """Return what tells this file from a changed one: name, size and time of change."""
        status = self.path.stat()
        return [self.path.name, status.st_size, status.st_mtime_ns]


def edge_files(path: str | os.PathLike[str]) -> list[EdgeFile]:
    """Open a file of edges, or all of a folder in the order of their names."""
    given = checked_path(path)
    if not given.is_dir():
        return [_open(given)]
    files = sorted(file for file in given.iterdir() if file.suffix in ENDINGS)
    if not files:
        raise FileError(f"'{given}' holds no {', '.join(ENDINGS)} file; give one that does")
    return [_open(file) for file in files]


def _open(file: Path) -> EdgeFile:
    check_regular_file(file, "a .npy, .parquet or .csv file, or a folder of them")
    size = file.stat().st_size
    if file.suffix == ".npy":
        return EdgeFile(file, size, _npy_reader(file))
    if file.suffix == ".parquet":
        return EdgeFile(file, size, _parquet_reader(file))
    if file.suffix in _TEXT:
        has_header = _has_header(file)
        return EdgeFile(file, size, _text_reader(file, has_header), int(has_header))
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
        opened = open_parquet(file)
        for batch in opened.iter_batches(batch_size=block, columns=names[:2]):
            ends = []
            for name, column in zip(names[:2], batch.columns, strict=True):
                if column.null_count:
                    raise FileError(f"'{file}': column '{name}' has empty cells")
                cells = column.to_numpy(zero_copy_only=False)
                if cells.dtype.kind not in "iu":
                    raise FileError(f"'{file}': column '{name}' holds {cells.dtype}, not node ids")
                ends.append(cells)
            yield ends[0], ends[1]

    return read


def _cells(line: str, file: Path) -> list[str]:
    return [cell.strip() for cell in line.split(_TEXT[file.suffix])]


def _has_header(file: Path) -> bool:
    with file.open(encoding="utf-8-sig", errors="replace") as opened:
        for line in opened:
            if line.strip() and not line.startswith("#"):
                return not all(cell.lstrip("-").isdecimal() for cell in _cells(line, file)[:2])
    return False


def _text_reader(file: Path, has_header: bool) -> Callable[[int], Iterator[Pair]]:
    delimiter = _TEXT[file.suffix]

    def read(block: int) -> Iterator[Pair]:
        row = int(has_header)
        with file.open("rb") as opened:
            if has_header:
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
            cells = _cells(line, file)
            if not line.strip() or line.startswith("#"):
                continue
            if len(cells) < 2 or not all(cell.lstrip("-").isdecimal() for cell in cells[:2]):
                raise FileError(
                    f"'{file}': row {row} must begin with two node ids, got '{printable(line, 40)}'"
                ) from None
        raise FileError(f"'{file}' is not a table of node ids") from None
