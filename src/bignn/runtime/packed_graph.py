"""The packed graph: features as bits, edges in compressed rows; packs, saves and opens itself."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, input_error
from bignn.graph import Graph, Graphs, join
from bignn.graph.hetero import HeteroDataLike
from bignn.graph.names import Names
from bignn.kernels.compressed_rows import compress_edges, entries_of, in_order_of_rows
from bignn.kernels.edge_kinds import (
    EDGE_KINDS,
    WITH_SELF_LOOPS,
    WeightUse,
    split_relation,
    weigh_edges,
)
from bignn.kernels.gcn_degrees import gcn_degree_scale, with_self_loops
from bignn.kernels.layer import DenseBits, Edges, PackedFeatures, SparseBits
from bignn.runtime import tensors
from bignn.runtime.features import read_features
from bignn.runtime.graph_checks import check_graph
from bignn.runtime.graph_file import (
    LABELS,
    OPTIONAL_ARRAYS,
    Adjacency,
    graph_attributes,
    graph_parts,
)
from bignn.runtime.hetero_graph import PackedHeteroGraph, pack_hetero_graph
from bignn.runtime.node_order import Order, check_order, in_locality_order
from bignn.runtime.read_only import freeze, read_only, read_only_features

if TYPE_CHECKING:
    from bignn.runtime.packed_model import PackedModel

Floats = NDArray[np.float32]


class Members(NamedTuple):
    """The nodes of some graphs: those of graph g are ``rows[offsets[g]:offsets[g + 1]]``."""

    rows: NDArray[np.int64]
    offsets: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """Packed features and a graph's neighbours, made by :func:`pack_graph`.

    Rows are the nodes as they were given, or in another order (``node_ids``). Predictions, their
    ``nodes`` and the labels are by the nodes' given numbers whatever the order is.

    Attributes:
        features: bits (:class:`DenseBits` or :class:`SparseBits`), or floats [N, d] for models that
            do not binarize their input.
        num_features: d, the columns of ``features``; where the model encodes its input, its bits.
        beta: scale of each row of bits, float32 [N]; None with float features.
        offsets, ids, weights: row i has the neighbours ``ids[offsets[i]:offsets[i + 1]]``;
            weights are None where all are 1.
        degree_scale: ``1 / sqrt(degree)`` of A + I, float32 [N].
        input_digest: fingerprint of the input stage that the features were packed with.
        labels: ``y`` and the splits, where the graph had them.
        name: where the graph came from, for messages.
        adjacency: ``"gcn"`` if every node is among its neighbours, once; ``"plain"`` if the edges
            are as they were given, which layers that tell a node from its neighbours need.
        node_ids: the given number of the node in each row, int32 or int64 [N]; None where row i is
            node i.
        graph_offsets: of many graphs packed as one, graph g has the nodes (by their given numbers)
            from ``graph_offsets[g]`` up to ``graph_offsets[g + 1]``; None for one graph.
        edge_types: the relation of each entry of ``ids``, int32; None where models read none.
        node_names: names of the nodes by their given numbers; nodes beyond the last name, which a
            live graph got later, have none. None where nodes go by their numbers.
        class_names: names of the classes of ``labels["y"]``; None where these go by their numbers.

    All arrays are read-only, since native code relies on their having been checked; of arrays that
    could be written to through another name, the graph has copies.

    """

    features: PackedFeatures | Floats
    num_features: int
    beta: Floats | None
    offsets: NDArray[np.int64]
    ids: NDArray[Any]
    weights: Floats | None
    degree_scale: Floats
    input_digest: str
    labels: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    name: str = "graph"
    adjacency: Adjacency = "gcn"
    node_ids: NDArray[Any] | None = None
    graph_offsets: NDArray[np.int64] | None = None
    edge_types: NDArray[np.int32] | None = None
    node_names: Names | None = None
    class_names: tuple[str, ...] | None = None
    _edges: dict[str, Edges] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        # Native code relies on the arrays, so they are checked and cannot be written to after.
        for name in ("offsets", "ids", "degree_scale", *OPTIONAL_ARRAYS):
            object.__setattr__(self, name, read_only(getattr(self, name)))
        object.__setattr__(self, "features", read_only_features(self.features))
        labels = {key: read_only(values) for key, values in self.labels.items()}
        object.__setattr__(self, "labels", labels)
        check_graph(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return PackedGraph, tuple(getattr(self, field.name) for field in fields(self) if field.init)

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.degree_scale)

    @property
    def num_graphs(self) -> int:
        """Number of graphs that were packed as one."""
        return 1 if self.graph_offsets is None else len(self.graph_offsets) - 1

    def members(self, graphs: NDArray[np.int64] | None = None) -> Members:
        """Return the rows of the nodes of some graphs, or of all."""
        offsets = self.graph_offsets
        if offsets is None:
            offsets = np.array([0, self.num_nodes])
        if graphs is None:
            nodes = np.arange(self.num_nodes)
        else:
            offsets, nodes = entries_of(offsets, graphs)
        return Members(nodes if self.places is None else self.places[nodes], offsets)

    def graphs_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the graphs that some rows are of, rising."""
        if self.graph_offsets is None:
            return np.zeros(1, dtype=np.int64)
        nodes = rows if self.node_ids is None else self.node_ids[rows]
        return np.unique(np.searchsorted(self.graph_offsets, nodes, side="right") - 1)

    @cached_property
    def places(self) -> NDArray[np.int64] | None:
        """The row of each node, int64 [N]; None where row i is node i."""
        if self.node_ids is None:
            return None
        places = np.empty(self.num_nodes, dtype=np.int64)
        places[self.node_ids] = np.arange(self.num_nodes)
        freeze(places)
        return places

    @property
    def bits(self) -> tuple[PackedFeatures, Floats]:
        """The features as bits, and their scales β; an error where features are floats."""
        if isinstance(self.features, np.ndarray) or self.beta is None:
            raise InputError("the graph was packed for a model that reads floats; it has no bits")
        return self.features, self.beta

    @property
    def num_entries(self) -> int:
        """Number of entries of all neighbour lists."""
        return len(self.ids)

    @property
    def edge_bytes(self) -> int:
        """Bytes of the neighbour lists and edge weights."""
        arrays = (self.offsets, self.ids, self.weights, self.degree_scale, self.edge_types)
        return sum(array.nbytes for array in arrays if array is not None)

    @property
    def feature_bytes(self) -> int:
        """Bytes of the features, β included."""
        if isinstance(self.features, DenseBits):
            size = self.features.words.nbytes
        elif isinstance(self.features, SparseBits):
            size = sum(
                array.nbytes
                for array in (self.features.offsets, self.features.inputs, self.features.base)
            )
        else:
            size = self.features.nbytes
        return size + (0 if self.beta is None else self.beta.nbytes)

    @cached_property
    def num_relations(self) -> int:
        """Number of relations that edges are of; 0 without edge types."""
        types = self.edge_types
        return 0 if types is None or not types.size else int(types.max()) + 1

    def edges(self, aggr: str = "gcn") -> Edges:
        """Return edges of all nodes, weighed as an aggregation (or ``"attention"``) asks for.

        Edge weights count in ``"gcn"`` and its kin and where the name says so, as in PyG's layers.
        A name that ends in ``/r`` is of the edges of relation r alone.
        """
        if aggr not in self._edges:
            self._edges[aggr] = self._made_edges(aggr)
        return self._edges[aggr]

    def _made_edges(self, name: str) -> Edges:
        aggr, relation = split_relation(name)
        kind = EDGE_KINDS[aggr]
        has_loops = kind.loops == ("added" if self.adjacency == "gcn" else "given")
        if relation is None and has_loops and (aggr == "gcn" or kind.factor in ("none", "mean")):
            offsets, ids = self.offsets, self.ids
            weights = self.weights if kind.is_weighted else None
            scale, factor = None, np.ones(self.num_nodes, dtype=np.float32)
            if kind.factor == "mean":
                factor /= np.maximum(np.diff(offsets), 1).astype(np.float32)
        else:
            target = np.repeat(np.arange(self.num_nodes), np.diff(self.offsets))
            ids, weights = self.ids, self.weights
            if relation is not None:
                kept = np.flatnonzero(self.edge_types == relation)
                ids, target = ids[kept], target[kept]
                weights = None if weights is None else weights[kept]
            weighed = weigh_edges(aggr, ids, target, weights, self.num_nodes)
            offsets, ids, weights = compress_edges(*weighed[:3], self.num_nodes)
            scale, factor = weighed.source_factor, weighed.target_factor
            freeze(offsets, ids, weights)
        if name == "gcn":
            scale = factor = self.degree_scale
        freeze(scale, factor)
        return Edges(offsets, ids, weights, factor, self.num_nodes, None, scale)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> PackedGraph:
        """Open a packed graph's file: mapped into memory, read from disk when used.

        The header and small arrays are always compared with their digest. With ``verify`` all of
        the file is read once and compared with its digest too.
        """
        known = {tensors.GRAPH_FORMAT: graph_reader(path)}
        return tensors.open_as(path, known, verify=verify)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph to a ``.bigraph`` file; :meth:`open` reads it."""
        tensors.check_suffix(path, tensors.GRAPH_SUFFIX)
        tensors.write(path, *self.parts())

    def parts(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays and the header of the graph's file."""
        return graph_parts(self)

    def __repr__(self) -> str:
        form = type(self.features).__name__ if not isinstance(self.features, np.ndarray) else "x"
        return (
            f"PackedGraph({self.name!r}, nodes={self.num_nodes}, entries={self.num_entries}, "
            f"features={self.num_features} ({form}, {self.feature_bytes:,} bytes)"
            f"{'' if self.node_ids is None else ', in an order of its own'})"
        )


@overload
def pack_graph(graph: Graphs, *, like: PackedModel, order: Order | None = None) -> PackedGraph: ...


@overload
def pack_graph(
    graph: HeteroDataLike, *, like: PackedModel, order: None = None
) -> PackedHeteroGraph: ...


def pack_graph(
    graph: Graphs | HeteroDataLike, *, like: PackedModel, order: Order | None = None
) -> PackedGraph | PackedHeteroGraph:
    """Pack a graph, or many as one, for a model, with the model's input statistics.

    Labels are not needed; classes of nodes come along, all others are left out. Edge weights are
    left out, with a warning, where the model was trained without any.

    Args:
        graph: a :class:`bignn.Graph` or a PyG ``Data`` with as many features as the model reads; or
            many graphs: a list of them, or a PyG ``Batch``; or a ``HeteroData`` for a heterogeneous
            model.
        like: the model that will read it, or any with the same statistics.
        order: ``"locality"`` packs nodes so that neighbours are near each other in memory, which
            makes predictions of large graphs with communities faster (docs/design.md); None packs
            them as given. Predictions are by the given numbers, and the same, either way.

    """
    check_order(order)
    network = getattr(like, "network", None)
    if network is not None and network.inputs:
        if order is not None:
            raise input_error("order", "None for a heterogeneous model", repr(order))
        return pack_hetero_graph(cast(HeteroDataLike, graph), network)
    graph, graph_offsets = join(cast(Graphs, graph))
    stage = getattr(network, "input", None)
    if network is None or stage is None:
        raise input_error("like", "a packed model", type(like).__name__, "make one with bignn.pack")
    if graph.num_features != stage.num_features:
        expected = f"one with {stage.num_features} features per node"
        raise input_error("graph", expected, graph.num_features)
    if network.edge_weight != "used":
        graph = _without_weights(graph, network.edge_weight)
    features, beta = read_features(stage, graph)
    source, target = graph.edge_index
    edges = source, target, graph.edge_weight
    scale = gcn_degree_scale(*edges, graph.num_nodes)
    adjacency: Adjacency = "gcn" if network.aggregations <= {*WITH_SELF_LOOPS} else "plain"
    if adjacency == "gcn":
        edges = with_self_loops(*edges, graph.num_nodes)
    offsets, ids, weights = compress_edges(*edges, graph.num_nodes)
    types = _edge_types(graph, network.num_relations)
    freeze(types, beta, offsets, ids, weights, scale, graph_offsets)
    if isinstance(features, DenseBits):
        freeze(features.words)
    elif isinstance(features, SparseBits):
        freeze(features.offsets, features.inputs, features.base)
    labels = {key: values for key in LABELS if (values := getattr(graph, key)) is not None}
    names = None if graph.node_names is None else Names.of(graph.node_names)
    classes = None if graph.class_names is None else tuple(graph.class_names)
    packed = PackedGraph(
        features, stage.num_columns, beta, offsets, ids, weights, scale, stage.digest(), labels,
        graph.name, adjacency, None, graph_offsets, types, names, classes,
    )  # fmt: skip
    return packed if order is None else in_locality_order(packed)


def _without_weights(graph: Graph, use: WeightUse) -> Graph:
    """Leave the weights of a graph's edges out for a model that was trained without them."""
    if graph.edge_weight is None:
        return graph
    if not (graph.edge_weight == 1).all():
        if use == "refused":
            expected = "one without edge weights, which only some of the model's layers read"
            raise input_error("graph", expected, "one with 'edge_weight'")
        warnings.warn(
            "'edge_weight' is not used: the model was trained without edge weights", stacklevel=3
        )
    return replace(graph, edge_weight=None)


def _edge_types(graph: Graph, num_relations: int) -> NDArray[np.int32] | None:
    """Return the relation of each packed edge, for a model of so many; None for a model of 0."""
    if not num_relations:
        return None
    if graph.edge_type is None:
        expected = "one with 'edge_type', the relation of each edge"
        raise input_error("graph", expected, "none", "a PyG Data has it as data.edge_type [E]")
    types = graph.edge_type.astype(np.int32)
    source, target = graph.edge_index
    return in_order_of_rows(types, source, target, graph.num_nodes)


def graph_reader(
    path: str | os.PathLike[str],
) -> Callable[[Mapping[str, NDArray[Any]], Mapping[str, Any]], PackedGraph]:
    """Make a function that reads a graph from arrays and a header, and names it by its path."""
    return lambda arrays, header: PackedGraph(
        **graph_attributes(arrays, header), name=os.fspath(path)
    )
