"""Answers for nodes that are not in a live graph, computed from copies of what they depend on.

What one question depends on is cut out while the graph stands still, and computed while it may
change again. Questions that are answered together are put side by side, each with its own copy, so
that no answer depends on what else was asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.errors import InputError
from bignn.kernels.compressed_rows import is_among
from bignn.kernels.layer import DenseBits, dense_words
from bignn.runtime.live.live_graph import LiveGraph
from bignn.runtime.new_nodes import (
    NewNodes,
    read_new_nodes,
    reads_all,
    sources_of_new,
    with_new_nodes,
)
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.predicted_values import Output

Ints = NDArray[np.int64]


class NewQuestion(NamedTuple):
    """New nodes that an answer is wanted for: the arguments of :meth:`LiveGraph.predict_new`."""

    x: Any
    edges: ArrayLike
    edge_weight: ArrayLike | None = None


def predict_new(
    live: LiveGraph, questions: Sequence[NewQuestion], output: Output = "classes"
) -> list[NDArray[Any] | InputError]:
    """Answer questions in one run, each as if it were asked alone; bad ones get their error."""
    answers: list[NDArray[Any] | InputError] = []
    parts: list[PackedGraph] = []
    wanted: list[tuple[int, Ints]] = []
    num_nodes = 0
    for number, question in enumerate(questions):
        try:
            part, rows = _cut(live, question)
        except InputError as error:
            answers.append(error)
            continue
        answers.append(np.empty(0))
        wanted.append((number, rows + num_nodes))
        parts.append(part)
        num_nodes += part.num_nodes
    if parts:
        every = np.concatenate([rows for _, rows in wanted])
        values = live.model.predict(_side_by_side(parts), every, output=output)
        ends = np.cumsum([len(rows) for _, rows in wanted])[:-1]
        for (number, _), some in zip(wanted, np.split(values, ends), strict=True):
            answers[number] = some
    return answers


def _cut(live: LiveGraph, question: NewQuestion) -> tuple[PackedGraph, Ints]:
    """Copy what new nodes depend on, with these nodes in it; return their rows too."""
    network = live.model.network
    with live._lock:
        num_old = live.num_nodes
        added = read_new_nodes(network, num_old, live.node_names, *question)
        rows = live._present_rows("edges", added.edges, num_old)
        if reads_all(network):
            part = live.packed_graph()
        else:
            part, added = _part_around(live, added._replace(edges=rows))
    return with_new_nodes(network, part, added)


def _part_around(live: LiveGraph, added: NewNodes) -> tuple[PackedGraph, NewNodes]:
    """Copy the rows that new nodes depend on; return them, and the new nodes by their numbers.

    Whole are the rows that some layer computes, and those whose degree new edges change.
    """
    num_old, edges = live.num_nodes, added.edges
    computed, kept = np.empty(0, dtype=np.int64), sources_of_new(edges, num_old)
    for _ in range(live.model.network.num_hops - 1):
        computed, kept = kept, _joined(kept, live._layers.edges(kept)[1])
    is_kept = is_among(edges[1], kept)
    whole = _joined(computed, edges[1][is_kept])
    offsets, ids, weights = live._layers.edges(whole)
    taken = _joined(kept, ids)
    words, beta, scales = live._inputs_of(taken)
    counts = np.zeros(len(taken) + 1, dtype=np.int64)
    counts[np.searchsorted(taken, whole) + 1] = np.diff(offsets)
    places_of_ids = np.searchsorted(taken, ids).astype(np.int32)
    part = live._packed_rows(words, beta, (np.cumsum(counts), places_of_ids, weights), scales)
    is_read = (edges[1] >= num_old) | is_kept
    ends = edges[:, is_read]
    places = np.where(ends < num_old, np.searchsorted(taken, ends), ends - num_old + len(taken))
    of_edges = None if added.weights is None else added.weights[is_read]
    return part, added._replace(edges=places, weights=of_edges)


def _joined(one: Ints, other: NDArray[Any]) -> Ints:
    """Return what is in one array or the other, rising; faster here than NumPy's hashes."""
    every = np.sort(np.concatenate([one, other]))
    is_first = np.ones(len(every), dtype=np.bool_)
    is_first[1:] = every[1:] != every[:-1]
    return every[is_first]


def _side_by_side(parts: Sequence[PackedGraph]) -> PackedGraph:
    """Make one graph of some that have nothing to do with each other."""
    if len(parts) == 1:
        return parts[0]
    begins = np.cumsum([0, *(part.num_nodes for part in parts)])
    entries = np.cumsum([0, *(part.num_entries for part in parts)])
    weights = None
    if any(part.weights is not None for part in parts):
        weights = np.concatenate(
            [
                np.ones(part.num_entries, np.float32) if part.weights is None else part.weights
                for part in parts
            ]
        )
    words = [dense_words(part.bits[0]) for part in parts]
    return replace(
        parts[0],
        features=DenseBits(np.concatenate(words)),
        beta=np.concatenate([part.bits[1] for part in parts]),
        offsets=np.concatenate(
            [[0], *(part.offsets[1:] + at for part, at in zip(parts, entries[:-1], strict=True))]
        ),
        ids=np.concatenate(
            [part.ids + np.int32(at) for part, at in zip(parts, begins[:-1], strict=True)]
        ),
        weights=weights,
        degree_scale=np.concatenate([part.degree_scale for part in parts]),
    )
