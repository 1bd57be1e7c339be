"""Reads features block by block, from a file or a folder of them, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, counted
from bignn.files import check_regular_file, checked_path, files_of_folder
from bignn.graph.graph import SparseRows
from bignn.graph.readers.npz import npy_layout, read_some
from bignn.graph.readers.tables import cells_of_parquet, open_parquet, parquet_batches

Floats = NDArray[np.float32]
#: Endings of files that hold features.
ENDINGS = (".npy", ".npz", ".parquet")
_SPARSE = ("x_indptr", "x_indices", "x_data", "x_shape", "x")
_SCIPY = ("indptr", "indices", "data", "shape")


@dataclass(frozen=True)
class FeatureShard:
    """One file of features.

    Attributes:
        path: the file.
        num_rows, num_columns: its shape.
        read: makes an iterator of the rows from one row on, in blocks of so many rows.

    """

    path: Path
    num_rows: int
    num_columns: int
    read: Callable[[int, int], Iterator[Floats]]

    def facts(self) -> list[Any]:
        """Return what tells this file from a changed one: name, size and time of change."""
        status = self.path.stat()
        return [self.path.name, status.st_size, status.st_mtime_ns]


@dataclass(frozen=True)
class FeatureBlock:
    """Rows of features: ``x`` are those of a shard from its row ``first`` on."""

    shard: FeatureShard
    first: int
    x: Floats

    def refuse(self, row: int) -> FileError:
        """Make the error for a row of the block that is not finite."""
        return FileError(
            f"'{self.shard.path}': row {self.first + row} holds NaN or an infinite number; clean "
            "or impute it first"
        )


def feature_shards(path: str | os.PathLike[str]) -> list[FeatureShard]:
    """Open a file of features, or all of a folder in the natural order of their names."""
    given = checked_path(path)
    files = files_of_folder(given, ENDINGS) if given.is_dir() else [given]
    shards = [_open(file) for file in files]
    for shard in shards[1:]:
        if shard.num_columns != shards[0].num_columns:
            raise FileError(
                f"'{shard.path}' has {counted(shard.num_columns, 'column')}, '{shards[0].path}' "
                f"has {shards[0].num_columns}; all shards must have the same"
            )
    if not shards[0].num_columns:
        raise FileError(f"'{shards[0].path}' has no columns")
    return shards


def feature_blocks(
    shards: list[FeatureShard], block_rows: int, skip: int = 0
) -> Iterator[FeatureBlock]:
    """Yield all rows by blocks that do not reach over shards; the first ``skip`` rows are not."""
    for shard in shards:
        begin = min(skip, shard.num_rows)
        skip -= begin
        if begin == shard.num_rows:
            continue
        for x in shard.read(begin, block_rows):
            yield FeatureBlock(shard, begin, x)
            begin += len(x)
        if begin != shard.num_rows:
            raise FileError(f"'{shard.path}' ends after {begin} of {shard.num_rows} rows")


def _open(file: Path) -> FeatureShard:
    check_regular_file(file, "a .npy, .npz or .parquet file, or a folder of them")
    if file.suffix == ".npy":
        return _open_npy(file)
    if file.suffix == ".npz":
        return _open_npz(file)
    if file.suffix == ".parquet":
        return _open_parquet(file)
    raise FileError(f"'{file}' has an unknown ending; known are {', '.join(ENDINGS)}")


def _open_npy(file: Path) -> FeatureShard:
    shape, fortran_order, dtype, start = npy_layout(file)
    if dtype.kind not in "fiub" or len(shape) != 2:
        raise FileError(f"'{file}' must hold numbers [nodes, features], got {dtype} {list(shape)}")
    if fortran_order:
        raise FileError(f"'{file}' is in Fortran order; save numpy.ascontiguousarray(x)")
    rows, columns = shape
    row_bytes = columns * dtype.itemsize
    held = file.stat().st_size - start
    if held != rows * row_bytes:
        row = held // max(1, row_bytes)
        raise FileError(
            f"'{file}' claims {rows:,} rows but ends in row {row:,}; it is cut off: write it again"
        )

    def read(begin: int, block_rows: int) -> Iterator[Floats]:
        with file.open("rb", buffering=0) as opened:
            opened.seek(start + begin * row_bytes)
            for first in range(begin, rows, block_rows):
                count = min(block_rows, rows - first)
                block = np.empty((count, columns), dtype=dtype)
                view, done = block.reshape(-1).view(np.uint8).data, 0
                while done < len(view):  # a read call takes at most 2 GiB
                    got = opened.readinto(view[done:])
                    if not got:
                        row = first + done // row_bytes
                        raise FileError(f"'{file}' ends in row {row:,} of {rows:,}")
                    done += got
                yield _as_floats(block)

    return FeatureShard(file, rows, columns, read)


def _as_floats(block: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # beyond float32 is infinite, which is refused
        return np.ascontiguousarray(block, dtype=np.float32)


def _open_npz(file: Path) -> FeatureShard:
    """Open a .npz file: CSR by our names or SciPy's, or dense ``x``; one is in memory at a time."""
    arrays = read_some(file, (*_SPARSE, *_SCIPY), ())
    if "x" in arrays:
        dense = arrays["x"]
        if dense.ndim != 2:
            raise FileError(f"'{file}': 'x' must be [nodes, features]")
        del arrays
        rows, columns = dense.shape
        del dense
    else:
        prefix = "x_" if "x_indptr" in arrays else ""
        if missing := [n for n in ("indptr", "indices", "shape") if prefix + n not in arrays]:
            raise FileError(f"'{file}' holds no CSR matrix: it lacks '{prefix}{missing[0]}'")
        rows, columns = (int(size) for size in arrays[f"{prefix}shape"])
        _check_sparse(file, arrays[f"{prefix}indptr"], arrays[f"{prefix}indices"], rows, columns)

    def read(begin: int, block_rows: int) -> Iterator[Floats]:
        held = read_some(file, (*_SPARSE, *_SCIPY), ())
        for first in range(begin, rows, block_rows):
            last = min(first + block_rows, rows)
            if "x" in held:
                yield _as_floats(held["x"][first:last])
                continue
            indptr = held[f"{prefix}indptr"].astype(np.int64)
            entries = slice(indptr[first], indptr[last])
            values = held.get(f"{prefix}data")
            indices = held[f"{prefix}indices"][entries].astype(np.int64)
            some = np.ones(len(indices)) if values is None else values[entries]
            yield SparseRows(
                indptr[first : last + 1] - indptr[first],
                indices,
                _as_floats(some),
                (last - first, columns),
            ).toarray()

    return FeatureShard(file, int(rows), int(columns), read)


def _check_sparse(
    file: Path, indptr: NDArray[Any], indices: NDArray[Any], rows: int, columns: int
) -> None:
    if len(indptr) != rows + 1 or indptr[0] != 0 or indptr[-1] != len(indices):
        raise FileError(f"'{file}': its offsets do not fit {rows} rows")
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if len(falls):
        raise FileError(f"'{file}': the offsets of row {falls[0]} fall")
    wrong = (indices < 0) | (indices >= columns)
    if wrong.any():
        entry = int(wrong.argmax())
        row = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise FileError(
            f"'{file}': row {row} names column {indices[entry]}, expected 0..{columns - 1}"
        )


def _open_parquet(file: Path) -> FeatureShard:
    rows = open_parquet(file).metadata.num_rows
    first = next(parquet_batches(file, 1), None)
    columns = 0 if first is None else _batch_matrix(file, first, 0).shape[1]

    def read(begin: int, block_rows: int) -> Iterator[Floats]:
        skipped = 0
        for batch in parquet_batches(file, block_rows):
            left = max(0, min(begin - skipped, batch.num_rows))
            skipped += batch.num_rows
            if left < batch.num_rows:
                yield _batch_matrix(file, batch.slice(left), skipped - batch.num_rows + left)

    return FeatureShard(file, rows, columns, read)


def _batch_matrix(file: Path, batch: Any, first: int) -> Floats:
    """Put the columns of a batch side by side; columns of lists are several."""
    parts = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        cells, fault = cells_of_parquet(column)
        if fault or cells.dtype.kind not in "fiub":
            raise FileError(f"'{file}': column '{name}' {fault or 'is not numeric'} (rows from "
                            f"{first} on)")  # fmt: skip
        parts.append(cells.reshape(batch.num_rows, -1))
    return _as_floats(np.concatenate(parts, axis=1))
