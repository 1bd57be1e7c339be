"""An append-only file of changes: a record is on disk before its update is acknowledged.

The file is a line of JSON that names the saved state it follows, and records of a length, a
checksum and a payload each (docs/format.md). A record that was not written to its end can only be
the last one.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import warnings
import weakref
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from bignn.errors import FileError, WriteError
from bignn.files import atomic_path
from bignn.runtime import tensors
from bignn.runtime.live.changes import Changes, from_arrays

try:
    import fcntl
except ImportError:  # Windows, where two processes are not kept apart
    fcntl = None  # type: ignore[assignment]

JOURNAL_FORMAT = "bignn-journal"
VERSION = 1
#: Before every payload: its length, and 16 bytes of its BLAKE2b.
_RECORD = struct.Struct("<Q16s")
_MOST_HEADER = 1 << 12


class Absorbed(NamedTuple):
    """The part of a journal whose updates a saved state has: the first bytes of one journal.

    Attributes:
        state: the state that the journal follows.
        num_bytes: how many.
        checksum: their BLAKE2b, 16 bytes in hexadecimal.

    """

    state: str
    num_bytes: int
    checksum: str


class Journal:
    """An open journal that changes are appended to."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Unbuffered: what a failed write leaves in a buffer would be written later.
        try:
            self._file: BinaryIO = path.open("r+b", buffering=0)
        except OSError as error:
            raise WriteError(
                f"cannot write '{path}': {error.strerror or error}; a live graph is opened to be "
                "changed: copy it and its journal to where files can be written"
            ) from None
        weakref.finalize(self, self._file.close)
        if fcntl is not None:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self._file.close()
                raise FileError(
                    f"'{path}' is in use: one process at a time may have a live graph open"
                ) from None

    def append(self, changes: Changes) -> None:
        """Write a record and wait until the disk has it; where that fails, it is as never begun."""
        header = {"format": JOURNAL_FORMAT, "version": VERSION, "num_added": changes.num_added}
        payload = tensors.to_bytes(changes.arrays(), header)
        end = self._file.seek(0, os.SEEK_END)
        try:
            self._write(_RECORD.pack(len(payload), _checksum(payload)) + payload)
        except OSError as error:
            self._cut(end)
            raise WriteError(
                f"cannot write '{self._path}': {error.strerror or error}; the update was not made"
            ) from error

    def read(self, state: str, absorbed: Absorbed | None, num_words: int) -> list[Changes]:
        """Return the changes since a saved state, and drop a last record that is not whole.

        A journal of the state before goes on after the bytes that the saved one has absorbed: the
        process was killed, or the disk full, before a journal could be started afresh. An empty
        file is a journal without updates.
        """
        header = self._header()
        size = self._file.seek(0, os.SEEK_END)
        at = len(header)
        if header and (followed := _state_of(header, self._path)) != state:
            if absorbed is None or absorbed != self._beginning(followed, absorbed.num_bytes):
                raise FileError(
                    f"'{self._path}' has the updates of another live graph, or of another save of "
                    "this one, and was left as it is: put the two files that belong together side "
                    "by side, or move the journal away and make an empty file in its place"
                )
            at = absorbed.num_bytes
            header = b"" if size == at else header
        if not header:
            self._start(state)
            return []
        found = []
        while at < size:
            self._file.seek(at)
            begin = self._file.read(_RECORD.size)
            length, checksum = _RECORD.unpack(begin.ljust(_RECORD.size, b"\0"))
            end = at + _RECORD.size + length
            payload = self._file.read(length) if end <= size else b""
            if end > size or length == 0 or _checksum(payload) != checksum:
                self._drop(at, end, size)
                break
            found.append(_changes_of(payload, num_words, self._path))
            at = end
        return found

    def absorbed(self) -> Absorbed | None:
        """Return what a state that is saved now has of this journal: all; None of an empty file."""
        header = self._header()
        size = self._file.seek(0, os.SEEK_END)
        return self._beginning(_state_of(header, self._path), size) if header else None

    def is_at(self, path: Path) -> bool:
        """Whether a path leads to this journal."""
        return os.path.samestat(os.fstat(self._file.fileno()), path.stat())

    def close(self) -> None:
        """Close the file, and let others open it."""
        self._file.close()

    def _beginning(self, state: str, num_bytes: int) -> Absorbed:
        digest = hashlib.blake2b(digest_size=16)
        self._file.seek(0)
        left = num_bytes
        while left and (some := self._file.read(min(left, 1 << 20))):
            digest.update(some)
            left -= len(some)
        return Absorbed(state, num_bytes - left, digest.hexdigest())

    def _header(self) -> bytes:
        self._file.seek(0)
        return self._file.readline(_MOST_HEADER)

    def _start(self, state: str) -> None:
        self._file.seek(0)
        self._file.truncate(0)
        self._write(header_of(state))

    def _write(self, content: bytes) -> None:
        """Write all of some bytes, and wait until the disk has them."""
        left = memoryview(content)
        while left:
            left = left[self._file.write(left) :]
        os.fsync(self._file.fileno())

    def _drop(self, at: int, end: int, size: int) -> None:
        """Drop what follows byte ``at``, unless a whole record may follow a damaged one."""
        self._file.seek(at)
        rest_is_empty = not self._file.read(1 << 20).strip(b"\0")
        if end < size and not rest_is_empty:
            raise FileError(
                f"'{self._path}' is damaged from byte {at} on, and was left as it is: copy it "
                f"again, or keep a copy and cut it there ('truncate -s {at}'), which opens the "
                "graph with the updates before that byte and loses all others"
            )
        warnings.warn(
            f"'{self._path}' ended in an update that was not written to its end; it is dropped",
            stacklevel=5,
        )
        self._cut(at)

    def _cut(self, end: int) -> None:
        """Take off all that follows byte ``end``."""
        try:
            self._file.truncate(end)
            os.fsync(self._file.fileno())
        except OSError as error:
            line = f"cannot write '{self._path}': {error.strerror or error}"
            raise WriteError(line) from error


def start_journal(path: Path, state: str) -> None:
    """Put an empty journal in the place of a journal, or of nothing."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(header_of(state))


def header_of(state: str) -> bytes:
    """Make a journal's first line."""
    header = {"format": JOURNAL_FORMAT, "version": VERSION, "state": state}
    return json.dumps(header).encode() + b"\n"


def _checksum(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=16).digest()


def _state_of(line: bytes, path: Path) -> Any:
    try:
        header = json.loads(line)
        if header["format"] != JOURNAL_FORMAT or header["version"] != VERSION:
            raise ValueError
        return header["state"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FileError(
            f"'{path}' is no journal of a live graph that this bignn reads: copy it again, or move "
            "it away and make an empty file in its place, to go on from the last save"
        ) from None


def _changes_of(payload: bytes, num_words: int, path: Path) -> Changes:
    arrays, header = tensors.from_bytes(payload)
    num_added = header.get("num_added")
    if header.get("format") != JOURNAL_FORMAT or header.get("version") != VERSION:
        raise FileError(f"'{path}' has a record that this bignn does not read")
    if type(num_added) is not int or num_added < 0:
        raise FileError(f"'{path}' has a record without a number of added nodes")
    return from_arrays(arrays, num_added, num_words)
