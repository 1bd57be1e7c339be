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

#: What a disk that takes no more says.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Removes temporary files that a killed writer of ``path`` left behind."""
    target = Path(path)
    # The eight characters of mkstemp: not those of a writer of "NAME.other".
    ours = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}\.tmp")
    if target.parent.is_dir():
        for leftover in target.parent.iterdir():
            if ours.fullmatch(leftover.name):
                leftover.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuses a path that cannot be written, before long work; makes nothing."""
    target = Path(path)
    _refuse_folder(target)
    there = next(place for place in target.parents if place.exists())
    if not there.is_dir():
        raise WriteError(f"cannot write '{target}': '{there}' is a file; give a folder")
    # Tried, since permissions do not say all: root may write to a folder that takes no files.
    # Another process that clears leftovers away may be faster.
    _temporary_file(target, there).unlink(missing_ok=True)


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


def _temporary_file(target: Path, folder: Path) -> Path:
    """An empty file by a name that :func:`remove_leftovers` knows: a writer may be killed."""
    try:
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=".tmp")
    except OSError as error:
        why = f"its folder takes no files ({error.strerror or error})"
        raise WriteError(f"cannot write '{target}': {why}") from error
    os.close(handle)
    return Path(name)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside ``path``; on success it is flushed to disk and takes its name.

    A process killed at any moment leaves either the old file or the new one. Parent folders are
    made. On an exception the temporary file is removed and the old file stays as it was.
    """
    target = Path(path)
    _refuse_folder(target)
    _make_folder(target)
    temporary = _temporary_file(target, target.parent)
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
