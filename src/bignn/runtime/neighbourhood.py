"""The part of a graph that a few nodes' predictions depend on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.compressed_rows import rows_and_sources, take_rows
from bignn.kernels.layer import Edges
from bignn.runtime.network import Network, aggregation_of, reads_neighbours
from bignn.runtime.operations import GRAPHWIDE, Operation
from bignn.runtime.packed_graph import Members, PackedGraph

Nodes = NDArray[np.int64]

# What an entry of surroundings costs, in entries of a whole graph: surroundings are cut out and
# bound anew, and what a whole graph is bound to is kept from call to call.
_ENTRY_COST = 2.0


class _TooManyError(Exception):
    """Surroundings that take longer than all nodes would."""


def find_surroundings(graph: PackedGraph, network: Network, nodes: Nodes) -> Surroundings | None:
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

    def __init__(self, graph: PackedGraph, network: Network, nodes: Nodes) -> None:
        self._graph = graph
        steps = [aggregation_of(step) for step in network.rest if reads_neighbours(step)]
        steps += [layer.aggr for layer in network.layers]
        #: Entries and rows that surroundings may have until all nodes cost less.
        whole = sum(len(graph.edges(aggr).ids) + graph.num_nodes for aggr in steps)
        self._left = whole / _ENTRY_COST
        self.values: dict[str, Nodes] = {network.result: nodes}
        for step in reversed(network.rest):
            wanted = self.values[step.out]
            if reads_neighbours(step):
                wanted = self._sources(aggregation_of(step), wanted)
            elif isinstance(step, Operation) and step.op == "pool":
                wanted = np.sort(graph.members(wanted).rows)
            elif isinstance(step, Operation) and step.op in GRAPHWIDE:
                wanted = np.arange(graph.num_nodes)
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
        self.first = self.values[network.source]

    def edges(self, aggr: str, taken: Nodes, made: Nodes) -> Edges:
        """Return edges from the nodes ``taken`` to the nodes ``made``, both rising."""
        whole = self._graph.edges(aggr)
        offsets, ids, weights, own = take_rows(whole.offsets, whole.ids, whole.weights, made, taken)
        scale = None if whole.source_scale is None else whole.source_scale[taken]
        return Edges(offsets, ids, weights, whole.target_factor[made], len(taken), own, scale)

    def members(self, taken: Nodes, graphs: Nodes) -> Members:
        """Return the nodes of some graphs as places among the nodes ``taken``, rising."""
        rows, offsets = self._graph.members(graphs)
        return Members(np.searchsorted(taken, rows), offsets)

    def _want(self, name: str, nodes: Nodes) -> None:
        known = self.values.get(name)
        self.values[name] = nodes if known is None else _union([known, nodes])

    def _sources(self, aggr: str, nodes: Nodes) -> Nodes:
        """Return nodes and their neighbours, rising, unless there are too many."""
        whole = self._graph.edges(aggr)
        entries = whole.offsets[nodes + 1] - whole.offsets[nodes]
        self._left -= int(entries.sum()) + len(nodes)
        if self._left < 0:
            raise _TooManyError
        return rows_and_sources(whole.offsets, whole.ids, nodes)


def _union(sets: list[Nodes]) -> Nodes:
    if all(some is sets[0] for some in sets):
        return sets[0]
    return np.unique(np.concatenate(sets)).astype(np.int64)
