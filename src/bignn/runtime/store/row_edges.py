"""Edges of ranges of a store's rows, as each kind of neighbourhood sum weighs them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, InputError
from bignn.kernels.compressed_rows import offsets_fit
from bignn.kernels.edge_kinds import EDGE_KINDS, split_relation
from bignn.kernels.gcn_degrees import degree_scale
from bignn.kernels.layer import Edges
from bignn.runtime.store.progress import ProgressLines
from bignn.runtime.store.store import Store

Floats = NDArray[np.float32]

#: Kinds of sum that a store's edges, which have no weights and no types, serve.
KINDS = ("gcn", "mean", "mean_self", "sum", "attention")


def check_kind(aggr: str) -> None:
    """Refuse a kind of sum that a store's edges do not serve."""
    if split_relation(aggr)[1] is not None or aggr not in KINDS:
        raise InputError(
            f"the model sums neighbours by '{aggr}', a store serves {', '.join(KINDS)}; predict "
            "the graph in memory"
        )


def row_blocks(num_rows: int, block_rows: int, first: int = 0) -> list[tuple[int, int]]:
    """Cut rows from ``first`` on into blocks."""
    return [
        (begin, min(begin + block_rows, num_rows)) for begin in range(first, num_rows, block_rows)
    ]


class RowEdges:
    """The edges of any range of a store's rows, read from disk when they are asked for."""

    def __init__(self, store: Store, block_rows: int, *, is_shown: bool = True) -> None:
        self._store, self._block_rows, self._is_shown = store, block_rows, is_shown
        self._degree_scale: Floats | None = None

    def source_scale(self, aggr: str) -> Floats | None:
        """Return the factor of every source's β in a kind of sum; None for all ones."""
        return self._scale() if aggr == "gcn" else None

    def edges(self, aggr: str, begin: int, end: int) -> Edges:
        """Return the edges of the rows [begin, end)."""
        own_ids = np.arange(begin, end, dtype=np.int32)
        offsets, ids, factor = weigh_rows(aggr, *self.read(begin, end), own_ids)
        return Edges(offsets, ids, None, factor, self._store.num_nodes, own_ids)

    def read(self, begin: int, end: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Read neighbours as they are stored: offsets from 0 on, and ids."""
        part = self._store.edges
        offsets = part.read("offsets", begin, end + 1)
        first, last = int(offsets[0]), int(offsets[-1])
        is_sound = 0 <= first <= last <= self._store.num_edges
        offsets -= first
        if not is_sound or not offsets_fit(offsets, last - first):
            where = f"rows {begin} to {end - 1}"
            raise FileError(f"'{part.path('offsets')}' is damaged in {where}; pack it again")
        return offsets, part.read("ids", first, last)

    def check_ids(self, begin: int, end: int) -> None:
        """Refuse neighbours of the rows [begin, end) that are no nodes; name the first."""
        offsets, ids = self.read(begin, end)
        wrong = np.flatnonzero((ids < 0) | (ids >= self._store.num_nodes))
        if len(wrong):
            row = begin + int(np.searchsorted(offsets, wrong[0], "right")) - 1
            raise FileError(
                f"'{self._store.edges.path('ids')}': row {row} has neighbour {ids[wrong[0]]}, "
                f"expected node ids in 0..{self._store.num_nodes - 1}; pack it again"
            )

    def check_all(self) -> None:
        """Refuse damaged edges; name the first row."""
        for begin, end in row_blocks(self._store.num_nodes, self._block_rows):
            self.check_ids(begin, end)

    def _scale(self) -> Floats:
        """Return ``1 / sqrt(degree)`` of A + I for all nodes; reads the edges once."""
        if self._degree_scale is None:
            made = np.empty(self._store.num_nodes, dtype=np.float32)
            lines = ProgressLines("degrees", len(made), is_shown=self._is_shown)
            for begin, end in row_blocks(len(made), self._block_rows):
                offsets, ids = self.read(begin, end)
                is_loop = ids == np.repeat(np.arange(begin, end, dtype=np.int32), np.diff(offsets))
                degree = 1.0 + np.diff(offsets) - _sums(is_loop, offsets)
                made[begin:end] = degree_scale(degree).astype(np.float32)
                lines.add(end - begin)
            self._degree_scale = made
        return self._degree_scale

    def ahead(self, aggr: str, blocks: list[tuple[int, int]]) -> Iterator[tuple[int, int, Edges]]:
        """Yield the edges of blocks of rows; each is read when it is asked for."""
        for begin, end in blocks:
            yield begin, end, self.edges(aggr, begin, end)


def weigh_rows(
    aggr: str, offsets: NDArray[np.int64], ids: NDArray[Any], own_ids: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any], Floats]:
    """Take the edges of rows as a kind of sum does: ``(offsets, ids, target_factor)``.

    Args:
        aggr: one of :data:`KINDS`.
        offsets: where the sources of each row begin, and their number.
        ids: the sources; edges have no weights.
        own_ids: the source that each row is.

    """
    kind = EDGE_KINDS[aggr]
    if kind.loops == "added":
        offsets, ids = _with_own(offsets, ids, own_ids)
    counts = np.diff(offsets)
    if kind.factor == "degree":
        return offsets, ids, degree_scale(counts.astype(np.float64)).astype(np.float32)
    factor = np.ones(len(counts), dtype=np.float32)
    if kind.factor == "mean":
        factor /= np.maximum(counts, 1).astype(np.float32)
    return offsets, ids, factor


def _sums(values: NDArray[Any], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sum the values of each row."""
    totals = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=totals[1:])
    return np.asarray(totals[offsets[1:]] - totals[offsets[:-1]])


def _with_own(
    offsets: NDArray[np.int64], ids: NDArray[Any], own_ids: NDArray[Any]
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Make every row its own neighbour, once and last; sums do not depend on the order."""
    rows = np.repeat(np.arange(len(own_ids)), np.diff(offsets))
    others = ids != own_ids[rows]
    kept = rows[others]
    made = np.zeros(len(offsets), dtype=np.int64)
    np.cumsum(np.bincount(kept, minlength=len(own_ids)) + 1, out=made[1:])
    with_own = np.empty(int(made[-1]), dtype=ids.dtype)
    with_own[np.arange(len(kept)) + kept] = ids[others]
    with_own[made[1:] - 1] = own_ids
    return made, with_own
