"""The part of a graph that a few nodes' predictions depend on."""

from __future__ import annotations

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

# What an entry of surroundings costs, in entries of a whole graph: surroundings are cut out and
# bound anew, and what a whole graph is bound to is kept from call to call.
_ENTRY_COST = 2.0


class _TooManyError(Exception):
    """Surroundings that take longer than all nodes would."""


def find_surroundings(graph: AnyPackedGraph, network: Network, nodes: Nodes) -> Surroundings | None:
    """Find what some nodes' predictions depend on; None where predicting all nodes costs less."""
    try:
        return Surroundings(graph, network, nodes)
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

    def __init__(self, graph: AnyPackedGraph, network: Network, nodes: Nodes) -> None:
        self._graph = graph
        steps = [aggregation_of(step) for step in network.rest if reads_neighbours(step)]
        steps += [layer.aggr for layer in network.layers]
        #: Entries and rows that surroundings may have until all nodes cost less.
        edges = [graph.edges(aggr) for aggr in steps]
        whole = sum(len(some.ids) + some.num_rows for some in edges)
        self._left = whole / _ENTRY_COST
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
            below = self._sources(network.layers[number].aggr, rows)
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

    def _sources(self, aggr: str, nodes: Nodes) -> Nodes:
        """Return nodes and their neighbours, rising; neighbours alone where they are others."""
        whole = self._graph.edges(aggr)
        self._left -= int((whole.offsets[nodes + 1] - whole.offsets[nodes]).sum()) + len(nodes)
        if self._left < 0:
            raise _TooManyError
        if _has_own(whole):
            return rows_and_sources(whole.offsets, whole.ids, nodes)
        _, entries = entries_of(whole.offsets, nodes)
        return np.unique(whole.ids[entries]).astype(np.int64)


def _has_own(edges: Edges) -> bool:
    """Whether targets are among the sources: edges of a whole graph, between nodes of one type."""
    return edges.own_ids is None


def _union(sets: list[Nodes]) -> Nodes:
    if all(some is sets[0] for some in sets):
        return sets[0]
    return np.unique(np.concatenate(sets)).astype(np.int64)
