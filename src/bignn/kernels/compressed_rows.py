"""Compressed rows: edges sorted by row, their offsets checked; for packed graphs and training."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from bignn.kernels import native, sampling_reference

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
T = TypeVar("T", bound=np.generic)
#: Offsets, ids and weights of some rows, and the place of each row itself.
TakenRows = tuple[Ints, NDArray[np.int32], Floats | None, NDArray[np.int32]]


def offsets_fit(offsets: NDArray[Any], count: int) -> bool:
    """Whether offsets rise from 0 to ``count``."""
    return bool(
        len(offsets)
        and offsets[0] == 0
        and offsets[-1] == count
        and not (offsets[1:] < offsets[:-1]).any()
    )


def order_of_entries(
    rows: NDArray[Any], columns: NDArray[Any], shape: tuple[int, int]
) -> tuple[Ints, Ints]:
    """Sort a sparse matrix's entries by row, then by column, stably: ``(offsets, order)``.

    Ids must be in range. By counting, in time that grows with entries and sizes alone.
    """
    rows, columns = (native.readable(ids, np.int64) for ids in (rows, columns))
    sort = native.sort_edges if native.is_available() else sampling_reference.sort_edges
    by_column = sort(columns, columns, shape[1])[2]
    offsets, _, by_row = sort(rows[by_column], rows, shape[0])
    return offsets, by_column[by_row]


def compress_edges(
    source: NDArray[Any], target: NDArray[Any], weights: Floats | None, num_nodes: int
) -> tuple[Ints, NDArray[Any], Floats | None]:
    """Sort edges into compressed rows of targets: ``(offsets, ids, weights)``.

    Weights are None where all are 1; ids are int32 if they can be.
    """
    offsets, order = order_of_entries(target, source, (num_nodes, num_nodes))
    if weights is not None:
        weights = None if (weights == 1).all() else weights[order]
    ids = source[order].astype(np.int32 if num_nodes < 2**31 else np.int64)
    return offsets, ids, weights


def in_order_of_rows(
    values: NDArray[T], source: NDArray[Any], target: NDArray[Any], num_nodes: int
) -> NDArray[T]:
    """Sort a value of each edge as :func:`compress_edges` sorts the edges."""
    return values[order_of_entries(target, source, (num_nodes, num_nodes))[1]]


def entries_of(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Offsets of some rows put side by side, and the numbers of their entries."""
    counts = offsets[rows + 1] - offsets[rows]
    taken = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(counts, out=taken[1:])
    entries = np.arange(taken[-1]) + np.repeat(offsets[rows] - taken[:-1], counts)
    return taken, entries


def is_among(values: Ints, rising: Ints) -> NDArray[np.bool_]:
    """Whether each value is in an array that rises; few values of a long one are found fast."""
    places = np.searchsorted(rising, values)
    found: NDArray[np.bool_] = places < len(rising)
    found[found] = rising[places[found]] == values[found]
    return found


def rows_and_sources(offsets: Ints, ids: NDArray[Any], rows: Ints) -> Ints:
    """Return rising rows together with all of their neighbours, rising."""
    if native.is_available():
        return native.rows_and_sources(offsets, ids, rows)
    found: Ints = np.unique(np.concatenate([rows, ids[entries_of(offsets, rows)[1]]]))
    return found.astype(np.int64)


def take_rows(
    offsets: Ints, ids: NDArray[Any], weights: Floats | None, rows: Ints, taken: Ints
) -> TakenRows:
    """Take some rows, with their neighbours as places among ``taken``; both are rising.

    Returns offsets, ids and weights of the rows, and the place of each row itself.
    """
    if native.is_available():
        made: TakenRows = native.take_rows(offsets, ids, weights, rows, taken)
        return made
    of_rows, entries = entries_of(offsets, rows)
    return (
        of_rows,
        np.searchsorted(taken, ids[entries]).astype(np.int32),
        None if weights is None else weights[entries],
        np.searchsorted(taken, rows).astype(np.int32),
    )
