"""Lists of a graph's rows by how many neighbours they have, as GPU kernels take them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

# The constants of weights.cuh and bits.cuh.
LONG_ROW = 2048
FEW, SOME = 32, 64

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowLists:
    """Rows of up to 32 neighbours, of up to 64, and pieces of the others; rows rise in each.

    Attributes:
        few: int32, rows of up to 32 neighbours, which share a transposition in fours.
        some: int32, rows of 33 to 64 neighbours, which share one in twos.
        piece_rows: int32, the row of each piece.
        piece_begins: int64, the entry that each piece begins with.
        piece_slots: int32, the place of a piece's row among the long rows; -1 for a whole row.
        long_rows: int32, rows of more than 2,048 neighbours, whose pieces are added up.
        long_slots: int32, their places: 0, 1, ...

    """

    few: NDArray[np.int32]
    some: NDArray[np.int32]
    piece_rows: NDArray[np.int32]
    piece_begins: Ints
    piece_slots: NDArray[np.int32]
    long_rows: NDArray[np.int32]
    long_slots: NDArray[np.int32]

    @cached_property
    def long_pieces(self) -> tuple[NDArray[np.int32], Ints, NDArray[np.int32]]:
        """Rows, first entries and slots of the pieces of long rows alone."""
        kept = self.piece_slots >= 0
        return self.piece_rows[kept], self.piece_begins[kept], self.piece_slots[kept]


def list_rows(offsets: Ints) -> RowLists:
    """Sort rows by their numbers of neighbours."""
    degrees = np.diff(offsets)
    many = np.flatnonzero(degrees > SOME)
    pieces = -(-degrees[many] // LONG_ROW)
    piece_rows = np.repeat(many, pieces)
    first = np.cumsum(pieces) - pieces
    number = np.arange(len(piece_rows)) - np.repeat(first, pieces)
    long_rows = many[pieces > 1]
    slots = np.full(len(many), -1, dtype=np.int32)
    slots[pieces > 1] = np.arange(len(long_rows))
    return RowLists(
        np.flatnonzero(degrees <= FEW).astype(np.int32),
        np.flatnonzero((degrees > FEW) & (degrees <= SOME)).astype(np.int32),
        piece_rows.astype(np.int32),
        offsets[piece_rows] + LONG_ROW * number,
        np.repeat(slots, pieces),
        long_rows.astype(np.int32),
        np.arange(len(long_rows), dtype=np.int32),
    )
