"""The part of a graph that a few nodes' predictions depend on."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.compressed_rows import entries_of, rows_and_sources, take_rows
from bignn.kernels.layer import Edges
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.network import Network, aggregation_of, reads_neighbours
from bignn.runtime.operations import GRAPHWIDE, Operation
from bignn.runtime.packed_graph import Members, PackedGraph

Nodes = NDArray[np.int64]
#: A packed graph with nodes of one type, or of several.
AnyPackedGraph = PackedGraph | PackedHeteroGraph

# Surroundings are found, cut out and bound anew, by one thread, while what a whole graph is bound
# to is kept from call to call. Seconds that this takes, per call, entry and row that is read
# (`benchmarks/some_nodes.py`), in the planner's own measure.
_CALL_SECONDS = 0.6e-3
_ENTRY_SECONDS = 12e-9
_SOURCE_SECONDS = 50e-9
# What an entry or a row of an operation without a plan takes, in NumPy, at hidden layers' widths.
_UNPLANNED_SECONDS = 1e-6
# From so many rows on, the sources of every fourth are found first: they may be too many already.
_MANY_ROWS = 4096


class _TooManyError(Exception):
    """Surroundings that take longer than all nodes would."""


def find_surroundings(
    graph: AnyPackedGraph, network: Network, nodes: Nodes, seconds: float
) -> Surroundings | None:
    """Find what some nodes' predictions depend on; None where predicting all nodes costs less.

    Args:
        graph: the graph.
        network: the model's operations.
        nodes: the nodes, rising.
        seconds: what the packed layers are predicted to take for all nodes.

    """
    try:
        return Surroundings(graph, network, nodes, seconds)
    except _TooManyError:
        return None


class Surroundings:
    """The nodes and edges that some nodes' predictions depend on.

    Attributes:
        values: the nodes (graphs, of what is pooled) at which each value of the rest is needed,
            rising.
        layers: the nodes that each packed layer makes.
        first: the nodes whose features are read.

    """

    def __init__(
        self, graph: AnyPackedGraph, network: Network, nodes: Nodes, seconds: float = math.inf
    ) -> None:
        self._graph = graph
        rest = [aggregation_of(step) for step in network.rest if reads_neighbours(step)]
        layers = [layer.aggr for layer in network.layers]
        in_rest, in_layers = (sum(map(self._size, aggrs)) for aggrs in (rest, layers))
        whole = seconds + _UNPLANNED_SECONDS * in_rest
        self._per_entry = whole / max(in_rest + in_layers, 1) + _ENTRY_SECONDS
        self._left = whole - _CALL_SECONDS
        self.values: dict[str, Nodes] = {network.result: nodes}
        for step in reversed(network.rest):
            wanted = self.values[step.out]
            if reads_neighbours(step):
                wanted = self._sources(aggregation_of(step), wanted)
            elif isinstance(step, Operation) and step.op == "pool":
                wanted = np.sort(self._one_type.members(wanted).rows)
            elif isinstance(step, Operation) and step.op in GRAPHWIDE:
                wanted = self._rows_of_norm(step, wanted)
            for name in step.inputs:
                self._want(name, wanted)
        self.layers: list[Nodes] = []
        below: Nodes | None = None if network.rest else nodes
        for number in range(len(network.layers) - 1, -1, -1):
            kept = [name for name, (layer, _) in network.kept.items() if layer == number]
            readers = [self.values[name] for name in kept]
            rows = _union(readers if below is None else [*readers, below])
            for name in kept:
                self.values[name] = rows
            self.layers.insert(0, rows)
            below = self._sources(network.layers[number].aggr, rows, number + 1)
        if below is not None:
            self._want(network.source, below)
        if not network.inputs:
            self.first = self.values[network.source]

    @property
    def _one_type(self) -> PackedGraph:
        assert isinstance(self._graph, PackedGraph)
        return self._graph

    def edges(self, aggr: str, taken: Nodes, made: Nodes) -> Edges:
        """Return edges from the nodes ``taken`` to the nodes ``made``, both rising."""
        whole = self._graph.edges(aggr)
        scale = None if whole.source_scale is None else whole.source_scale[taken]
        if _has_own(whole):
            rows = take_rows(whole.offsets, whole.ids, whole.weights, made, taken)
            offsets, ids, weights, own = rows
        else:
            offsets, entries = entries_of(whole.offsets, made)
            ids = np.searchsorted(taken, whole.ids[entries]).astype(np.int32)
            weights = None if whole.weights is None else whole.weights[entries]
            own = np.zeros(len(made), dtype=np.int32)
        return Edges(offsets, ids, weights, whole.target_factor[made], len(taken), own, scale)

    def members(self, step: Operation) -> Members:
        """Return the nodes of the graphs that an operation makes, as places in what it takes."""
        taken, made = self.values[step.inputs[0]], self.values[step.out]
        graphs = made if step.op == "pool" else self._one_type.graphs_of(made)
        rows, offsets = self._one_type.members(graphs)
        return Members(np.searchsorted(taken, rows), offsets)

    def _rows_of_norm(self, step: Operation, made: Nodes) -> Nodes:
        """Return all rows that the statistics of some rows are taken over, rising."""
        if isinstance(self._graph, PackedHeteroGraph):
            return np.arange(self._graph.nodes[str(step.node_type)].num_nodes)
        if step.is_pooled:
            return np.arange(self._graph.num_graphs)
        graphs = self._graph.graphs_of(made) if step.parameters.get("per_graph") else None
        return np.sort(self._graph.members(graphs).rows)

    def _want(self, name: str, nodes: Nodes) -> None:
        known = self.values.get(name)
        self.values[name] = nodes if known is None else _union([known, nodes])

    def _size(self, aggr: str, nodes: Nodes | None = None) -> int:
        """Count the entries and rows of an aggregation, of all nodes or some."""
        whole = self._graph.edges(aggr)
        if nodes is None:
            return len(whole.ids) + whole.num_rows
        return int((whole.offsets[nodes + 1] - whole.offsets[nodes]).sum()) + len(nodes)

    def _sources(self, aggr: str, nodes: Nodes, layers: int = 1) -> Nodes:
        """Return nodes and their neighbours, rising; neighbours alone where they are others.

        ``layers`` are still to be made, this one among them: none has fewer rows than the one
        above it.
        """
        whole = self._graph.edges(aggr)
        cost = self._per_entry * self._size(aggr, nodes)
        self._check(cost * (layers if _has_own(whole) else 1))
        self._left -= cost
        if _has_own(whole):
            if layers > 1 and len(nodes) >= _MANY_ROWS:
                some = rows_and_sources(whole.offsets, whole.ids, nodes[::4].copy())
                self._check(self._per_entry * self._size(aggr, some) * (layers - 1))
            found = rows_and_sources(whole.offsets, whole.ids, nodes)
        else:
            _, entries = entries_of(whole.offsets, nodes)
            found = np.unique(whole.ids[entries]).astype(np.int64)
        self._left -= _SOURCE_SECONDS * len(found)
        self._check(0.0)
        return found

    def _check(self, seconds: float) -> None:
        """Give up where so much and what is spent already is more than all nodes cost."""
        if self._left < seconds:
            raise _TooManyError


def _has_own(edges: Edges) -> bool:
    """Whether targets are among the sources: edges of a whole graph, between nodes of one type."""
    return edges.own_ids is None


def _union(sets: list[Nodes]) -> Nodes:
    if all(some is sets[0] for some in sets):
        return sets[0]
    return np.unique(np.concatenate(sets)).astype(np.int64)
