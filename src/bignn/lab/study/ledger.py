"""The ledger of finished runs: lines of JSON in a file that only grows. No torch."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bignn.errors import FileError, InputError, WriteError
from bignn.files import prepare

try:
    import fcntl
except ImportError:  # Windows; reading needs no lock
    fcntl = None  # type: ignore[assignment]

Record = dict[str, Any]


def check_locks() -> None:
    """Refuse a system without file locks before any work is done."""
    if fcntl is None:
        raise InputError(
            "finished runs cannot be written on this system: files are locked by Python's 'fcntl', "
            "which it does not have; use Linux (on Windows, WSL)"
        )


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Yield the descriptor of a file, created if missing, that this process alone has locked.

    It is open for appending and reading. The system drops the lock of a process that is killed.
    """
    check_locks()
    prepare(path)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError as error:
        raise WriteError(f"cannot write '{path}': {error.strerror or error}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:  # as of a file system without locks
            raise WriteError(f"cannot lock '{path}': {error.strerror or error}") from error
        yield handle
    finally:
        os.close(handle)


class Ledger:
    """A file of records. Several processes may append to it, and any of them may be killed.

    A record is one line, written while the file is locked and on the disk before :meth:`append`
    returns. A process that is killed while it writes leaves at most a torn last line: readers skip
    it, and the next record starts on a line of its own.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, record: Record) -> None:
        """Add a record. Where the disk does not take all of it, the file stays as it was."""
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        with locked(self.path) as handle:
            size = os.fstat(handle).st_size
            try:
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    line = b"\n" + line
                _write_all(handle, line)
                os.fsync(handle)
            except OSError as error:
                with suppress(OSError):  # a torn line, which readers skip, is the worst that stays
                    os.ftruncate(handle, size)
                raise WriteError(
                    f"cannot write '{self.path}': {error.strerror or error}"
                ) from error

    def read(self) -> list[Record]:
        """Return all whole records, oldest first; other lines are counted on stderr."""
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
            except (ValueError, RecursionError):  # the latter of brackets within brackets
                record = None
            if isinstance(record, dict):
                records.append(record)
            else:
                broken += 1
        if broken:
            plural = "line is not a record" if broken == 1 else "lines are not records"
            print(f"{self.path}: {broken} {plural}; skipped", file=sys.stderr)
        return records


def _write_all(handle: int, data: bytes) -> None:
    """Write all bytes: one ``os.write`` may write only the first of them."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
