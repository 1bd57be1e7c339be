"""Work on a store that may be killed at any moment: what is done is recorded, and continued.

A job writes arrays block by block. Every few seconds the blocks are flushed to disk and a journal
beside them says how far they go. A later run of the same job (the same inputs and options) cuts the
files to what the journal says and goes on; since blocks do not depend on where a run began, the
result has the same bytes. In the end files get their names, then the manifest is written.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bignn.errors import FileError, WriteError
from bignn.files import atomic_path, remove_leftovers
from bignn.runtime.store.array_file import ArrayPart, ArrayWriter

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: Seconds between records of what is done.
_RECORD_EVERY = 5.0

VERSION = 1


class UnfinishedPart:
    """A part of a store (``"features"``, ``"edges"``, ``"labels"``, ...) that is being written.

    Args:
        folder: the store's folder; made if it is not there.
        kind: the part's name.
        identity: inputs and options, as JSON holds them; only a run of the same is continued.

    """

    def __init__(self, folder: Path, kind: str, identity: Mapping[str, Any]) -> None:
        self.folder, self.kind = folder, kind
        self._identity = json.loads(json.dumps(identity))
        self._is_new = not folder.exists()
        self._lock_path = folder / f".{kind}.lock"
        self._lock = self._locked()
        #: A folder that the job keeps files of its own in; it goes where nothing is continued.
        self.scratch: Path | None = None
        self._journal = folder / f"{kind}.journal.json"
        self._writers: dict[str, ArrayWriter] = {}
        #: What the job itself keeps from run to run, as JSON holds it.
        self.state: dict[str, Any] = {}
        self._parts: dict[str, ArrayPart] = {}
        self._recorded = time.monotonic()
        self._read()

    def _locked(self) -> int:
        """Make the folder, and open and lock the file that says who writes this part."""
        while True:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                raise WriteError(
                    f"cannot write '{self.folder}': {error.strerror or error}"
                ) from None
            if fcntl is None:
                return lock
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                raise WriteError(
                    f"'{self.folder}': another process writes its {self.kind} now"
                ) from None
            with suppress(OSError):  # the process before removes its lock's file when it ends
                if os.path.samestat(os.fstat(lock), self._lock_path.stat()):
                    return lock
            os.close(lock)

    @property
    def manifest(self) -> Path:
        """The file that makes the part count."""
        return self.folder / f"{self.kind}.json"

    @property
    def was_begun(self) -> bool:
        """Whether an earlier run of this job left something to go on from."""
        return bool(self._parts or self.state)

    def _read(self) -> None:
        """Take up what the journal says; one that is not of this job goes, as its files will."""
        for path in (self._journal, self.manifest):
            remove_leftovers(path)
        if not self._journal.exists():
            return
        try:
            stored = json.loads(self._journal.read_text())
            parts = {
                name: ArrayPart.from_json(self._journal, part)
                for name, part in stored["arrays"].items()
            }
            state, is_ours = dict(stored["state"]), stored["identity"] == self._identity
            if not is_ours:
                print(f"{self.folder}: other {self.kind} were begun here; beginning anew",
                      file=sys.stderr)  # fmt: skip
            if is_ours and stored["version"] == VERSION and self._are_there(parts):
                self._parts, self.state = parts, state
                return
        except (OSError, ValueError, KeyError, TypeError, AttributeError, FileError):
            pass  # a journal that cannot be read is one that was never written
        self._journal.unlink(missing_ok=True)

    def _are_there(self, parts: Mapping[str, ArrayPart]) -> bool:
        return all(self._is_there(name, part) for name, part in parts.items())

    def _is_there(self, name: str, part: ArrayPart) -> bool:
        path = self._path(name)
        for file in (path.with_name(f"{path.name}.part"), path):
            if file.exists():
                return file.stat().st_size >= part.nbytes
        return False

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"

    def is_finished(self) -> bool:
        """Whether an earlier run of this very job wrote the manifest."""
        try:
            stored = json.loads(self.manifest.read_text())
            return bool(stored["made_of"] == self._identity and stored["version"] == VERSION)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def note_replaced(self) -> None:
        """Print a line where the store has a part of other inputs or options, which will go."""
        if self.manifest.exists() and not self.is_finished():
            print(f"note: '{self.folder}' has {self.kind} of other inputs or options already, "
                  "which this run replaces", file=sys.stderr, flush=True)  # fmt: skip

    def writer(self, name: str, dtype: str, row_shape: list[int]) -> ArrayWriter:
        """Return the writer of an array, at the end of what was recorded of it."""
        self.manifest.unlink(missing_ok=True)  # from here on its arrays are not what it says
        path, part = self._path(name), self._parts.get(name)
        if part is None or part.dtype != dtype or part.row_shape != row_shape:
            part = ArrayPart(dtype, row_shape)
        unfinished = path.with_name(f"{path.name}.part")
        if part.num_rows and not unfinished.exists() and path.exists():
            path.replace(unfinished)  # killed after the first file got its name
        self._writers[name] = ArrayWriter(path, part)
        return self._writers[name]

    def record(self, *, force: bool = False, before: Callable[[], object] | None = None) -> None:
        """Record what is done, if the last record is some seconds old.

        ``before`` flushes files of the job's own first.
        """
        if not force and time.monotonic() - self._recorded < _RECORD_EVERY:
            return
        if before is not None:
            before()
        for writer in self._writers.values():
            writer.flush()
        arrays = {name: writer.part.as_json() for name, writer in self._writers.items()}
        self._write(self._journal, {"identity": self._identity, "state": self.state}, arrays)
        self._recorded = time.monotonic()

    def finish(self, header: Mapping[str, Any]) -> dict[str, Any]:
        """Name the files, write the manifest, and forget the journal; return the manifest."""
        self.record(force=True)
        for writer in self._writers.values():
            writer.finish()
        arrays = {name: writer.part.as_json() for name, writer in self._writers.items()}
        written = {"format": f"bignn store {self.kind}", **header, "made_of": self._identity}
        self._write(self.manifest, written, arrays)
        self._journal.unlink(missing_ok=True)
        self.close()
        return written

    def _write(self, path: Path, header: Mapping[str, Any], arrays: dict[str, Any]) -> None:
        content = {"version": VERSION, **header, "arrays": arrays}
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(content, indent=None if "state" in header else 1))

    def close(self) -> None:
        """Close all files; what was recorded stays for a later run, and nothing else does."""
        if self._lock < 0:
            return
        is_kept = self._journal.exists()
        for writer in self._writers.values():
            writer.close()
            if not is_kept:
                writer.remove()
        self._writers = {}
        if self.scratch is not None and not is_kept:
            shutil.rmtree(self.scratch, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        if self._is_new:
            with suppress(OSError):  # something is in it
                self.folder.rmdir()
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> UnfinishedPart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
