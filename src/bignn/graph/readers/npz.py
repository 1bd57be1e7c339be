"""Reads .npz files that strangers made: no pickle, no surprise sizes, one line per fault."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.files import atomic_path, check_regular_file

# Deflate reaches about 1000:1 on zeros, and sparse features stored dense (mostly zeros) come close
# to that honestly; so small files may expand freely, and only large ones must look like data.
_FREE_BYTES = 1 << 28
_MAX_EXPANSION = 200
_LENGTHS_AT = 26  # of a member's header: the lengths of its name and of its extra field
_CHUNK = 1 << 24  # bytes unpacked at a time, so that no array is held twice

#: What to do about a mask in a file.
NO_MASKS = "instead of a mask give the ids of its nodes: train_idx=train_mask.nonzero()[0]"


def read_npz(
    path: str | os.PathLike[str], known: frozenset[str], text: frozenset[str] = frozenset()
) -> dict[str, NDArray[Any]]:
    """Read all arrays of a .npz file.

    Names, sizes and headers are read first. Refused before anything is unpacked: arrays of unknown
    names, arrays of other things than plain numbers (those of ``text`` may hold text), arrays of
    another size than their header claims, and archives that expand suspiciously.
    """
    file = Path(path)
    with _opened(file) as archive:
        _check_directory(file, archive)
        members = _members(archive)
        unknown = sorted(set(members) - known)
        if unknown:
            hint = ""
            if any(name.endswith("_mask") for name in unknown):
                hint = f"; {NO_MASKS}"
            raise FileError(
                f"'{file}': unknown arrays {unknown[:5]}; known are {sorted(known)}{hint}"
            )
        if len(members) < len(archive.infolist()):
            raise FileError(f"'{file}' holds an array twice; write it again")
        return _read_members(file, archive, members, text)


def read_some(
    path: str | os.PathLike[str], wanted: Collection[str], needed: Collection[str]
) -> dict[str, NDArray[Any]]:
    """Read the ``wanted`` arrays of a published .npz file and leave the others unread.

    So object arrays, as of names, which would need pickle, do no harm. ``needed`` are those of
    ``wanted`` that must be there.
    """
    file = Path(path)
    with _opened(file) as archive:
        members = {name: info for name, info in _members(archive).items() if name in wanted}
        missing = sorted(set(needed) - set(members))
        if missing:
            raise FileError(
                f"'{file}' must hold the arrays {sorted(needed)}, but {missing} are missing; "
                "get the file again"
            )
        arrays = _read_members(file, archive, members)
    single = sorted(name for name, array in arrays.items() if array.ndim == 0)
    if single:
        raise FileError(f"'{file}': '{single[0]}' must be an array, got a single number")
    return arrays


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read the array of a .npy file, under the rules of :func:`read_npz`."""
    file = check_regular_file(path, "a .npy file")
    try:
        with file.open("rb") as opened:
            return _read_array(file, file.name, opened, file.stat().st_size)
    except OSError as error:
        raise FileError(f"cannot read '{file}': {error.strerror or error}") from error


def npy_layout(file: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Read a .npy file's header: shape, whether in Fortran order, type, where the data begins."""
    try:
        with file.open("rb") as opened:
            return (*_read_header(opened), opened.tell())
    # NumPy parses the header as a Python literal, so damage can surface as nearly anything.
    except Exception as error:
        raise FileError(f"'{file}' is not a NumPy array") from error


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(stream)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = read_header(stream)
    return found


@contextmanager
def _opened(file: Path) -> Iterator[zipfile.ZipFile]:
    check_regular_file(file, "a .npz file")
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except FileError:
        raise
    # zipfile raises the last two for unknown compression and for encrypted members.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileError(
            f"'{file}' is not a readable .npz file ({error}); write it again if it is one, "
            "or make one with 'bignn convert'"
        ) from error
    except OSError as error:
        raise FileError(f"cannot read '{file}': {error.strerror or error}") from error


#: The most bytes that may follow a member's data: its sizes again, where a writer did not know
#: them before.
_MAX_DESCRIPTOR = 24


def _check_directory(file: Path, archive: zipfile.ZipFile) -> None:
    """Refuse a directory that does not list all that the file holds, one member after the other.

    Damage to the directory could make an array vanish, such as the labels, and nothing else would
    show it.
    """
    end = 0
    largest_gap = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        gap = info.header_offset - end
        if not 0 <= gap <= largest_gap:
            break
        assert archive.fp is not None
        archive.fp.seek(info.header_offset + _LENGTHS_AT)
        lengths = archive.fp.read(4)
        own = int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
        end = info.header_offset + _LENGTHS_AT + 4 + own + info.compress_size
        largest_gap = _MAX_DESCRIPTOR if info.flag_bits & 0x08 else 0
    else:
        if 0 <= archive.start_dir - end <= largest_gap:
            return
    raise FileError(
        f"'{file}' is damaged: its list of arrays does not fit what it holds; write it again"
    )


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    return {info.filename.removesuffix(".npy"): info for info in archive.infolist()}


def _read_members(
    file: Path,
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    text: frozenset[str] = frozenset(),
) -> dict[str, NDArray[Any]]:
    size = sum(info.file_size for info in members.values())
    compressed = sum(info.compress_size for info in members.values())
    if size > _FREE_BYTES and size > _MAX_EXPANSION * compressed:
        raise FileError(
            f"'{file}' would expand from {compressed:,} bytes to {size:,}, over "
            f"{_MAX_EXPANSION}-fold; save it uncompressed (numpy.savez)"
        )
    arrays = {}
    for name, info in members.items():
        with archive.open(info) as member:
            kinds = "fiubU" if name in text else "fiub"
            arrays[name] = _read_array(file, info.filename, member, info.file_size, kinds)
    return arrays


def _read_array(
    file: Path, name: str, stream: IO[bytes], stream_bytes: int, kinds: str = "fiub"
) -> NDArray[Any]:
    try:
        shape, fortran_order, dtype = _read_header(stream)
    # NumPy parses the header as a Python literal, so damage can surface as nearly anything
    # (tokenize errors, overflow, recursion); all of it means one thing.
    except Exception as error:
        raise FileError(f"'{file}': '{name}' is not a NumPy array") from error
    name = name.removesuffix(".npy")
    if dtype.kind not in kinds or dtype.itemsize == 0:
        raise FileError(
            f"'{file}': array '{name}' holds {_describe(dtype)}, expected plain numbers; "
            "convert it before saving (objects would need pickle, which is never loaded)"
        )
    size = math.prod(shape) * dtype.itemsize
    held = stream_bytes - stream.tell()
    if size != held:
        raise FileError(
            f"'{file}': array '{name}' claims {size:,} bytes but holds {held:,}; "
            "the file is damaged: write it again"
        )
    data = np.empty(size, dtype=np.uint8)
    for begin in range(0, size, _CHUNK):
        part = stream.read(min(_CHUNK, size - begin))
        if len(part) != min(_CHUNK, size - begin):
            raise FileError(f"'{file}': array '{name}' ends early; write the file again")
        data[begin : begin + len(part)] = np.frombuffer(part, dtype=np.uint8)
    array = data.view(dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def write_npz(
    path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]], *, compressed: bool = True
) -> None:
    """Write a .npz file under a temporary name, then rename it."""
    save = np.savez_compressed if compressed else np.savez
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        save(file, allow_pickle=False, **arrays)


def _describe(dtype: np.dtype[Any]) -> str:
    return "Python objects" if dtype.hasobject else f"values of type {dtype}"
