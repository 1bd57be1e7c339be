"""Fetching published files over https with the standard library, whole or not at all."""

from __future__ import annotations

import shutil
import sys
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from bignn.errors import FileError
from bignn.files import atomic_path, remove_leftovers

_TIMEOUT_SECONDS = 30
_CHUNK = 1 << 20
_MAX_UNPACKED = 1 << 33  # bytes of a single file; the largest published one is below 2 GiB


class _HttpsOnly(HTTPRedirectHandler):
    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> Request | None:
        if not newurl.startswith("https://"):
            raise URLError(f"redirected to '{newurl}', which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def open_url(url: str) -> Any:
    """A response with ``headers`` and ``read``; the only place that touches the network."""
    if not url.startswith("https://"):
        raise URLError("only https is used")
    request = Request(url, headers={"User-Agent": "bignn"})
    return build_opener(_HttpsOnly).open(request, timeout=_TIMEOUT_SECONDS)


def download(url: str, files: Sequence[str], folder: Path, limit: int) -> None:
    """Puts ``files`` into ``folder``: the file at ``url``, or the members of it if it is a .zip.

    Args:
        url: https address; without .zip at its end it is the single one of ``files``.
        files: paths relative to ``folder``.
        folder: made if it is not there.
        limit: bytes that the download may have at most.

    """
    if not url.endswith(".zip"):
        (name,) = files
        fetch(url, folder / name, limit)
        return
    archive = folder / url.rpartition("/")[2]
    fetch(url, archive, limit)
    try:
        unpack(archive, files, folder)
    finally:
        archive.unlink()


def fetch(url: str, target: Path, limit: int) -> None:
    """Writes what is at ``url`` to ``target``, if all of it came."""
    try:
        remove_leftovers(target)
        with (
            atomic_path(target) as temporary,
            temporary.open("wb") as file,
            open_url(url) as response,
        ):
            _copy(response, file, target.name, limit)
    except FileError as error:
        raise FileError(f"cannot download {url}: {error}") from None
    except (HTTPException, OSError, ValueError) as error:
        words = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
        raise FileError(f"cannot download {url}: {words}") from None


def unpack(archive: Path, files: Sequence[str], folder: Path) -> None:
    """Takes ``files`` out of a .zip, wherever in it they are, and nothing else.

    They are written where ``files`` says, never where the archive says, so no name in the archive
    can lead out of ``folder``; and all get their names at the end, so that some of them never
    stand without the others.
    """
    faults = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
    try:
        with zipfile.ZipFile(archive) as opened, ExitStack() as stack:
            for name in files:
                _unpack_one(opened, name, stack.enter_context(atomic_path(folder / name)))
    except (FileError, *faults) as error:
        raise FileError(f"'{archive.name}' cannot be unpacked: {error}") from None


def _unpack_one(archive: zipfile.ZipFile, name: str, temporary: Path) -> None:
    found = [info for info in archive.infolist() if f"/{info.filename}".endswith(f"/{name}")]
    if len(found) != 1:
        raise FileError(f"expected one '{name}' in it, found {len(found)}")
    (info,) = found
    if info.file_size > _MAX_UNPACKED:
        raise FileError(f"'{name}' would take {info.file_size:,} bytes")
    # zipfile stops at the size it was told and compares checksums at the end.
    with archive.open(info) as member, temporary.open("wb") as file:
        shutil.copyfileobj(member, file, _CHUNK)


def _copy(response: Any, file: IO[bytes], name: str, limit: int) -> None:
    told = response.headers.get("Content-Length")
    size = None if told is None else int(told)
    if size is not None and size > limit:
        raise FileError(f"it has {size:,} bytes, expected {limit:,} at most")
    shows = sys.stderr.isatty()
    got = 0
    try:
        while part := response.read(_CHUNK):
            got += len(part)
            if got > limit:
                raise FileError(f"it has more than the {limit:,} bytes expected at most")
            file.write(part)
            if shows:
                of = "" if size is None else f" of {size / 1e6:,.0f}"
                print(f"\rbignn: {name} {got / 1e6:,.0f}{of} MB", end="", file=sys.stderr)
    finally:
        if shows:
            print(file=sys.stderr)
    if size is not None and got != size:
        raise FileError(f"it ended after {got:,} of {size:,} bytes; try again")
    if got == 0:
        raise FileError("it is empty")
