"""Long rows of a graph and their pieces, as GPU kernels take them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Entries of a row that are one warp's work; longer rows are cut into pieces (weights.cuh).
LONG_ROW = 2048

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class LongRows:
    """Rows of more than 2,048 neighbours, and their pieces of up to so many entries.

    Attributes:
        rows: int32, the rows, rising.
        piece_rows: int32, the row of each piece.
        piece_begins: int64, the entry that each piece begins with.
        piece_slots: int32, the place of a piece's row in ``rows``.

    """

    rows: NDArray[np.int32]
    piece_rows: NDArray[np.int32]
    piece_begins: Ints
    piece_slots: NDArray[np.int32]


def long_rows(offsets: Ints) -> LongRows:
    """List the long rows of a graph and cut them into pieces."""
    degrees = np.diff(offsets)
    rows = np.flatnonzero(degrees > LONG_ROW)
    pieces = -(-degrees[rows] // LONG_ROW)
    slots = np.repeat(np.arange(len(rows)), pieces)
    number = np.arange(len(slots)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    return LongRows(
        rows.astype(np.int32),
        rows[slots].astype(np.int32),
        offsets[rows[slots]] + LONG_ROW * number,
        slots.astype(np.int32),
    )
