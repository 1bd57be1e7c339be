"""Runs the operations of a network, packed layers on a CPU or a GPU and the rest in NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn import kernels
from bignn.kernels.layer import Edges
from bignn.kernels.reference import first_largest
from bignn.runtime import executor
from bignn.runtime.backends.base import Backend, Bound
from bignn.runtime.backends.bound_layers import BoundLayers, RunLayer, run_once
from bignn.runtime.backends.cpu import CpuBackend
from bignn.runtime.backends.gpu import GpuBackend, is_gpu
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.neighbourhood import AnyPackedGraph, Surroundings
from bignn.runtime.network import Network
from bignn.runtime.operations import Operation
from bignn.runtime.packed_graph import Members, PackedGraph
from bignn.runtime.predicted_values import Output, check_no_plan, input_value
from bignn.runtime.values import Bits, Floats, Value


class NetworkRunner:
    """Runs a network for all nodes of packed graphs, or for some.

    Attributes:
        network: the operations.
        cpu: what runs packed layers here.
        gpu: what runs them on GPUs, where there are any.

    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.cpu = CpuBackend(network.layers)
        self.gpu = GpuBackend(network.layers)
        self._bound_layers = BoundLayers()

    def backend(self, name: str) -> Backend:
        """Return what runs an instruction set, or a GPU, of this name."""
        return self.gpu if is_gpu(name) else self.cpu

    def run(
        self, graph: AnyPackedGraph, output: Output, plan: str | None, backend: str
    ) -> NDArray[Any]:
        """Predict all nodes of a graph."""
        if not self.network.layers:
            check_no_plan(plan)
            return self._run_rest(graph, None, None, output, backend)
        assert isinstance(graph, PackedGraph)
        where = self.backend(backend)
        planned = where.plan(graph, plan, backend)
        with where.lent(graph, planned, backend) as bound:
            return self._run_bound(graph, bound, None, output, backend)

    def predicted_seconds(self, graph: AnyPackedGraph, plan: str | None, backend: str) -> float:
        """Return what the packed layers are predicted to take for all nodes of a graph."""
        if not self.network.layers:
            return 0.0
        assert isinstance(graph, PackedGraph)
        return self.cpu.plan(graph, plan, backend).predicted()

    def run_some(
        self,
        graph: AnyPackedGraph,
        around: Surroundings,
        output: Output,
        plan: str | None,
        backend: str,
    ) -> NDArray[Any]:
        """Predict some nodes of a graph, from what they depend on."""
        if not self.network.layers:
            check_no_plan(plan)
            return self._run_rest(graph, None, around, output, backend)
        assert isinstance(graph, PackedGraph)
        bound = self.cpu.bind_around(graph, around, plan, backend)
        return self._run_bound(graph, bound, around, output, backend)

    def _run_bound(
        self,
        graph: PackedGraph,
        bound: Bound,
        around: Surroundings | None,
        output: Output,
        backend: str,
    ) -> NDArray[Any]:
        """Run packed layers and the operations after them, which the CPU does."""
        if self.network.rest:
            bound.run_kept()
            backend = kernels.checked_backend(None) if is_gpu(backend) else backend
            return self._run_rest(graph, bound, around, output, backend)
        return bound.run_to_classes() if output == "classes" else bound.run_to_values()

    def _run_rest(
        self,
        graph: AnyPackedGraph,
        bound: Bound | None,
        around: Surroundings | None,
        output: Output,
        backend: str,
    ) -> NDArray[Any]:
        """Run the operations that no packed layer does, for all nodes or some."""
        network = self.network
        values: dict[str, Value] = {}
        if isinstance(graph, PackedHeteroGraph):
            for kind, (_, name) in network.inputs.items():
                rows = None if around is None else around.values[name]
                values[name] = input_value(graph.nodes[kind], rows)
        elif any(network.source in step.inputs for step in network.rest):
            values[network.source] = input_value(graph, None if around is None else around.first)
        for name, (number, form) in network.kept.items():
            assert bound is not None
            kept = bound.kept(number, form)
            width = network.layers[number].num_outputs
            values[name] = Bits(kept[0], kept[1], width) if form == "bits" else kept

        def edges(aggr: str, taken: str, made: str) -> Edges:
            if around is None:
                return graph.edges(aggr)
            return around.edges(aggr, around.values[taken], around.values[made])

        def members(step: Operation) -> Members:
            assert isinstance(graph, PackedGraph)
            return graph.members() if around is None else around.members(step)

        def run(rows: Mapping[str, NDArray[np.int64]] | None, run_layer: RunLayer) -> Floats:
            return executor.run(network.rest, values, rows, edges, run_layer, backend, members)

        if around is not None:
            logits = run(around.values, run_once(backend))
            return first_largest(logits) if output == "classes" else logits
        with self._bound_layers.lent(graph, backend) as run_layer:
            logits = run(None, run_layer)
            # The next prediction overwrites a layer's values.
            return first_largest(logits) if output == "classes" else np.array(logits)
