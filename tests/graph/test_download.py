"""Downloads, without a network: what comes whole and right is kept; else one line, no file."""

import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from http.client import RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request

import published
import pytest
from conftest import Arrays

import bignn
from bignn.cli import main
from bignn.errors import FileError
from bignn.graph import download
from bignn.graph.readers import flickr
from bignn.graph.sources import SOURCES


class Response(io.BytesIO):
    """A response of open_url: a body, and headers that may give another length."""

    def __init__(self, body: bytes, length: int | None) -> None:
        super().__init__(body)
        self.headers = {} if length is None else {"Content-Length": str(length)}


Serve = Callable[..., list[str]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Serve:
    """Makes the network answer with a body; returns the list of addresses asked for."""
    monkeypatch.setenv("BIGNN_DATA", str(tmp_path / "data"))
    asked: list[str] = []

    def start(body: bytes | Exception, length: int | None = None) -> list[str]:
        def answer(url: str) -> Response:
            asked.append(url)
            if isinstance(body, Exception):
                raise body
            return Response(body, length)

        monkeypatch.setattr(download, "open_url", answer)
        return asked

    return start


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def zipped(folder: Path, prefix: str = "", **extra: str) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        for name in files_below(folder):
            archive.write(folder / name, prefix + name)
        for name, content in extra.items():
            archive.writestr(name, content)
    return body.getvalue()


def test_an_archive_is_fetched_once_and_read(
    serve: Serve, tmp_path: Path, arrays: Arrays, capsys: pytest.CaptureFixture[str]
) -> None:
    published.write_flickr(tmp_path / "made", arrays)
    body = zipped(
        tmp_path / "made", "flickr/", **{"../../evil.txt": "x", "flickr/old_role.json": "{"}
    )
    asked = serve(body, len(body))
    assert bignn.load("flickr").num_nodes == 60
    folder = tmp_path / "data" / "flickr"
    assert files_below(folder) == sorted([*flickr.FILES, "SHA256SUMS"])
    digests = {name: hashlib.sha256((folder / name).read_bytes()) for name in flickr.FILES}
    digests["flickr.zip"] = hashlib.sha256(body)
    lines = [f"{digest.hexdigest()}  {name}" for name, digest in sorted(digests.items())]
    assert (folder / "SHA256SUMS").read_text().splitlines() == lines  # as sha256sum writes them
    assert not list(tmp_path.rglob("evil.txt"))
    assert bignn.load("flickr").num_nodes == 60
    assert asked == ["https://data.dgl.ai/dataset/flickr.zip"]
    assert capsys.readouterr().err == ""  # progress is for terminals


def test_an_ogb_archive_keeps_its_folders(
    serve: Serve, tmp_path: Path, arrays: Arrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    published.write_products(tmp_path / "made", arrays)
    body = zipped(tmp_path / "made", "products/")
    serve(body)  # a server need not send the length
    (source,) = SOURCES["ogbn-products"]
    with pytest.raises(FileError) as caught:
        bignn.load("ogbn-products")
    digest = hashlib.sha256(body).hexdigest()
    assert f"its SHA-256 is {digest}, expected {source.sha256} (published); " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert files_below(tmp_path / "data") == []
    monkeypatch.setitem(SOURCES, "ogbn-products", (replace(source, sha256=digest),))
    assert bignn.load("ogbn-products").num_edges == arrays["edge_index"].shape[1]
    assert "ogbn-products/split/sales_ranking/test.csv.gz" in files_below(tmp_path / "data")


def test_a_single_file_is_fetched_and_must_come_again_as_it_was(
    serve: Serve, tmp_path: Path, arrays: Arrays
) -> None:
    """The first download's digest is kept where no digest is published."""
    published.write_shchur(tmp_path / "made.npz", arrays)
    first = (tmp_path / "made.npz").read_bytes()
    serve(first)
    assert bignn.load("amazon-photo").num_nodes == 60
    folder, name = tmp_path / "data" / "amazon-photo", "amazon_electronics_photo.npz"
    assert files_below(folder) == ["SHA256SUMS", name]
    (folder / name).unlink()
    published.write_shchur(tmp_path / "made.npz", arrays | {"x": arrays["x"] * 2})
    other = (tmp_path / "made.npz").read_bytes()
    serve(other)
    with pytest.raises(FileError) as caught:
        bignn.load("amazon-photo")
    digests = [hashlib.sha256(body).hexdigest() for body in (other, first)]
    assert (
        f"its SHA-256 is {digests[0]}, expected {digests[1]} (of the first download, in "
        f"'{folder / 'SHA256SUMS'}'); try again, or find out why"
    ) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert files_below(folder) == ["SHA256SUMS"]
    serve(first)
    assert bignn.load("amazon-photo").num_nodes == 60
    (folder / name).unlink()
    (folder / "SHA256SUMS").write_text("not a digest\n")
    with pytest.raises(FileError, match=r"SHA256SUMS' is not a list of SHA-256 digests; remove it"):
        bignn.load("amazon-photo")


def test_published_digests_are_digests() -> None:
    known = {name for name, (source, *_) in SOURCES.items() if source.sha256 is not None}
    assert known == {"ogbn-arxiv", "ogbn-products", "reddit", "musae-github"}
    for name in known:
        digest = SOURCES[name][0].sha256
        assert digest is not None and len(digest) == 64 and bytes.fromhex(digest)


def test_progress_is_shown_on_a_terminal(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    serve(bytes(3_000_000), 3_000_000)
    download.fetch("https://somewhere/file.bin", tmp_path / "file.bin", 1 << 30)
    assert "\rbignn: file.bin 3 of 3 MB\n" in screen.getvalue()


def test_a_failed_download_tells_how_to_get_the_files_by_hand(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases: list[tuple[bytes | Exception, int | None, str]] = [
        (URLError(OSError(-2, "Name or service not known")), None, "Name or service not known"),
        (HTTPError("u", 404, "Not Found", {}, None), None, "Not Found"),  # type: ignore[arg-type]
        (TimeoutError("timed out"), None, "timed out"),
        (RemoteDisconnected("closed\nearly"), None, "closed early"),
        (b"half", 8, "it ended after 4 of 8 bytes"),
        (b"", None, "it is empty"),
        (b"x", 1 << 40, "it has 1,099,511,627,776 bytes, expected 1,073,741,824 at most"),
        (b"not a zip", None, r"'flickr\.zip' cannot be unpacked: File is not a zip file"),
    ]
    for body, length, message in cases:
        serve(body, length)
        with pytest.raises(FileError, match=message) as caught:
            bignn.load("flickr")
        line = str(caught.value)
        assert "\n" not in line
        assert "by hand: get https://data.dgl.ai/dataset/flickr.zip" in line
        assert f"put {', '.join(flickr.FILES)} in '{tmp_path / 'data' / 'flickr'}'" in line
        assert files_below(tmp_path) == []
    assert main(["train", "flickr"]) == 1
    assert capsys.readouterr().err == f"bignn train: error: {line}\n"


def test_more_bytes_than_the_limit_are_refused(serve: Serve, tmp_path: Path) -> None:
    serve(bytes(100))
    with pytest.raises(FileError, match="it has more than the 99 bytes"):
        download.fetch("https://somewhere/file", tmp_path / "file", 99)
    assert files_below(tmp_path) == []


def test_an_archive_that_lacks_a_file_leaves_none(
    serve: Serve, tmp_path: Path, arrays: Arrays
) -> None:
    published.write_flickr(tmp_path / "made", arrays)
    (tmp_path / "made" / "class_map.json").unlink()  # the last one taken out
    serve(zipped(tmp_path / "made"))
    with pytest.raises(FileError, match=r"expected one 'class_map\.json' in it, found 0"):
        bignn.load("flickr")
    assert files_below(tmp_path / "data") == []


def test_a_damaged_archive_leaves_none(serve: Serve, tmp_path: Path, arrays: Arrays) -> None:
    published.write_flickr(tmp_path / "made", arrays)
    body = bytearray(zipped(tmp_path / "made"))
    body[len(body) // 2] ^= 1
    serve(bytes(body))
    with pytest.raises(FileError, match=r"'flickr\.zip' cannot be unpacked: Bad CRC-32"):
        bignn.load("flickr")
    assert files_below(tmp_path / "data") == []


def test_only_https_is_asked() -> None:
    with pytest.raises(URLError, match="only https"):
        download.open_url("http://somewhere/file")
    with pytest.raises(URLError, match="only https"):
        download.open_url("file:///etc/passwd")
    handler: Any = download._HttpsOnly()
    with pytest.raises(URLError, match="not https"):
        handler.redirect_request(Request("https://a/b"), None, 302, "", {}, "http://a/b")
    assert handler.redirect_request(Request("https://a/b"), None, 302, "", {}, "https://c/d")
    assert all(source.url.startswith("https://") for many in SOURCES.values() for source in many)
