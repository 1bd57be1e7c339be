"""Checks of paths and files that users name, and writing files so that nobody sees half of one.

May import ``errors``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bignn.errors import FileError, WriteError, input_error

try:
    import fcntl
except ImportError:  # Windows, where nobody can tell whether a writer is gone
    fcntl = None  # type: ignore[assignment]

#: Error numbers of a disk that takes no more bytes.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: The longest name of a file or folder on Linux file systems, in bytes.
_MAX_NAME_BYTES = 255
#: The longest path that Linux takes, in bytes.
_MAX_PATH_BYTES = 4095
#: Bytes that a temporary folder's name has beyond the name of its target: two dots, mkdtemp's
#: eight characters, and ".tmp".
_TEMPORARY_BYTES = 14

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def checked_path(path: object, argument: str = "path", expected: str = "a path") -> Path:
    """Return ``path`` as a ``Path``; refuse what no file can be called, in one line.

    Args:
        path: what a user passed: a string or a path object is right.
        argument: the name of the argument, for the message.
        expected: a description of what the argument takes, for the message.

    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        shown = repr(path)
        raise input_error(argument, expected, shown if len(shown) < 40 else type(path).__name__)
    try:
        encoded = os.fsencode(text)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        raise input_error(argument, f"{expected} that a file system can store", ascii(text)[:80])
    longest = max(map(len, encoded.split(b"/")))
    if longest > _MAX_NAME_BYTES or len(encoded) > _MAX_PATH_BYTES:
        raise input_error(
            argument,
            f"{expected} with names of at most {_MAX_NAME_BYTES} bytes, {_MAX_PATH_BYTES} in all",
            f"'{text[:20]}...' with a name of {longest}, {len(encoded)} in all",
        )
    return Path(text)


def check_regular_file(path: str | os.PathLike[str], what: str, fix: str = "") -> Path:
    """Return ``path`` if it is a regular file; refuse everything else before it is opened.

    Reading a pipe waits for a writer that may never come, and a device such as ``/dev/zero`` has no
    end, so whoever reads a file that a user named calls this first.

    Args:
        path: the file.
        what: a description of the file to give, for the message, as "a .npz file".
        fix: advice for a file that does not exist, for the message.

    """
    file = checked_path(path)
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(f"'{file}' does not exist" + (f"; {fix}" if fix else "")) from None
    except OSError as error:
        raise FileError(f"cannot read '{file}': {error.strerror or error}") from None
    if not stat.S_ISREG(mode):
        raise FileError(f"'{file}' is {_kind_of(mode)}; give {what}")
    return file


def files_of_folder(folder: Path, endings: Sequence[str]) -> list[Path]:
    """Return a folder's files of these endings in the natural order of their names.

    Numbers in names count as numbers: ``part-2`` comes before ``part-10``. Names whose numbers are
    padded with zeros are in the order of text, too.
    """
    files = sorted((file for file in folder.iterdir() if file.suffix in endings), key=_natural_key)
    if not files:
        raise FileError(f"'{folder}' holds no {', '.join(endings)} file; give one that does")
    return files


def _natural_key(file: Path) -> tuple[list[tuple[int, int]], str]:
    # Digits are neighbours in ASCII, so a number compares with another character as a digit does.
    pieces = re.findall("[0-9]+|[^0-9]", file.name)
    keys = [
        (ord("0"), int(piece)) if piece[0] in "0123456789" else (ord(piece), 0) for piece in pieces
    ]
    return keys, file.name


def _kind_of(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "not a regular file")


def remove_leftovers(path: str | os.PathLike[str]) -> None:
    """Remove the temporary folders that killed writers of ``path`` left behind.

    A writer that still runs holds a lock on its temporary folder; that folder stays.
    """
    target = _followed(checked_path(path))
    # The eight characters of mkdtemp: not those of a writer of "NAME.other".
    ours = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}\.tmp")
    if not target.parent.is_dir():
        return
    for leftover in target.parent.iterdir():
        if ours.fullmatch(leftover.name):
            _remove_unlocked(leftover)


def _remove_unlocked(leftover: Path) -> None:
    if fcntl is None:
        return
    try:
        handle = os.open(leftover, os.O_RDONLY)
    except OSError:  # another process removed it, or it is another user's
        return
    try:
        # Fails for a writer that runs, and on file systems without locks, where nobody can tell.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(leftover)
    finally:
        os.close(handle)


def _remove(leftover: Path) -> None:
    if leftover.is_dir():
        shutil.rmtree(leftover, ignore_errors=True)
    else:  # of a version of bignn that wrote beside its target
        leftover.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before long work; create nothing."""
    target = _checked_target(path)
    folder = next(parent for parent in target.parents if parent.exists())
    if not folder.is_dir():
        raise WriteError(f"cannot write '{target}': '{folder}' is a file; give a folder")
    # Permissions are not enough: root may write to a folder that takes no files. So one is made.
    with _temporary_file(target, folder):
        pass


def prepare(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, and create its folder."""
    check_writable(path)
    _make_folder(_checked_target(path))


def _checked_target(path: str | os.PathLike[str]) -> Path:
    """Return the path to write: where ``path`` leads, if it is a link; refuse pipes and such."""
    target = _followed(checked_path(path))
    length = len(os.fsencode(target.name))
    if length > _MAX_NAME_BYTES - _TEMPORARY_BYTES:
        most = _MAX_NAME_BYTES - _TEMPORARY_BYTES
        raise WriteError(
            f"cannot write '{target.name[:20]}...': its name has {length} bytes, {most} at most"
        )
    return target


def _followed(path: Path) -> Path:
    """Return where a link leads; refuse an existing thing that is no regular file.

    A new file in the place of a link, a pipe or a device would destroy it.
    """
    try:
        mode = path.stat().st_mode
    except OSError:  # nothing is there, or nothing can be; then making a file fails and says why
        mode = stat.S_IFREG
    if not stat.S_ISREG(mode):
        raise WriteError(f"cannot write '{path}': it is {_kind_of(mode)}; give a file name")
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise WriteError(f"cannot write '{path}': its links lead nowhere; give a file name")
    return target


def _make_folder(target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"cannot write '{target}': {error.strerror or error}") from error


@contextmanager
def _temporary_file(target: Path, folder: Path) -> Iterator[Path]:
    """Create an empty file in a locked folder of its own, and remove both in the end.

    The lock goes with the process, so that :func:`remove_leftovers` can tell who is gone. It is on
    a folder, since libraries that write a file (safetensors) may put another in its place.
    """
    try:
        place, handle = _locked_folder(target, folder)
    except OSError as error:
        why = f"no file can be made in '{folder}' ({error.strerror or error})"
        raise WriteError(f"cannot write '{target}': {why}") from error
    try:
        temporary = place / target.name
        temporary.touch()
        yield temporary
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _locked_folder(target: Path, folder: Path) -> tuple[Path, int | None]:
    while True:
        place = Path(tempfile.mkdtemp(dir=folder, prefix=f".{target.name}.", suffix=".tmp"))
        if fcntl is None:
            return place, None
        # Until it is locked, another process may take it for a leftover and remove it.
        with suppress(FileNotFoundError):
            handle = os.open(place, os.O_RDONLY)
            with suppress(OSError):  # a file system without locks
                fcntl.flock(handle, fcntl.LOCK_SH)
            if place.exists():
                return place, handle
            os.close(handle)


def _flush_folder(folder: Path) -> None:
    """Wait until the disk has a folder's names: a new one is lost by a power failure before."""
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # no folders are flushed there
                raise
        finally:
            os.close(handle)


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file's path; on success the file is flushed to disk and named ``path``.

    A process killed at any moment leaves either the old file or the new one. Parent folders are
    created. Where ``path`` is a link, the file that it leads to is written and the link stays. On
    an exception the temporary file is removed and the old file stays as it was.
    """
    target = _checked_target(path)
    _make_folder(target)
    try:
        with _temporary_file(target, target.parent) as temporary:
            yield temporary
            # Libraries may make files private; give this one the permissions of any new file.
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
            _flush_folder(target.parent)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise WriteError(f"cannot write '{target}': {error.strerror}") from error


def content_digest(
    header: str, arrays: Iterable[tuple[str, str, Sequence[int], memoryview]]
) -> str:
    """Return the digest of a file's content: BLAKE2b, 16 bytes, in hexadecimal.

    Args:
        header: the text that describes the file.
        arrays: the name, type, shape and bytes of each array, in the order of names.

    """
    state = hashlib.blake2b(header.encode(), digest_size=16)
    for name, kind, shape, content in arrays:
        state.update(f"{name} {kind} {list(shape)};".encode())
        state.update(content)
    return state.hexdigest()
