"""The edges of a part as layers take them, apart by whether a row reads the halo."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.compressed_rows import compress_edges, entries_of
from bignn.kernels.edge_kinds import EDGE_KINDS, weigh_edges
from bignn.kernels.gcn_degrees import gcn_degree_scale
from bignn.kernels.layer import Edges, Floats
from bignn.runtime.parts.graph_part import GraphPart, Ints
from bignn.runtime.store.row_edges import KINDS, row_blocks, weigh_rows

#: Rows whose entries are handled at a time: some 50 bytes of an entry are in memory meanwhile.
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True, eq=False)
class PartEdges:
    """The edges of a part, weighed for one kind of sum.

    Attributes:
        whole: owned rows, of all local sources.
        source_scale: factors of the owned rows as sources; None for all ones.
        num_owned: n.

    """

    whole: Edges
    source_scale: Floats | None
    num_owned: int

    @cached_property
    def inner_rows(self) -> Ints:
        """Owned rows that read owned rows alone, which need not wait for the halo."""
        return np.flatnonzero(~self._reads_halo)

    @cached_property
    def outer_rows(self) -> Ints:
        """Owned rows that read the halo."""
        return np.flatnonzero(self._reads_halo)

    @cached_property
    def _reads_halo(self) -> NDArray[np.bool_]:
        reads = np.zeros(self.num_owned, dtype=np.bool_)
        for begin, end in row_blocks(self.num_owned, _BLOCK_ROWS):
            some = self.whole.rows(begin, end)
            row = np.repeat(np.arange(begin, end), np.diff(some.offsets))
            reads[row[some.ids >= self.num_owned]] = True
        return reads

    @cached_property
    def inner(self) -> Edges:
        """The edges of :attr:`inner_rows`, whose sources are the owned rows."""
        return self._of_rows(self.inner_rows, self.num_owned, None)

    @cached_property
    def outer_sources(self) -> Ints:
        """The local rows that :attr:`outer_rows` read, and these themselves, rising."""
        is_read = np.zeros(self.whole.num_sources, dtype=np.bool_)
        rows = self.outer_rows
        is_read[rows] = True
        for begin, end in row_blocks(len(rows), _BLOCK_ROWS):
            entries = entries_of(self.whole.offsets, rows[begin:end])[1]
            is_read[self.whole.ids[entries]] = True
        return np.flatnonzero(is_read)

    @cached_property
    def outer(self) -> Edges:
        """The edges of :attr:`outer_rows`, whose sources are :attr:`outer_sources`."""
        place = np.empty(self.whole.num_sources, dtype=self.whole.ids.dtype)
        place[self.outer_sources] = np.arange(len(self.outer_sources))
        return self._of_rows(self.outer_rows, len(self.outer_sources), place)

    def _of_rows(self, rows: Ints, num_sources: int, place: NDArray[Any] | None) -> Edges:
        """Take the edges of some rows; ``place`` has the new numbers of sources."""
        whole = self.whole
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum(whole.offsets[rows + 1] - whole.offsets[rows], out=offsets[1:])
        ids = np.empty(int(offsets[-1]), dtype=whole.ids.dtype)
        weights = None if whole.weights is None else np.empty(len(ids), dtype=np.float32)
        for begin, end in row_blocks(len(rows), _BLOCK_ROWS):
            entries = entries_of(whole.offsets, rows[begin:end])[1]
            taken, target = whole.ids[entries], slice(offsets[begin], offsets[end])
            ids[target] = taken if place is None else place[taken]
            if weights is not None and whole.weights is not None:
                weights[target] = whole.weights[entries]
        own = rows if place is None else place[rows]
        factor = whole.target_factor[rows]
        return Edges(offsets, ids, weights, factor, num_sources, own.astype(np.int32))


def part_edges(part: GraphPart, aggr: str, *, weighted: bool = True) -> PartEdges:
    """Weigh a part's edges for a kind of sum, as a packed graph of all nodes weighs them.

    A node's degree counts its own entries, all of which are in its part; edges of a node are in
    the order given, so that weights add up to the same degree.

    Args:
        part: the part.
        aggr: the kind of sum.
        weighted: whether edge weights count at all.

    """
    if aggr in KINDS and not (
        weighted and part.weights is not None and EDGE_KINDS[aggr].is_weighted
    ):
        return _unweighted_edges(part, aggr)
    source, target, weights = part.edges
    if not weighted:
        weights = None
    count, num_owned = part.num_local, part.num_nodes
    weighed = weigh_edges(aggr, source, target, weights, count)
    scale, factor = weighed.source_factor, weighed.target_factor
    if aggr == "gcn":
        scale = factor = gcn_degree_scale(source, target, weights, count)
    offsets, ids, weights = compress_edges(*weighed[:3], count)
    # Loops that were added to the halo's rows are not this part's.
    offsets = offsets[: num_owned + 1]
    ids = ids[: offsets[-1]]
    weights = None if weights is None else weights[: offsets[-1]]
    whole = Edges(offsets, ids, weights, factor[:num_owned], count)
    return PartEdges(whole, None if scale is None else scale[:num_owned], num_owned)


def _unweighted_edges(part: GraphPart, aggr: str) -> PartEdges:
    """Weigh a part's edges by their numbers, block by block."""
    offsets: list[Ints] = [np.zeros(1, dtype=np.int64)]
    ids: list[NDArray[Any]] = []
    factors: list[Floats] = []
    for begin, end in row_blocks(part.num_nodes, _BLOCK_ROWS):
        first, last = int(part.offsets[begin]), int(part.offsets[end])
        own_ids = np.arange(begin, end, dtype=part.ids.dtype)
        rows = part.offsets[begin : end + 1] - first, part.ids[first:last]
        made, of_rows, factor = weigh_rows(aggr, *rows, own_ids)
        offsets.append(made[1:] + offsets[-1][-1])
        ids.append(of_rows)
        factors.append(factor)
    scale = np.concatenate(factors)
    whole = Edges(np.concatenate(offsets), np.concatenate(ids), None, scale, part.num_local)
    return PartEdges(whole, scale if aggr == "gcn" else None, part.num_nodes)
