"""Arrays of a store: .npy files that are written block by block, with a digest of every block."""

from __future__ import annotations

import errno
import hashlib
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, WriteError

#: Bytes of the header of every file, so that arrays begin on a cache line and the header can be
#: written when the number of rows is known.
HEADER_BYTES = 128
#: Bytes that are read or written at a time where blocks have no size of their own.
BLOCK_BYTES = 1 << 26


def block_digest(content: Any) -> str:
    """Return the digest of a block's bytes: the first 16 bytes of SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()[:32]


def npy_header(dtype: np.dtype[Any], shape: Sequence[int]) -> bytes:
    """Return the header of a .npy file (version 1.0, C order), padded to a fixed size."""
    sizes = "".join(f"{size}, " for size in shape)
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': ({sizes.rstrip()}), }}"
    body = text.ljust(HEADER_BYTES - 11) + "\n"
    return b"\x93NUMPY\x01\x00" + (HEADER_BYTES - 10).to_bytes(2, "little") + body.encode("latin-1")


@dataclass
class ArrayPart:
    """An array's description in a manifest.

    Attributes:
        dtype: NumPy's name of the type, as ``"<u8"``.
        row_shape: the shape of one row.
        num_rows: rows written.
        blocks: for each block the number of rows up to its end, and its digest.

    """

    dtype: str
    row_shape: list[int] = field(default_factory=list)
    num_rows: int = 0
    blocks: list[tuple[int, str]] = field(default_factory=list)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return np.dtype(self.dtype).itemsize * math.prod(self.row_shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the file, its header included."""
        return HEADER_BYTES + self.num_rows * self.row_bytes

    def as_json(self) -> dict[str, Any]:
        """Return the description as a manifest has it."""
        shape = [self.num_rows, *self.row_shape]
        return {"dtype": self.dtype, "shape": shape, "blocks": [list(some) for some in self.blocks]}

    @classmethod
    def from_json(cls, path: Path, stored: Any) -> ArrayPart:
        """Read a description from a manifest; refuse what is not one."""
        try:
            num_rows, *row_shape = stored["shape"]
            blocks = [(int(end), str(digest)) for end, digest in stored["blocks"]]
            part = cls(str(stored["dtype"]), [int(s) for s in row_shape], int(num_rows), blocks)
            if np.dtype(part.dtype).hasobject or part.row_bytes <= 0 or part.num_rows < 0:
                raise ValueError
            if [end for end, _ in blocks][-1:] != ([num_rows] if num_rows else []):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise FileError(f"'{path}' is damaged: it describes no array; pack it again") from None
        return part


class ArrayWriter:
    """A .npy file under way: blocks of rows are appended to ``NAME.part`` until it is finished.

    Args:
        path: the file to write in the end.
        part: what is written already, for a run that continues; of no rows for a new one.

    """

    def __init__(self, path: Path, part: ArrayPart) -> None:
        self.path, self.part = path, part
        self._temporary = path.with_name(f"{path.name}.part")
        try:
            self._file = self._temporary.open("r+b" if part.num_rows else "w+b")
            self._file.truncate(part.nbytes)  # what came after the last state that was recorded
            self._file.seek(part.nbytes)
        except OSError as error:
            raise write_error(path, error) from error

    def append(self, rows: NDArray[Any]) -> None:
        """Append a block of rows."""
        assert rows.dtype.str == self.part.dtype, (rows.dtype, self.part.dtype)
        assert list(rows.shape[1:]) == self.part.row_shape
        if not len(rows):
            return
        content = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
        try:
            self._file.write(content)
        except OSError as error:
            raise write_error(self.path, error) from error
        self.part.num_rows += len(rows)
        self.part.blocks.append((self.part.num_rows, block_digest(content)))

    def flush(self) -> None:
        """Make sure that what was appended is on the disk."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise write_error(self.path, error) from error

    def finish(self) -> None:
        """Write the header and give the file its name."""
        shape = [self.part.num_rows, *self.part.row_shape]
        try:
            self._file.seek(0)
            self._file.write(npy_header(np.dtype(self.part.dtype), shape))
        except OSError as error:
            raise write_error(self.path, error) from error
        self.flush()
        self._file.close()
        self._temporary.replace(self.path)

    def close(self) -> None:
        """Close the file as it is; a later run continues it."""
        with suppress(OSError):  # a full disk refuses what was not written yet
            self._file.close()

    def remove(self) -> None:
        """Remove what is not finished."""
        self._temporary.unlink(missing_ok=True)


def write_error(path: Path, error: OSError) -> WriteError:
    """Make the error for a file that cannot be written; advise where the disk is full."""
    full = "; free some space and run the command again: it continues" * (
        error.errno in (errno.ENOSPC, errno.EDQUOT)
    )
    return WriteError(f"cannot write '{path}': {error.strerror or error}{full}")


def map_array(path: Path, part: ArrayPart) -> NDArray[Any]:
    """Map an array from its file, read-only; refuse a file of another size or header."""
    _check_file(path, part)
    if part.num_rows == 0:
        return np.empty((0, *part.row_shape), dtype=part.dtype)
    shape = (part.num_rows, *part.row_shape)
    return np.asarray(np.memmap(path, dtype=part.dtype, mode="r", offset=HEADER_BYTES, shape=shape))


def read_rows(path: Path, part: ArrayPart, begin: int, end: int) -> NDArray[Any]:
    """Read rows into memory of their own, past the mapping."""
    size = math.prod(part.row_shape)
    read = np.fromfile(
        path, part.dtype, (end - begin) * size, offset=HEADER_BYTES + begin * part.row_bytes
    )
    if len(read) != (end - begin) * size:
        raise FileError(f"'{path}' ends before row {end}; pack it again")
    return read.reshape(end - begin, *part.row_shape)


def verify_array(path: Path, part: ArrayPart) -> None:
    """Compare all blocks of a file with their digests."""
    _check_file(path, part)
    begin = 0
    for end, digest in part.blocks:
        if (
            block_digest(read_rows(path, part, begin, end).reshape(-1).view(np.uint8).data)
            != digest
        ):
            raise FileError(f"'{path}' is damaged in rows {begin} to {end - 1}; pack it again")
        begin = end


def _check_file(path: Path, part: ArrayPart) -> None:
    try:
        with path.open("rb") as file:
            head = file.read(HEADER_BYTES)
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise FileError(f"cannot read '{path}': {error.strerror or error}") from None
    if size != part.nbytes:
        raise FileError(
            f"'{path}' has {size:,} bytes, expected {part.nbytes:,}; it is cut off or was changed: "
            "pack it again"
        )
    if head != npy_header(np.dtype(part.dtype), [part.num_rows, *part.row_shape]):
        raise FileError(f"'{path}' has another header than its manifest; pack it again")
