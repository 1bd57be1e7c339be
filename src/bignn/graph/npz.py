"""Reading .npz files that strangers made: no pickle, no surprise sizes, one line per fault."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.files import atomic_path

# Deflate reaches about 1000:1 on zeros, and sparse features stored dense (mostly zeros) come close
# to that honestly; so small files may expand freely, and only large ones must look like data.
_FREE_BYTES = 1 << 28
_MAX_EXPANSION = 200


def read_npz(path: str | os.PathLike[str], known: frozenset[str]) -> dict[str, NDArray[Any]]:
    """All arrays of a .npz file.

    Names, sizes and headers are read first: arrays that are not known, that are not plain numbers,
    that claim other than their member of the archive holds, or an archive that expands
    suspiciously, are refused before anything is unpacked.
    """
    file = Path(path)
    if not file.exists():
        raise FileError(f"'{file}' does not exist")
    if file.is_dir():
        raise FileError(f"'{file}' is a folder; give a .npz file")
    try:
        with zipfile.ZipFile(file) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            _check_members(file, archive, members, known)
            return {name: _read_array(file, archive, info) for name, info in members.items()}
    except FileError:
        raise
    # The last two are zipfile's words for unknown compression and for encrypted members.
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise FileError(
            f"'{file}' is not a readable .npz file ({error}); write it again if it is one, "
            "or make one with 'bignn convert'"
        ) from error
    except OSError as error:
        raise FileError(f"cannot read '{file}': {error.strerror or error}") from error


def _check_members(
    file: Path,
    archive: zipfile.ZipFile,
    members: dict[str, zipfile.ZipInfo],
    known: frozenset[str],
) -> None:
    unknown = sorted(set(members) - known)
    if unknown:
        raise FileError(f"'{file}': unknown arrays {unknown[:5]}; known are {sorted(known)}")
    if len(members) < len(archive.infolist()):
        raise FileError(f"'{file}' holds an array twice; write it again")
    size = sum(info.file_size for info in members.values())
    compressed = sum(info.compress_size for info in members.values())
    if size > _FREE_BYTES and size > _MAX_EXPANSION * compressed:
        raise FileError(
            f"'{file}' would expand from {compressed:,} bytes to {size:,}, over "
            f"{_MAX_EXPANSION}-fold; save it uncompressed (numpy.savez)"
        )


def _read_array(file: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as member:
        try:
            version = npy.read_magic(member)
            read_header = (
                npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            )
            shape, fortran_order, dtype = read_header(member)
        # NumPy parses the header as a Python literal, so damage can surface as nearly anything
        # (tokenize errors, overflow, recursion); all of it means one thing.
        except Exception as error:
            raise FileError(f"'{file}': '{info.filename}' is not a NumPy array") from error
        if dtype.kind not in "fiub":
            raise FileError(
                f"'{file}': array '{name}' holds {_describe(dtype)}, expected plain numbers; "
                "convert it before saving (objects would need pickle, which is never loaded)"
            )
        size = math.prod(shape) * dtype.itemsize
        held = info.file_size - member.tell()
        if size != held:
            raise FileError(
                f"'{file}': array '{name}' claims {size:,} bytes but holds {held:,}; "
                "the file is damaged: write it again"
            )
        data = member.read(size)
        if len(data) != size:
            raise FileError(f"'{file}': array '{name}' ends early; write the file again")
    array = np.frombuffer(bytearray(data), dtype=dtype)
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)


def write_npz(path: str | os.PathLike[str], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Writes a compressed .npz under a temporary name, then renames it."""
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _describe(dtype: np.dtype[Any]) -> str:
    return "Python objects" if dtype.hasobject else f"values of type {dtype}"
