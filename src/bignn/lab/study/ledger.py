"""Finished runs as lines of JSON in a file that only grows; what is in it is never run again."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bignn.errors import FileError, InputError
from bignn.files import prepare

try:
    import fcntl
except ImportError:  # Windows; reading needs no lock
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]


def check_locks() -> None:
    """Refuses a system without the locks that keep processes apart, before any work is done."""
    if fcntl is None:
        raise InputError(
            "finished runs cannot be written on this system: files are locked by Python's 'fcntl', "
            "which it does not have; use Linux (on Windows, WSL)"
        )


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """A file, made if it is not there, open to append and to read; one process at a time has it.

    The lock goes with the process: one that is killed leaves none behind.
    """
    check_locks()
    prepare(path)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise FileError(f"cannot write '{path}': {error.strerror or error}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


class Ledger:
    """A file of records. Several processes may append to it, and any of them may be killed.

    A record is one line, written by one call while the file is locked and on the disk before
    :meth:`append` returns. A process killed in the middle leaves at most a torn last line: it is
    skipped by readers, and the next record starts on a line of its own.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, record: Record) -> None:
        """Adds a record."""
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        with locked(self.path) as handle:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.write(handle, line)
            os.fsync(handle)

    def read(self) -> list[Record]:
        """All whole records, oldest first; lines that are none are told of on stderr."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise FileError(f"cannot read '{self.path}': {error.strerror or error}") from error
        records, broken = [], 0
        for line in filter(None, lines):
            try:
                record = json.loads(line)
            except ValueError:
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                broken += 1
        if broken:
            plural = "line is no record and was" if broken == 1 else "lines are no records and were"
            print(f"{self.path}: {broken} {plural} skipped", file=sys.stderr)
        return records
