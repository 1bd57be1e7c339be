"""Downloads of published files over https: whole, of the right SHA-256, or not at all."""

from __future__ import annotations

import hashlib
import re
import sys
import zipfile
import zlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from bignn.errors import FileError
from bignn.files import atomic_path, check_regular_file, remove_leftovers

#: The list of digests beside downloaded files, in the format of ``sha256sum``.
SUMS = "SHA256SUMS"

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
    """Open an https address; the only function that touches the network."""
    if not url.startswith("https://"):
        raise URLError("only https is used")
    request = Request(url, headers={"User-Agent": "bignn"})
    return build_opener(_HttpsOnly).open(request, timeout=_TIMEOUT_SECONDS)


@dataclass(frozen=True)
class ExpectedDigest:
    """A SHA-256 that a download must have, in hexadecimal, and where it is written."""

    sha256: str
    origin: str


def download(
    url: str, files: Sequence[str], folder: Path, limit: int, sha256: str | None = None
) -> None:
    """Put ``files`` into ``folder``: the file at ``url``, or its members if it is a .zip.

    The digests of the download and of the files are written to ``SHA256SUMS`` in ``folder``. Where
    no digest is published, the one that an earlier download left there must be met again.

    Args:
        url: https address; without .zip at its end it is the single one of ``files``.
        files: paths relative to ``folder``.
        folder: created if it is not there.
        limit: the largest number of bytes that the download may have.
        sha256: the published digest of what is at ``url``, None where there is none.

    """
    name = url.rpartition("/")[2]
    noted = read_digests(folder / SUMS)
    expected = None
    if sha256 is not None:
        expected = ExpectedDigest(sha256, "published")
    elif name in noted:
        origin = f"of the first download, in '{folder / SUMS}'"
        expected = ExpectedDigest(noted[name], origin)
    digests = {name: fetch(url, folder / name, limit, expected)}
    if url.endswith(".zip"):
        archive = folder / name
        try:
            digests |= unpack(archive, files, folder)
        finally:
            archive.unlink()
    with atomic_path(folder / SUMS) as temporary:
        lines = (f"{digest}  {file}\n" for file, digest in sorted({**noted, **digests}.items()))
        temporary.write_text("".join(lines))


def read_digests(file: Path) -> dict[str, str]:
    """Read a ``SHA256SUMS`` file as digests by file name; empty where there is no such file."""
    if not file.exists():
        return {}
    check_regular_file(file, "a list of SHA-256 digests")
    lines = file.read_text(errors="replace").splitlines()
    found = [re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line) for line in lines]
    if None in found:
        raise FileError(f"'{file}' is not a list of SHA-256 digests; remove it")
    return {match[2]: match[1] for match in found if match is not None}


def fetch(url: str, target: Path, limit: int, expected: ExpectedDigest | None = None) -> str:
    """Write what is at ``url`` to ``target`` if all of it came, and return its SHA-256."""
    try:
        remove_leftovers(target)
        with (
            atomic_path(target) as temporary,
            temporary.open("wb") as file,
            open_url(url) as response,
        ):
            digest = _copy(response, file, target.name, limit)
            if expected is not None and digest != expected.sha256:
                raise FileError(
                    f"its SHA-256 is {digest}, expected {expected.sha256} ({expected.origin}); "
                    "try again, or find out why the publisher's file has changed"
                )
            return digest
    except FileError as error:
        raise FileError(f"cannot download {url}: {error}") from None
    except (HTTPException, OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
        raise FileError(f"cannot download {url}: {reason}") from None


def unpack(archive: Path, files: Sequence[str], folder: Path) -> dict[str, str]:
    """Take ``files`` out of a .zip, wherever in it they are, and return the SHA-256 of each.

    They are written to the paths in ``files``, never to paths of the archive, so no name in the
    archive can lead out of ``folder``. All are renamed at the end, so that none of them stands
    without the others.
    """
    faults = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
    try:
        with zipfile.ZipFile(archive) as opened, ExitStack() as stack:
            return {
                name: _unpack_one(opened, name, stack.enter_context(atomic_path(folder / name)))
                for name in files
            }
    except (FileError, *faults) as error:
        raise FileError(f"'{archive.name}' cannot be unpacked: {error}") from None


def _unpack_one(archive: zipfile.ZipFile, name: str, temporary: Path) -> str:
    found = [info for info in archive.infolist() if f"/{info.filename}".endswith(f"/{name}")]
    if len(found) != 1:
        raise FileError(f"expected one '{name}' in it, found {len(found)}")
    (info,) = found
    if info.file_size > _MAX_UNPACKED:
        raise FileError(f"'{name}' would take {info.file_size:,} bytes")
    state = hashlib.sha256()
    # zipfile stops at the size in its directory and compares checksums at the end.
    with archive.open(info) as member, temporary.open("wb") as file:
        while part := member.read(_CHUNK):
            state.update(part)
            file.write(part)
    return state.hexdigest()


def _copy(response: Any, file: IO[bytes], name: str, limit: int) -> str:
    """Copy a response to a file and return its SHA-256; show progress on a terminal."""
    length = response.headers.get("Content-Length")
    size = None if length is None else int(length)
    if size is not None and size > limit:
        raise FileError(f"it has {size:,} bytes, expected {limit:,} at most")
    shows = sys.stderr.isatty()
    state = hashlib.sha256()
    received = 0
    try:
        while part := response.read(_CHUNK):
            received += len(part)
            if received > limit:
                raise FileError(f"it has more than the {limit:,} bytes expected at most")
            state.update(part)
            file.write(part)
            if shows:
                of = "" if size is None else f" of {size / 1e6:,.0f}"
                print(f"\rbignn: {name} {received / 1e6:,.0f}{of} MB", end="", file=sys.stderr)
    finally:
        if shows:
            print(file=sys.stderr)
    if size is not None and received != size:
        raise FileError(f"it ended after {received:,} of {size:,} bytes; try again")
    if received == 0:
        raise FileError("it is empty")
    return state.hexdigest()
