"""The CPU backend: plans a model's packed layers, binds them to graphs, and keeps the bindings."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from bignn.kernels import native
from bignn.kernels.layer import BinaryLayer, Edges, PackedFeatures
from bignn.kernels.packed_layers import PackedLayers
from bignn.runtime.features import take_features
from bignn.runtime.neighbourhood import Surroundings
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.planner import Plan, plan_layers

# Bindings kept per graph and plan: their buffers are as large as the activations.
_MOST_IDLE = 4


class _Loan:
    """A binding that is given back at the end, unless it failed.

    A class, since a generator would take a hundredth of a small graph's prediction.
    """

    __slots__ = ("_bound", "_idle", "_lock")

    def __init__(self, bound: PackedLayers, idle: list[PackedLayers], lock: threading.Lock) -> None:
        self._bound, self._idle, self._lock = bound, idle, lock

    def __enter__(self) -> PackedLayers:
        return self._bound

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._lock:
                if len(self._idle) < _MOST_IDLE:
                    self._idle.append(self._bound)


class CpuBackend:
    """Plans and bindings of a model's packed layers, kept for as long as each graph lives.

    Several threads may use it at once; a binding is lent to one of them.
    """

    def __init__(self, layers: Sequence[BinaryLayer]) -> None:
        self._layers = list(layers)
        # Allocating buffers anew costs as much as a small graph's prediction, so bindings are kept
        # from call to call, and taken out while they run.
        self._idle: WeakKeyDictionary[PackedGraph, dict[Any, list[PackedLayers]]] = (
            WeakKeyDictionary()
        )
        self._plans: WeakKeyDictionary[PackedGraph, dict[Any, Plan]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def plan(self, graph: PackedGraph, forced: str | None, kind: str) -> Plan:
        """Plan how all nodes of a graph are predicted; a graph is planned for once."""
        asked_for = repr(forced), kind, native.num_threads()
        with self._lock:
            plans = self._plans.get(graph)
            known = plans.get(asked_for) if plans else None
        if known is None:
            features, _ = graph.bits
            known = self._planned(self._edges(graph), features, forced, kind)
            with self._lock:
                self._plans.setdefault(graph, {})[asked_for] = known
        return known

    def lent(self, graph: PackedGraph, plan: Plan, kind: str) -> _Loan:
        """Lend the layers bound to all nodes of a graph; one that failed is not lent again."""
        key = plan.ways, kind
        with self._lock:
            kept = self._idle.get(graph)
            idle = (self._idle.setdefault(graph, {}) if kept is None else kept).setdefault(key, [])
            bound = idle.pop() if idle else None
        return _Loan(self.bind(graph, plan, kind) if bound is None else bound, idle, self._lock)

    def bind(
        self, graph: PackedGraph, plan: Plan, backend: str, *, in_given_order: bool = False
    ) -> PackedLayers:
        """Bind the layers to all nodes of a graph.

        With ``in_given_order`` the last layer makes its rows in the order that nodes were given in.
        """
        features, beta = graph.bits
        edges = self._edges(graph)
        if in_given_order and graph.places is not None:
            edges[-1] = edges[-1].taken(graph.places)
        return PackedLayers(self._layers, edges, plan.ways, features, beta, backend)

    def bind_around(
        self, graph: PackedGraph, around: Surroundings, forced: str | None, backend: str
    ) -> PackedLayers:
        """Bind the layers to what some nodes depend on."""
        features, beta = graph.bits
        rows = [around.first, *around.layers]
        edges = [
            around.edges(layer.aggr, rows[number], rows[number + 1])
            for number, layer in enumerate(self._layers)
        ]
        some = take_features(features, around.first)
        ways = self._planned(edges, some, forced, backend).ways
        return PackedLayers(self._layers, edges, ways, some, beta[around.first], backend)

    def _edges(self, graph: PackedGraph) -> list[Edges]:
        return [graph.edges(layer.aggr) for layer in self._layers]

    def _planned(
        self, edges: Sequence[Edges], features: PackedFeatures, forced: str | None, backend: str
    ) -> Plan:
        return plan_layers(
            self._layers,
            edges,
            features,
            backend=backend,
            forced=forced,
            threads=native.num_threads(),
        )
