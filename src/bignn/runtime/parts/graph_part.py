"""A part of a graph: the nodes that one process owns, their edges, and the halo they read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words
from bignn.errors import InputError
from bignn.graph import SPLITS, Graph, SparseRows
from bignn.graph.split import has_many_labels
from bignn.kernels.compressed_rows import entries_of
from bignn.runtime.input_bits import choose_input_bits, is_dense
from bignn.runtime.input_stage import InputSpec
from bignn.runtime.parts.assignment import By, assign

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Partition:
    """What all parts of a graph have in common, and must agree on.

    Attributes:
        digest: fingerprint of the graph and of the assignment of its nodes.
        num_parts: k.
        by: ``"metis"`` or ``"ranges"``.
        name: the name of the graph, for messages.
        num_nodes, num_edges, num_features, num_classes: sizes of the whole graph.
        num_train: its training nodes.
        num_halo: rows that parts read of each other, all parts together.
        num_cut: edges between parts.
        x_entries: entries of sparse features; None where features are dense.
        input_bits: bits of each feature that recipes choose by the features (``config``).
        is_dense: whether recipes take the features for dense ones.
        class_names: names of the classes, where there are any.

    """

    digest: str
    num_parts: int
    by: str
    name: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    num_train: int
    num_halo: int
    num_cut: int
    x_entries: int | None
    input_bits: str
    is_dense: bool
    class_names: tuple[str, ...] | None = None

    @property
    def train_idx(self) -> range:
        """As many numbers as there are training nodes, which recipes depend on."""
        return range(self.num_train)

    def facts(self) -> dict[str, Any]:
        """Return the attributes as plain data."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class StoredBits:
    """Features of a part of a store: bits and scales as they are there.

    Attributes:
        words: bits of the owned nodes.
        beta: their scales β.
        stage: the input stage that both were made by.

    """

    words: Words
    beta: Floats
    stage: InputSpec


class PartSizes(NamedTuple):
    """What a part has of each, for reports."""

    number: int
    nodes: int
    edges: int
    halo: int


@dataclass(frozen=True, eq=False)
class GraphPart:
    """One part of a graph. Local rows are the owned nodes, then the halo.

    Attributes:
        partition: what all parts have in common.
        number: which part it is, from 0.
        nodes: numbers in the whole graph of the n owned nodes, rising.
        halo: numbers of the h nodes of other parts that edges come from, by part, rising in each.
        halo_offsets: those of part p are ``halo[halo_offsets[p]:halo_offsets[p + 1]]``.
        sent: owned rows that other parts have in their halos, in the order of these.
        sent_offsets: those of part p are ``sent[sent_offsets[p]:sent_offsets[p + 1]]``.
        offsets, ids, weights: owned row i has the sources ``ids[offsets[i]:offsets[i + 1]]``, local
            rows in the order given; weights are None where all are 1.
        x: features of the owned nodes; bits where a store was cut.
        y: their classes; None without labels.
        train_idx, val_idx, test_idx: owned rows of the splits; None where the graph has none.

    """

    partition: Partition
    number: int
    nodes: Ints
    halo: Ints
    halo_offsets: Ints
    sent: Ints
    sent_offsets: Ints
    offsets: Ints
    ids: NDArray[Any]
    weights: Floats | None
    x: Floats | SparseRows | StoredBits
    y: Ints | None = None
    train_idx: Ints | None = None
    val_idx: Ints | None = None
    test_idx: Ints | None = None

    @property
    def num_nodes(self) -> int:
        """Number of owned nodes, n."""
        return len(self.nodes)

    @property
    def name(self) -> str:
        """The name of the graph."""
        return self.partition.name

    @property
    def num_halo(self) -> int:
        """Number of rows of other parts that are read, h."""
        return len(self.halo)

    @property
    def num_local(self) -> int:
        """Number of local rows, n + h."""
        return self.num_nodes + self.num_halo

    @cached_property
    def edges(self) -> tuple[Ints, Ints, Floats | None]:
        """Sources and targets as local rows, and weights."""
        target = np.repeat(np.arange(self.num_nodes), np.diff(self.offsets))
        return self.ids.astype(np.int64), target, self.weights

    @property
    def sizes(self) -> PartSizes:
        """Numbers of nodes, edges and rows of other parts."""
        return PartSizes(self.number, self.num_nodes, len(self.ids), self.num_halo)

    def features_graph(self) -> Graph:
        """Return the owned nodes as a graph without edges, whose raw features can be read."""
        assert not isinstance(self.x, StoredBits), "a store has no raw features"
        return Graph(self.x, np.empty((2, 0), dtype=np.int64), name=self.partition.name)


def cut(graph: Graph, num_parts: int, by: By = "auto") -> Iterator[GraphPart]:
    """Cut a graph into parts, one after the other.

    Args:
        graph: the graph; edge types are not supported.
        num_parts: number of parts.
        by: how nodes are assigned, see :func:`bignn.runtime.parts.assignment.assign`.

    """
    if graph.edge_type is not None:
        raise InputError(
            "graphs with 'edge_type' cannot be cut into parts: layers of relations add up floats; "
            "predict them in one process"
        )
    owner, way = assign(graph, num_parts, by)
    yield from _parts(graph, owner, num_parts, way)


def _parts(graph: Graph, owner: NDArray[np.int32], num_parts: int, way: str) -> Iterator[GraphPart]:
    source, target = graph.edge_index
    of_edge = owner[target]
    crosses = owner[source] != of_edge
    # Each pair of a part and a node of another that it reads, once; by reader, owner and number.
    size = graph.num_nodes
    pairs = np.unique(of_edge[crosses].astype(np.int64) * size + source[crosses])
    reader, read = pairs // size, pairs % size
    read_from = owner[read]
    order = np.lexsort((read, read_from, reader))
    reader, read, read_from = reader[order], read[order], read_from[order]
    partition = _facts(graph, owner, num_parts, way, len(pairs), int(crosses.sum()))
    weight = graph.edge_weight
    if weight is not None and (weight == 1).all():
        weight = None
    by_part = np.argsort(of_edge, kind="stable")  # edges stay in the order given
    first = np.searchsorted(of_edge[by_part], np.arange(num_parts + 1))
    local = np.full(size, -1, dtype=np.int64)
    for part in range(num_parts):
        nodes = np.flatnonzero(owner == part)
        is_mine = reader == part
        halo = read[is_mine]
        local[nodes] = np.arange(len(nodes))
        # Others read what is mine: by reader, rising, which is the order of their halos.
        is_sent = read_from == part
        sent, sent_to = local[read[is_sent]], reader[is_sent]
        local[halo] = np.arange(len(nodes), len(nodes) + len(halo))
        chosen = by_part[first[part] : first[part + 1]]
        rows = local[target[chosen]]
        chosen = chosen[np.argsort(rows, kind="stable")]
        dtype = np.int32 if len(nodes) + len(halo) < 2**31 else np.int64
        yield GraphPart(
            partition,
            part,
            nodes,
            halo,
            _offsets(read_from[is_mine], num_parts),
            sent,
            _offsets(sent_to, num_parts),
            _offsets(local[target[chosen]], len(nodes)),
            local[source[chosen]].astype(dtype),
            None if weight is None else weight[chosen],
            _rows_of(graph.x, nodes),
            None if graph.y is None else graph.y[nodes],
            **{key: _owned(getattr(graph, key), owner, part, local) for key in SPLITS},
        )


def _facts(
    graph: Graph, owner: NDArray[np.int32], num_parts: int, way: str, num_halo: int, num_cut: int
) -> Partition:
    state = hashlib.blake2b(f"{graph.digest()} {num_parts};".encode(), digest_size=16)
    state.update(np.ascontiguousarray(owner).data)
    names = None if graph.class_names is None else tuple(graph.class_names)
    num_train = 0 if graph.train_idx is None else len(graph.train_idx)
    has_many = has_many_labels(graph.num_nodes, num_train)
    state.update(repr(names).encode())
    return Partition(
        digest=state.hexdigest(),
        num_parts=num_parts,
        by=way,
        name=graph.name,
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_features=graph.num_features,
        num_classes=graph.num_classes,
        num_train=num_train,
        num_halo=num_halo,
        num_cut=num_cut,
        x_entries=len(graph.x.indices) if isinstance(graph.x, SparseRows) else None,
        input_bits=choose_input_bits(graph.x, has_many_labels=has_many),
        is_dense=is_dense(graph.x),
        class_names=names,
    )


def _offsets(rising: NDArray[Any], count: int) -> Ints:
    """Return where each of ``count`` numbers begins in a rising array."""
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(rising, minlength=count), out=offsets[1:])
    return offsets


def _rows_of(x: Floats | SparseRows, nodes: Ints) -> Floats | SparseRows:
    if not isinstance(x, SparseRows):
        return np.ascontiguousarray(x[nodes])
    indptr, entries = entries_of(x.indptr, nodes)
    return SparseRows(indptr, x.indices[entries], x.values[entries], (len(nodes), x.shape[1]))


def _owned(idx: Ints | None, owner: NDArray[np.int32], part: int, local: Ints) -> Ints | None:
    return None if idx is None else local[idx[owner[idx] == part]]
