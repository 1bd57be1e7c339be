"""Opens packed files of either kind."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from bignn.runtime import hetero_graph, tensors
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.live.live_graph import LiveGraph
from bignn.runtime.packed_graph import PackedGraph, graph_reader
from bignn.runtime.packed_model import PackedModel

#: What a packed file holds.
Packed = PackedModel | PackedGraph | PackedHeteroGraph | LiveGraph


def open_packed(path: str | os.PathLike[str]) -> Packed:
    """Open a packed model (``.bignn``), a packed graph (``.bigraph``) or a live one (``.biglive``).

    Where the kind is known, :meth:`PackedModel.open`, :meth:`PackedGraph.open` and
    :meth:`LiveGraph.open` state it, for type checkers too.

    A graph's arrays are mapped into memory and read from disk when used. A damaged or malicious
    file gives a valid object or a one-line :class:`bignn.FileError`, nothing else.
    """
    known: dict[str, Callable[[tensors.Arrays, dict[str, Any]], Packed]] = {
        tensors.MODEL_FORMAT: PackedModel.from_parts,
        tensors.GRAPH_FORMAT: graph_reader(path),
        tensors.HETERO_FORMAT: hetero_graph.from_file,
        tensors.LIVE_FORMAT: lambda _arrays, _header: LiveGraph.open(path),
    }
    return tensors.open_as(path, known)


# ``help(bignn.open)`` shows the name that users call it by.
open_packed.__name__ = open_packed.__qualname__ = "open"
