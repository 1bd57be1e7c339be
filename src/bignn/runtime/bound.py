"""A network's packed layers bound to graphs: plans, and the chains that run them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from bignn.kernels import native
from bignn.kernels.chain import Chain, Output
from bignn.kernels.operands import DenseBits, Edges, Features, Layer, SparseBits
from bignn.runtime.neighbourhood import Surroundings, take_features
from bignn.runtime.network import Network
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.planner import Plan, plan_layers

# Chains kept per graph and kind of call: their buffers are as large as the activations.
_MOST_IDLE = 4


class BoundLayers:
    """Plans and chains of one network, kept per graph for as long as the graph is there.

    Several threads may use it at once; a chain is lent to one of them.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        # Bound chains and their buffers, kept from call to call: allocating them anew costs as
        # much as a small graph's prediction. A chain is taken out while it runs.
        self._idle: WeakKeyDictionary[PackedGraph, dict[Any, list[Chain]]] = WeakKeyDictionary()
        # Likewise what was planned for a graph, by what was asked for.
        self._planned: WeakKeyDictionary[PackedGraph, dict[Any, str]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def plan(self, graph: PackedGraph, forced: str | None, backend: str) -> Plan:
        """How all nodes of a graph are predicted."""
        return self._plan(self._edges(graph), graph.features, forced, backend)

    def ways(self, graph: PackedGraph, forced: str | None, backend: str) -> str:
        """The plan's letters; a graph is planned for once."""
        asked_for = repr(forced), backend
        with self._lock:
            known = self._planned.setdefault(graph, {}).get(asked_for)
        if known is not None:
            return known
        found = self.plan(graph, forced, backend).ways
        with self._lock:
            self._planned[graph][asked_for] = found
        return found

    @contextmanager
    def lent(self, graph: PackedGraph, output: Output, ways: str, backend: str) -> Iterator[Chain]:
        """A chain of all nodes for the block; one that failed is not lent again."""
        key = output, ways, backend
        with self._lock:
            idle = self._idle.setdefault(graph, {}).get(key)
            kept = idle.pop() if idle else None
        chain = self.chain(graph, output, ways, backend) if kept is None else kept
        yield chain
        with self._lock:
            idle = self._idle.setdefault(graph, {}).setdefault(key, [])
            if len(idle) < _MOST_IDLE:
                idle.append(chain)

    def chain(self, graph: PackedGraph, output: Output, forced: str | None, backend: str) -> Chain:
        """A new chain of all nodes."""
        features, beta = _bits(graph)
        return self._chain(self._edges(graph), features, beta, output, forced, backend)

    def chain_around(
        self,
        graph: PackedGraph,
        around: Surroundings,
        output: Output,
        forced: str | None,
        backend: str,
    ) -> Chain:
        """A new chain of what some nodes depend on."""
        features, beta = _bits(graph)
        rows = [around.first, *around.layers]
        edges = [
            around.edges(layer.norm, rows[number], rows[number + 1])
            for number, layer in enumerate(self._network.layers)
        ]
        some = take_features(features, around.first)
        return self._chain(edges, some, beta[around.first], output, forced, backend)

    def _edges(self, graph: PackedGraph) -> list[Edges]:
        """Every packed layer's."""
        return [graph.edges(layer.norm) for layer in self._network.layers]

    def _plan(
        self, edges: Sequence[Edges], features: Any, forced: str | None, backend: str
    ) -> Plan:
        return plan_layers(
            [layer.weights for layer in self._network.layers],
            edges,
            features,
            has_lookup=backend == "avx512",
            forced=forced,
            threads=native.num_threads(),
        )

    def _chain(
        self,
        edges: Sequence[Edges],
        features: Features,
        beta: NDArray[np.float32],
        output: Output,
        forced: str | None,
        backend: str,
    ) -> Chain:
        plan = self._plan(edges, features, forced, backend)
        norms = [block.source_norm for block in edges]
        layers = [
            Layer(layer.weights, block, planned.way, norm, layer.keep)
            for layer, block, planned, norm in zip(
                self._network.layers, edges, plan.layers, [*norms[1:], None], strict=True
            )
        ]
        factor = beta if norms[0] is None else norms[0] * beta
        return Chain(layers, features, factor, output, backend)


def _bits(graph: PackedGraph) -> tuple[Features, NDArray[np.float32]]:
    assert isinstance(graph.features, DenseBits | SparseBits)
    assert graph.beta is not None
    return graph.features, graph.beta
