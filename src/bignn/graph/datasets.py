"""Graphs by name or by path: the three citation graphs travel with the package."""

from __future__ import annotations

import os
from pathlib import Path

from bignn.errors import FileError, InputError, wrong
from bignn.graph.graph import ARRAYS, Graph, from_arrays, to_arrays
from bignn.graph.npz import read_npz, write_npz

EMBEDDED = ("cora", "citeseer", "pubmed")
_DATA = Path(__file__).parent / "data"


def load(name_or_path: str | os.PathLike[str]) -> Graph:
    """Loads a graph.

    Args:
        name_or_path: ``"cora"``, ``"citeseer"`` or ``"pubmed"`` (embedded); the name of a .npz file
            in the folder ``$BIGNN_DATA``; or the path of a .npz file (``docs/format.md``).

    """
    path = find(name_or_path)
    return from_arrays(
        read_npz(path, ARRAYS), name=path.stem if path.parent == _DATA else str(path)
    )


def find(name_or_path: str | os.PathLike[str]) -> Path:
    """The file :func:`load` would read."""
    text = os.fspath(name_or_path)
    if text.endswith(".npz") or os.sep in text:
        if Path(text).exists():
            return Path(text)
        raise FileError(f"'{text}' does not exist; give a .npz file or one of {list(EMBEDDED)}")
    if text in EMBEDDED:
        return _DATA / f"{text}.npz"
    folder = os.environ.get("BIGNN_DATA")
    if folder and (found := Path(folder) / f"{text}.npz").exists():
        return found
    if Path(text).exists():
        raise FileError(f"'{text}' is not a graph; give a .npz file ('bignn convert' makes one)")
    looked = f"'{folder}' ($BIGNN_DATA)" if folder else "$BIGNN_DATA (not set)"
    raise InputError(
        f"unknown dataset '{text}'; known are {list(EMBEDDED)}, the path of a .npz file, "
        f"or a name in {looked}"
    )


def save(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Writes a graph in the .npz format that :func:`load` reads."""
    if not isinstance(graph, Graph):
        raise wrong("graph", "a bignn.Graph", type(graph).__name__, "see bignn.from_pyg")
    if not os.fspath(path).endswith(".npz"):
        raise wrong("path", "a file name ending in .npz", repr(os.fspath(path)))
    write_npz(path, to_arrays(graph))
