"""Packed layers among other operations, bound to a graph; bindings are kept from call to call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from bignn.bits import words_per_row
from bignn.kernels import native
from bignn.kernels.layer import BinaryLayer, DenseBits, Edges
from bignn.kernels.packed_layers import PackedLayers
from bignn.runtime.neighbourhood import AnyPackedGraph
from bignn.runtime.network import PackedStep
from bignn.runtime.planner import plan_layers
from bignn.runtime.values import Bits, Floats

#: Runs a packed layer on bits, over edges.
RunLayer = Callable[[PackedStep, Bits, Edges], Floats]
# Bindings kept per graph and layer: their buffers are as large as the activations.
_MOST_IDLE = 1


class BoundLayer:
    """A layer with its edges and buffers; one thread at a time may run it."""

    def __init__(self, layer: BinaryLayer, edges: Edges, backend: str) -> None:
        shape = edges.num_sources, words_per_row(layer.num_inputs)
        features = DenseBits(np.zeros(shape, dtype=np.uint64))
        layers = [replace(layer, keep=frozenset(["values"]))]
        threads = native.num_threads()
        plan = plan_layers(layers, [edges], features, backend=backend, threads=threads)
        beta = np.ones(edges.num_sources, dtype=np.float32)
        self._layers = PackedLayers(layers, [edges], plan.ways, features, beta, backend)

    def run(self, value: Bits) -> Floats:
        """Compute the layer's values, read-only; the next run overwrites them."""
        self._layers.replace_features(value.words, value.beta)
        self._layers.run_kept()
        values: Floats = self._layers.kept(0, "values")
        return values


class BoundLayers:
    """Bindings of layers to whole graphs, kept for as long as each graph lives.

    Allocating their buffers anew costs more than a layer's arithmetic on a large graph.
    """

    def __init__(self) -> None:
        self._idle: WeakKeyDictionary[Any, dict[Any, list[BoundLayer]]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    @contextmanager
    def lent(self, graph: AnyPackedGraph, backend: str) -> Iterator[RunLayer]:
        """Lend a function that runs layers; its results are valid until the end."""
        lent: list[tuple[Any, BoundLayer]] = []

        def run(step: PackedStep, value: Bits, edges: Edges) -> Floats:
            if (nothing := values_of_nothing(step.layer, edges)) is not None:
                return nothing
            key = step, backend, native.num_threads()
            with self._lock:
                idle = self._idle.setdefault(graph, {}).get(key)
                bound = idle.pop() if idle else None
            lent.append((key, bound or BoundLayer(step.layer, edges, backend)))
            return lent[-1][1].run(value)

        yield run
        with self._lock:
            for key, bound in lent:
                idle = self._idle.setdefault(graph, {}).setdefault(key, [])
                if len(idle) < _MOST_IDLE:
                    idle.append(bound)


def run_once(backend: str) -> RunLayer:
    """Make a function that runs layers on a part of a graph, and keeps nothing."""

    def run(step: PackedStep, value: Bits, edges: Edges) -> Floats:
        nothing = values_of_nothing(step.layer, edges)
        return BoundLayer(step.layer, edges, backend).run(value) if nothing is None else nothing

    return run


def values_of_nothing(layer: BinaryLayer, edges: Edges) -> Floats | None:
    """Compute the values of rows that have nothing to sum, perhaps no rows; None where some do."""
    if layer.own is not None or len(edges.ids):
        return None
    return np.tile(layer.shift, (edges.num_rows, 1))
