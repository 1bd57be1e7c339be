"""Writing files so that nobody ever sees half of one. Imports nothing of ours."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bignn.errors import WriteError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

#: What a disk that takes no more says.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Removes temporary files that a killed writer of ``path`` left behind.

    A writer holds a lock on its temporary file, which goes with its process: a file whose lock
    cannot be taken is still being written, and stays.
    """
    target = Path(path)
    # The eight characters of mkstemp: not those of a writer of "NAME.other".
    ours = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}\.tmp")
    if target.parent.is_dir():
        for leftover in target.parent.iterdir():
            if ours.fullmatch(leftover.name):
                _remove_unless_locked(leftover)


def _remove_unless_locked(file: Path) -> None:
    try:
        handle = os.open(file, os.O_RDWR)
    except OSError:  # gone already, or another user's
        return
    try:
        if _lock(handle, wait=False):
            file.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    """Locks an open file until it is closed; returns whether that worked."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another process holds it, or the file system has no locks
        return False
    return True


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuses a path that cannot be written, before long work; makes nothing."""
    target = Path(path)
    _refuse_folder(target)
    there = next(place for place in target.parents if place.exists())
    if not there.is_dir():
        raise WriteError(f"cannot write '{target}': '{there}' is a file; give a folder")
    # Tried, since permissions do not say all: root may write to a folder that takes no files.
    with _temporary_file(target, there) as temporary:
        # Another process that removes leftovers may be faster.
        temporary.unlink(missing_ok=True)


def prepare(path: str | os.PathLike[str]) -> None:
    """The same, and makes the folder of ``path``."""
    check_writable(path)
    _make_folder(Path(path))


def _refuse_folder(target: Path) -> None:
    if target.is_dir():
        raise WriteError(f"cannot write '{target}': it is a folder; give a file name")


def _make_folder(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot write '{target}': {error.strerror or error}") from error


@contextmanager
def _temporary_file(target: Path, folder: Path) -> Iterator[Path]:
    """Makes an empty file by a name that :func:`remove_leftovers` finds, locked inside the block.

    The caller renames or removes it: the lock alone ends with the block.
    """
    while True:
        try:
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=".tmp")
        except OSError as error:
            why = f"its folder takes no files ({error.strerror or error})"
            raise WriteError(f"cannot write '{target}': {why}") from error
        # Between the two calls another process may have taken the file for a leftover: then it has
        # no name any more once the lock is ours.
        is_locked = _lock(handle, wait=True)
        if os.fstat(handle).st_nlink > 0:
            break
        os.close(handle)
    if not is_locked:  # an open file cannot be renamed on Windows
        os.close(handle)
    try:
        yield Path(name)
    finally:
        if is_locked:
            os.close(handle)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside ``path``; on success it is flushed to disk and takes its name.

    A process killed at any moment leaves either the old file or the new one. Parent folders are
    made. On an exception the temporary file is removed and the old file stays as it was.
    """
    target = Path(path)
    _refuse_folder(target)
    _make_folder(target)
    with _temporary_file(target, target.parent) as temporary:
        try:
            yield temporary
            # mkstemp makes files private; give the result the permissions any new file would have.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise WriteError(f"cannot write '{target}': {error.strerror}") from error
        finally:
            temporary.unlink(missing_ok=True)
