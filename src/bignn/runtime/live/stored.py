"""Live graphs on disk: a file with the model and the graph, and the journal of updates since."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import FileError
from bignn.files import checked_path
from bignn.runtime import packed_graph, packed_model, tensors
from bignn.runtime.live.changes import from_arrays
from bignn.runtime.live.journal import Absorbed, Journal, start_journal
from bignn.runtime.live.live_graph import LiveGraph

if TYPE_CHECKING:
    from bignn.runtime.packed_graph import PackedGraph
    from bignn.runtime.packed_model import PackedModel

VERSION = 1
_HEADER = frozenset(["format", "version", "state", "model", "graph"])
#: The part of the journal before that a state has, if there was one.
_ABSORBED = "absorbed"


def journal_path(path: str | os.PathLike[str]) -> Path:
    """Return the journal of a live graph's file."""
    file = checked_path(path)
    return file.with_name(f"{file.name}.journal")


def save(
    path: str | os.PathLike[str],
    live: LiveGraph,
    is_removed: NDArray[np.bool_],
    own: Journal | None,
) -> Journal:
    """Write a live graph, then start its journal; the old file and journal stay until then.

    Where there is no journal, an empty one comes first: no file is ever without one. One that is
    there and not the graph's ``own`` must not be in use: its updates would be lost.
    """
    tensors.check_suffix(path, tensors.LIVE_SUFFIX)
    # A name for this state: a journal of another state does not belong to it.
    state = secrets.token_hex(16)
    graph_arrays, graph_header = live.packed_graph().parts()
    model_arrays, model_header = live.model.parts()
    arrays = {f"graph/{name}": array for name, array in graph_arrays.items()}
    arrays |= {f"model/{name}": array for name, array in model_arrays.items()}
    if is_removed.any():
        arrays["removed"] = np.flatnonzero(is_removed)
    header = {
        "format": tensors.LIVE_FORMAT,
        "version": VERSION,
        "state": state,
        "model": model_header,
        "graph": graph_header,
    }
    journal = journal_path(path)
    if not journal.exists():
        start_journal(journal, state)
    held = own if own is not None and own.is_at(journal) else Journal(journal)
    try:
        # A process that is killed before the journal is started afresh leaves this one.
        if (absorbed := held.absorbed()) is not None:
            header[_ABSORBED] = list(absorbed)
        tensors.write(path, arrays, header)
        start_journal(journal, state)
    finally:
        if held is not own:
            held.close()
    return Journal(journal)


def open_live(path: str | os.PathLike[str], *, keep_sums: bool = True) -> LiveGraph:
    """Open a live graph's file and make the updates of its journal."""

    def made(
        arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]
    ) -> tuple[PackedModel, PackedGraph, NDArray[Any], str, Absorbed | None]:
        if header.get("version") != VERSION or set(header) - {_ABSORBED} != _HEADER:
            raise FileError(f"version {header.get('version')!r} is not known, expected {VERSION}")
        model = packed_model.PackedModel.from_parts(_part("model", arrays), header["model"])
        graph = packed_graph.graph_reader(path)(_part("graph", arrays), header["graph"])
        removed = arrays.get("removed", np.empty(0, dtype=np.int64))
        return model, graph, removed, str(header["state"]), _absorbed(header.get(_ABSORBED))

    journal = journal_path(path)
    # Before the file is read: from here on no other process saves it anew.
    opened = Journal(journal) if journal.exists() else None
    try:
        parts = tensors.open_as(path, {tensors.LIVE_FORMAT: made}, verify=True)
        model, graph, removed, state, absorbed = parts
        if opened is None:
            raise FileError(
                f"'{journal}' does not exist; it holds the updates since the last save: copy it "
                "too, or make an empty file of that name to go on from the last save"
            )
        live = model.live(graph, keep_sums=keep_sums)
        num_words = words_per_row(model.network.input.num_columns)
        if removed.size:
            live._replay(from_arrays({"removed_nodes": removed}, 0, num_words))
        for changes in opened.read(state, absorbed, num_words):
            live._replay(changes)
    except BaseException:
        if opened is not None:
            opened.close()
        raise
    live._attach(opened)
    return live


def _absorbed(value: Any) -> Absorbed | None:
    if value is None:
        return None
    if not isinstance(value, list) or [type(part) for part in value] != [str, int, str]:
        raise FileError(f"'{_ABSORBED}' must be a state, a number of bytes and their checksum")
    return Absorbed(*value)


def _part(name: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    start = f"{name}/"
    return {key.removeprefix(start): some for key, some in arrays.items() if key.startswith(start)}
