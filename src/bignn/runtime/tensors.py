"""Packed files: safetensors, written whole or not at all, read with every claim checked.

A file holds named arrays and, under the metadata key ``bignn``, a JSON object with its format and
version (docs/format.md).
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize, safe_open
from safetensors.numpy import save, save_file

from bignn.errors import FileError, WriteError, input_error, printable
from bignn.files import atomic_path, check_regular_file, checked_path, content_digest

Arrays = dict[str, NDArray[Any]]
Opened = TypeVar("Opened")

#: The endings of file names.
MODEL_SUFFIX = ".bignn"
GRAPH_SUFFIX = ".bigraph"
LIVE_SUFFIX = ".biglive"
PART_SUFFIX = ".bigpart"

MODEL_FORMAT = "bignn-model"
GRAPH_FORMAT = "bignn-graph"
HETERO_FORMAT = "bignn-hetero-graph"
LIVE_FORMAT = "bignn-live"
PART_FORMAT = "bignn-part"
KINDS = {
    MODEL_FORMAT: "a packed model",
    GRAPH_FORMAT: "a packed graph",
    HETERO_FORMAT: "a packed heterogeneous graph",
    LIVE_FORMAT: "a live graph",
    PART_FORMAT: "a part of a graph",
}
_SUFFIXES = {
    MODEL_FORMAT: MODEL_SUFFIX,
    GRAPH_FORMAT: GRAPH_SUFFIX,
    HETERO_FORMAT: GRAPH_SUFFIX,
    LIVE_FORMAT: LIVE_SUFFIX,
    PART_FORMAT: PART_SUFFIX,
}
#: What a file of each ending is, and what makes one, for messages.
_FILES = {
    MODEL_SUFFIX: ("a packed model (.bignn)", "'bignn pack'"),
    GRAPH_SUFFIX: ("a packed graph (.bigraph)", "'bignn predict --save-graph'"),
    LIVE_SUFFIX: ("a live graph (.biglive)", "LiveGraph.save"),
    PART_SUFFIX: ("a part of a graph (.bigpart)", "'bignn partition'"),
}

_DTYPES = {
    "U64": "<u8",
    "I64": "<i8",
    "I8": "|i1",
    "I32": "<i4",
    "F32": "<f4",
    "U8": "|u1",
}


#: Arrays up to this many bytes are read and compared whenever a packed graph is opened.
_SMALL_BYTES = 1 << 16


def digest_of(header: str, arrays: Mapping[str, NDArray[Any]], largest: int | None = None) -> str:
    """BLAKE2b of a header and arrays, 16 bytes in hexadecimal.

    Of every array its name, type, shape and bytes count, in the order of names; with ``largest``
    the bytes of larger arrays do not.
    """
    return content_digest(
        header,
        (
            (name, array.dtype.str, array.shape, _bytes(array, largest))
            for name, array in sorted(arrays.items())
        ),
    )


def _bytes(array: NDArray[Any], largest: int | None) -> memoryview:
    counts = largest is None or array.nbytes <= largest
    return np.ascontiguousarray(array if counts else array[:0]).reshape(-1).view(np.uint8).data


def _metadata_of(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise input_error("about", "made of what JSON holds", printable(error)) from None
    return {
        "bignn": text,
        "digest": digest_of(text, arrays),
        "header_digest": digest_of(text, arrays, _SMALL_BYTES),
    }


def to_bytes(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> bytes:
    """Make the content that :func:`write` would give a file."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    return bytes(save(contiguous, metadata=_metadata_of(header, contiguous)))


def from_bytes(content: bytes) -> tuple[Arrays, dict[str, Any]]:
    """Read the arrays and the header that :func:`to_bytes` wrote, compared with their digest."""
    try:
        # Checks that shapes, types and places fit each other and the content.
        deserialize(content)  # type: ignore[no-untyped-call]
        size = int.from_bytes(content[:8], "little")
        places = json.loads(content[8 : 8 + size])
        metadata = places.pop("__metadata__")
        header = json.loads(metadata["bignn"])
        if not isinstance(header, dict):
            raise ValueError("their header is not an object")
        raw = np.frombuffer(content, dtype=np.uint8)
        arrays = {name: _array(raw, place, 8 + size) for name, place in places.items()}
        _check_digests(metadata, header, arrays, verify=True)
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        what = "these bytes are not those of a packed model, or are damaged"
        raise FileError(f"{what} ({printable(error, 300)})") from None
    return arrays, header


def check_suffix(path: str | os.PathLike[str], suffix: str, argument: str = "path") -> None:
    """Refuse a file name that does not end as its kind of file does."""
    if checked_path(path, argument).suffix != suffix:
        raise input_error(argument, f"a file name ending in {suffix}", repr(os.fspath(path)))


def write(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]
) -> None:
    """Write arrays and header; the file that was there stays until the new one is whole."""
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    metadata = _metadata_of(header, contiguous)
    with atomic_path(path) as temporary:
        try:
            save_file(contiguous, temporary, metadata=metadata)
        except SafetensorError as error:  # as of a full disk
            raise WriteError(f"cannot write '{path}': {error}") from error


@dataclass(frozen=True)
class StreamedArray:
    """An array that is made block by block while it is written.

    Attributes:
        dtype: NumPy's name of the type, as ``"<u8"``.
        shape: its shape.
        blocks: the blocks, which have the elements in order.

    """

    dtype: str
    shape: Sequence[int]
    blocks: Iterator[NDArray[Any]]


def write_streamed(
    path: str | os.PathLike[str], arrays: Mapping[str, StreamedArray], header: Mapping[str, Any]
) -> None:
    """Write what :func:`write` would, though no array is ever in memory whole."""
    text = json.dumps(header, allow_nan=False)
    names = {dtype: name for name, dtype in _DTYPES.items()}
    # As safetensors orders them, so that each begins at a multiple of its type's size.
    order = sorted(arrays, key=lambda name: (-np.dtype(arrays[name].dtype).itemsize, name))
    places: dict[str, Any] = {}
    begin = 0
    for name in order:
        array = arrays[name]
        end = begin + math.prod(array.shape) * np.dtype(array.dtype).itemsize
        places[name] = {"dtype": names[array.dtype], "shape": list(array.shape)}
        places[name]["data_offsets"] = [begin, end]
        begin = end

    def head(digest: str, header_digest: str) -> bytes:
        metadata = {"bignn": text, "digest": digest, "header_digest": header_digest}
        made = json.dumps({"__metadata__": metadata, **places}).encode()
        made += b" " * (-len(made) % 8)
        return len(made).to_bytes(8, "little") + made

    with atomic_path(path) as temporary:
        start = len(head("0" * 32, "0" * 32))
        with temporary.open("wb") as file:
            file.seek(start)
            for name in order:
                for block in arrays[name].blocks:
                    assert block.dtype.str == arrays[name].dtype, (name, block.dtype)
                    file.write(_bytes(block, None))
                assert file.tell() == start + places[name]["data_offsets"][1], name
        # Digests come before the arrays in the file, and are known after them.
        raw = np.memmap(temporary, dtype=np.uint8, mode="r")
        written = {name: _array(raw, places[name], start) for name in order}
        known = head(digest_of(text, written), digest_of(text, written, _SMALL_BYTES))
        assert len(known) == start
        with temporary.open("r+b") as begun:
            begun.write(known)


def read(
    path: str | os.PathLike[str], *, verify: bool = False, formats: Iterable[str] = (MODEL_FORMAT,)
) -> tuple[Arrays, dict[str, Any]]:
    """Read a file's header, and map its arrays into memory, to be read when used.

    A model is compared with its digest. A graph's header and small arrays are compared with theirs,
    and with ``verify`` all of it. Messages call what was expected by its ``formats``.
    """
    expected = list(dict.fromkeys(_FILES[_SUFFIXES[name]] for name in formats))
    what, maker = _FILES.get(checked_path(path).suffix, expected[0])
    file = check_regular_file(path, what, f"make one with {maker}")
    try:
        if file.stat().st_size < 8:
            raise ValueError("it is empty or cut short")
        # The library checks that shapes, types and places fit each other and the file.
        with safe_open(file, framework="np") as opened:
            metadata = opened.metadata() or {}
            header = json.loads(metadata["bignn"])
            if isinstance(header, dict) and header.get("format") == "bignn-checkpoint":
                raise ValueError("it is a checkpoint; make a packed model of it with 'bignn pack'")
            names = list(opened.keys())
        if not isinstance(header, dict):
            raise ValueError("its header is not an object")
        places, start = _places(file)
        raw = np.memmap(file, dtype=np.uint8, mode="r")
        arrays = {name: _array(raw, places[name], start) for name in names}
        _check_digests(metadata, header, arrays, verify=verify)
        return arrays, header
    except (SafetensorError, KeyError, TypeError, ValueError, OSError, RecursionError) as error:
        if zipfile.is_zipfile(file):
            kinds = " or ".join(kind for kind, _ in expected)
            found = f"a .npz or another archive, expected {kinds}"
            raise FileError(f"'{file}' is {found}; bignn.load reads a graph's .npz") from None
        raise FileError(
            f"'{file}' is not a packed bignn file, or is damaged ({fault_of(file, error)}); "
            "copy it again, or make it anew"
        ) from None


def open_as(
    path: str | os.PathLike[str],
    known: Mapping[str, Callable[[Arrays, dict[str, Any]], Opened]],
    *,
    verify: bool = False,
) -> Opened:
    """Open a file by the function of its format; a format that is not known is refused."""
    arrays, header = read(path, verify=verify, formats=known)
    given = str(header.get("format"))
    if given not in known:
        if given in KINDS:
            expected = " or ".join(KINDS[name] for name in known)
            advice = "give another file"
            if given == HETERO_FORMAT and GRAPH_FORMAT in known:
                advice += ", or open it with bignn.open, for a heterogeneous model"
            raise FileError(
                f"'{os.fspath(path)}' holds {KINDS[given]}, expected {expected}; {advice}"
            )
        raise FileError(
            f"'{os.fspath(path)}' is neither {' nor '.join(KINDS.values())} "
            f"(its format is {given[:40]!r})"
        )
    try:
        return known[given](arrays, header)
    except FileError as error:
        raise FileError(f"'{os.fspath(path)}': {printable(error, 300)}") from None


def _check_digests(
    metadata: Mapping[str, str], header: Mapping[str, Any], arrays: Arrays, *, verify: bool
) -> None:
    # A digest under a name that was damaged would pass for a file without one.
    if unknown := sorted(set(metadata) - {"bignn", "digest", "header_digest"}):
        raise ValueError(f"its metadata has an unknown key '{unknown[0]}'")
    is_first_version = header.get("version") == 1
    if not is_first_version and "header_digest" not in metadata:
        raise ValueError("it has no digest of its header")
    if (verify or not is_first_version) and "digest" not in metadata:
        raise ValueError("it has no digest to verify")
    text = metadata["bignn"]
    checks = [("header_digest", _SMALL_BYTES)]
    if verify or header.get("format") == MODEL_FORMAT:
        checks.append(("digest", None))  # type: ignore[arg-type]
    for key, largest in checks:
        if key in metadata and metadata[key] != digest_of(text, arrays, largest):
            raise ValueError("its digest is not that of its content")


def fault_of(file: Path, error: Exception) -> str:
    """Return what is wrong with a safetensors file that could not be read, in words of ours."""
    if not isinstance(error, SafetensorError):
        return printable(error, 300)
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        size = file.stat().st_size
        if _header_end(file) > size:
            return "it is cut off in its header, or is another kind of file"
        places, start = _places(file)
        ends = [place["data_offsets"][1] for name, place in places.items() if name[:2] != "__"]
        if (claimed := start + max(ends, default=0)) != size:
            kind = "it is cut off" if size < claimed else "something was added to it"
            return f"{kind}: {size:,} bytes, {claimed:,} by its header"
    return "its header does not describe its arrays"


def _header_end(file: Path) -> int:
    with file.open("rb") as opened:
        return 8 + int.from_bytes(opened.read(8), "little")


def _places(file: Path) -> tuple[dict[str, Any], int]:
    end = _header_end(file)
    with file.open("rb") as opened:
        return dict(json.loads(opened.read(end)[8:])), end


def _array(raw: NDArray[np.uint8], place: dict[str, Any], start: int) -> NDArray[Any]:
    if place["dtype"] not in _DTYPES:
        raise ValueError(f"arrays of type {place['dtype']} are not used")
    dtype = np.dtype(_DTYPES[place["dtype"]])
    begin, end = place["data_offsets"]
    values = raw[start + begin : start + end]
    if values.ctypes.data % dtype.itemsize:  # foreign writers may not align
        values = values.copy()
    return values.view(dtype).reshape(place["shape"])
