"""Opens packed files of either kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from bignn.runtime import hetero_graph, packed_model, tensors
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.packed_graph import PackedGraph, graph_reader
from bignn.runtime.packed_model import PackedModel

#: What a packed file holds.
Packed = PackedModel | PackedGraph | PackedHeteroGraph


def open_packed(path: str | os.PathLike[str]) -> Packed:
    """Open a packed model (``.bignn``) or a packed graph (``.bigraph``), of one type or several.

    Where the kind is known, :meth:`PackedModel.open` and :meth:`PackedGraph.open` state it, for
    type checkers too.

    A graph's arrays are mapped into memory and read from disk when used. A damaged or malicious
    file gives a valid object or a one-line :class:`bignn.FileError`, nothing else.
    """
    known: dict[str, Callable[[tensors.Arrays, dict[str, Any]], Packed]] = {
        tensors.MODEL_FORMAT: packed_model.from_file,
        tensors.GRAPH_FORMAT: graph_reader(path),
        tensors.HETERO_FORMAT: hetero_graph.from_file,
    }
    return tensors.open_as(path, known)


# ``help(bignn.open)`` shows the name that users call it by.
open_packed.__name__ = open_packed.__qualname__ = "open"
