"""Random pieces of a graph: sampled neighbourhoods, random walks, edges among some nodes.

Arguments are checked here, then the native core or NumPy does the work, with the same result to the
last element. What is drawn depends on ``seed`` (0 to 2^64 - 1) and on nothing else: not on threads,
not on the backend. May import ``errors``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.errors import InputError, input_error, offsets_error
from bignn.kernels import checked_backend, native, sampling_reference
from bignn.kernels.compressed_rows import offsets_fit
from bignn.kernels.random import fractions, random_words
from bignn.kernels.sampling_reference import Ints

_MAX_NODES = 1 << 31


@dataclass(frozen=True, eq=False)
class CompressedGraph:
    """A graph in compressed rows: row v has the neighbours ``ids[offsets[v]:offsets[v + 1]]``.

    Rows are targets and ids sources wherever neighbours are sampled; random walks go from rows to
    ids. Nodes may have no neighbours, the same neighbour twice, or themselves.

    Attributes:
        offsets: int64 [N + 1], rising from 0 to E.
        ids: int32 or int64 [E].
        numbers: int64 [E], what results call the edges; None for their places in ``ids``.

    """

    offsets: Ints
    ids: NDArray[Any]
    numbers: Ints | None = None

    def __post_init__(self) -> None:
        offsets = _vector("offsets", self.offsets)
        ids = native.readable(np.asarray(self.ids))
        if ids.dtype != np.int32:
            ids = _vector("ids", ids)
        if ids.ndim != 1:
            raise input_error("ids", "a vector", f"{ids.ndim} dimensions")
        if not 1 <= len(offsets) <= _MAX_NODES:
            raise input_error("offsets", "of length nodes + 1, below 2**31 nodes", len(offsets))
        if not offsets_fit(offsets, len(ids)):
            raise offsets_error("offsets", offsets.tolist(), len(ids))
        _check_range("ids", ids, len(offsets) - 1)
        if self.numbers is not None:
            numbers = _vector("numbers", self.numbers)
            if len(numbers) != len(ids):
                raise input_error("numbers", f"one per edge ({len(ids)})", len(numbers))
            object.__setattr__(self, "numbers", numbers)
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "ids", ids)

    @classmethod
    def from_edges(
        cls, rows: ArrayLike, ids: ArrayLike, num_nodes: int, *, backend: str | None = None
    ) -> CompressedGraph:
        """Sort edges by row; results number the edges as they were given here."""
        row, column = _vector("rows", rows), _vector("ids", ids)
        if len(row) != len(column):
            raise input_error("ids", f"as many as rows ({len(row)})", len(column))
        if not 0 <= num_nodes < _MAX_NODES:
            raise input_error("num_nodes", "from 0 to 2**31 - 1", num_nodes)
        _check_range("rows", row, num_nodes)
        _check_range("ids", column, num_nodes)
        if checked_backend(backend) == "reference":
            offsets, sorted_ids, numbers = sampling_reference.sort_edges(row, column, num_nodes)
        else:
            offsets, sorted_ids, numbers = native.sort_edges(row, column, num_nodes)
        is_sorted = bool((np.diff(row) >= 0).all())
        return cls(offsets, sorted_ids, None if is_sorted else numbers)

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """E."""
        return len(self.ids)

    @property
    def degrees(self) -> Ints:
        """Number of neighbours of each row, int64 [N]."""
        return np.diff(self.offsets)

    def numbered(self, places: Ints) -> Ints:
        """Return numbers of the edges at the given places."""
        return places if self.numbers is None else self.numbers[places]


@dataclass(frozen=True, eq=False)
class SampledEdges:
    """Edges between sampled nodes, which are numbered from 0.

    Attributes:
        sources, targets: int64 [E'], neighbour and row, in the new numbers.
        numbers: int64 [E'], which edges of the graph they are.

    """

    sources: Ints
    targets: Ints
    numbers: Ints


@dataclass(frozen=True, eq=False)
class Neighbourhood:
    """The nodes and edges that neighbour sampling found.

    Attributes:
        nodes: int64, in the order of discovery, the seeds first.
        edges: sampled edges; sources and targets are places in ``nodes``.
        nodes_per_hop: the seeds, then what each hop found.
        edges_per_hop: what each hop sampled.

    """

    nodes: Ints
    edges: SampledEdges
    nodes_per_hop: list[int]
    edges_per_hop: list[int]


def sample_neighbours(
    graph: CompressedGraph,
    seeds: ArrayLike,
    fanouts: Sequence[int],
    *,
    seed: int,
    replace: bool = False,
    backend: str | None = None,
) -> Neighbourhood:
    """Draw neighbours of the seeds, then neighbours of those, and so on.

    In hop h every node that hop h - 1 found first gets ``fanouts[h]`` of its neighbours, uniformly:
    all of them if the fan-out is -1, or if there are no more and ``replace`` is off.

    Args:
        graph: sources by target.
        seeds: unique node ids.
        fanouts: one per hop.
        seed: decides what is drawn.
        replace: draw with replacement.
        backend: as in :mod:`bignn.kernels`.

    """
    nodes = _unique_nodes("seeds", seeds, graph.num_nodes)
    counts = checked_fanouts("fanouts", fanouts)
    word = _checked_seed(seed)
    if checked_backend(backend) != "reference":
        found = native.sample_neighbours(graph, nodes, counts, replace, word)
    else:
        found = sampling_reference.sample_neighbours(
            graph.offsets, graph.ids, nodes, counts, replace, word
        )
        found = (*found[:3], graph.numbered(found[3]), *found[4:])
    return Neighbourhood(found[0], SampledEdges(*found[1:4]), found[4], found[5])


def random_walks(
    graph: CompressedGraph, roots: ArrayLike, length: int, *, seed: int, backend: str | None = None
) -> Ints:
    """Walk from rows to ids, int64 [R, length + 1]: the root, then a neighbour of the last node.

    A walk that has no way on stays where it is.
    """
    starts = _nodes("roots", roots, graph.num_nodes)
    if length < 0:
        raise input_error("length", "0 or more", length)
    walks = np.empty((len(starts), length + 1), dtype=np.int64)
    walks[:, 0] = starts
    if checked_backend(backend) != "reference":
        native.random_walks(graph, _checked_seed(seed), walks)
    else:
        sampling_reference.random_walks(graph.offsets, graph.ids, _checked_seed(seed), walks)
    return walks


def edges_between(
    graph: CompressedGraph, rows: ArrayLike, ids: ArrayLike, *, backend: str | None = None
) -> SampledEdges:
    """Find all edges whose row is among ``rows`` and whose neighbour is among ``ids`` (unique)."""
    row = _nodes("rows", rows, graph.num_nodes)
    column = _unique_nodes("ids", ids, graph.num_nodes)
    if checked_backend(backend) != "reference":
        return SampledEdges(*native.edges_between(graph, row, column))
    found = sampling_reference.edges_between(graph.offsets, graph.ids, row, column)
    return SampledEdges(found[0], found[1], graph.numbered(found[2]))


def induced_subgraph(
    graph: CompressedGraph, nodes: ArrayLike, *, backend: str | None = None
) -> SampledEdges:
    """Find all edges among ``nodes`` (unique)."""
    return edges_between(graph, nodes, nodes, backend=backend)


class Choice:
    """A distribution over items, with probabilities proportional to weights.

    Args:
        weights: numbers ≥ 0, some of them above.

    """

    def __init__(self, weights: ArrayLike) -> None:
        values = np.asarray(weights, dtype=np.float64)
        if values.ndim != 1:
            raise input_error("weights", "a vector", f"shape {list(values.shape)}")
        sound = np.isfinite(values) & (values >= 0)
        if not sound.all():
            place = int(np.argmin(sound))
            raise input_error(
                "weights", "finite numbers, none below 0", f"{values[place]} at {place}"
            )
        self._sums = np.cumsum(values)
        if len(values) == 0 or not 0 < self._sums[-1] < np.inf:
            total = float(values.sum())
            raise InputError(f"'weights' must have a finite sum above 0, theirs is {total}")
        #: The probability of each item.
        self.probabilities: NDArray[np.float64] = values / self._sums[-1]

    def draw(self, count: int, *, seed: int) -> Ints:
        """Draw ``count`` items independently, with replacement: int64 [count]."""
        words = random_words(_checked_seed(seed), np.arange(count))
        # Items of weight 0 repeat the sum before them, and the first sum above is another's.
        items: Ints = np.searchsorted(self._sums, fractions(words) * self._sums[-1], side="right")
        return items


def checked_fanouts(name: str, fanouts: Sequence[int]) -> Ints:
    """Convert fan-outs to an array; refuse an empty list and numbers neither positive nor -1."""
    counts = list(fanouts)
    if not counts or any(
        not isinstance(count, int | np.integer) or (count < 1 and count != -1) for count in counts
    ):
        raise input_error(name, "a number of neighbours per hop, 1 or more (-1: all)", counts)
    return np.array(counts, dtype=np.int64)


def sorted_unique(nodes: Ints) -> Ints:
    """Find the distinct ids, rising; sorting is ten times as fast as NumPy's hashing here."""
    rising: Ints = np.sort(nodes, axis=None)
    is_first = np.ones(len(rising), dtype=np.bool_)
    is_first[1:] = rising[1:] != rising[:-1]
    return np.asarray(rising[is_first])


def _checked_seed(seed: int) -> int:
    if not 0 <= seed < 1 << 64:
        raise input_error("seed", "from 0 to 2**64 - 1", seed)
    return int(seed)


def _vector(name: str, values: ArrayLike) -> Ints:
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return np.empty(0, dtype=np.int64)  # a list without items counts as floats
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise input_error(
            name, "a vector of integers", f"{array.dtype} of shape {list(array.shape)}"
        )
    return native.readable(array, np.int64)


def _check_range(name: str, ids: NDArray[Any], num_nodes: int) -> None:
    if len(ids) and not 0 <= ids.min() <= ids.max() < num_nodes:
        raise input_error(name, f"node ids in 0..{num_nodes - 1}", f"{ids.min()}..{ids.max()}")


def _nodes(name: str, values: ArrayLike, num_nodes: int) -> Ints:
    nodes = _vector(name, values)
    _check_range(name, nodes, num_nodes)
    return nodes


def _unique_nodes(name: str, values: ArrayLike, num_nodes: int) -> Ints:
    nodes = _nodes(name, values, num_nodes)
    if len(sorted_unique(nodes)) != len(nodes):
        in_order = np.sort(nodes)
        twice = int(in_order[1:][in_order[1:] == in_order[:-1]][0])
        raise input_error(name, "unique node ids", f"{twice} more than once")
    return nodes
