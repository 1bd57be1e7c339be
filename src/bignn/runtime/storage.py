"""Opening packed files, whichever kind they are."""

from __future__ import annotations

import os

from bignn.errors import FileError
from bignn.runtime import packed_graph, packed_model, tensors
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.packed_model import PackedModel


def open_packed(path: str | os.PathLike[str]) -> PackedModel | PackedGraph:
    """Opens a packed model (``.bignn``) or a packed graph.

    A graph's arrays are mapped into memory and read from disk when used. Whatever a damaged or
    malicious file holds, the result is a valid object or a one-line :class:`bignn.FileError`.
    """
    arrays, header = tensors.read(path)
    try:
        if header.get("format") == packed_model.FORMAT:
            return packed_model.from_file(arrays, header)
        if header.get("format") == packed_graph.FORMAT:
            return packed_graph.from_file(arrays, header, os.fspath(path))
    except FileError as error:
        raise FileError(f"'{os.fspath(path)}': {tensors.one_line(error)}") from None
    raise FileError(
        f"'{os.fspath(path)}' is neither a packed model nor a packed graph "
        f"(its format is {str(header.get('format'))[:40]!r})"
    )
