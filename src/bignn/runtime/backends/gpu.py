"""The GPU backend: plans a model's packed layers, binds them to graphs on a GPU, and keeps them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from bignn.errors import input_error
from bignn.kernels.cuda.device import cuda_device
from bignn.kernels.cuda.layers import CudaLayers, ways_of
from bignn.kernels.cuda.memory import Device
from bignn.kernels.cuda.prepared import TILE_COLUMNS, padded_inputs
from bignn.kernels.layer import BinaryLayer, Edges, Way
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.planner import LayerPlan, Plan, Work, forced_ways, seconds_of

#: What planning counts with, in seconds, measured on an H200.
UNITS = {
    "launch": 3e-6,
    "weight": 7e-12,
    "attention": 8e-11,
    "row": 2e-10,
    # Way T: bits multiplied, bytes of records read, and a row's columns added up and finished.
    "record bit": 1.6e-14,
    "record byte": 5.5e-13,
    "record row": 9e-10,
    "record column": 3.8e-12,
    # Way G: bytes of bits read, sums of bits, their products with B, and columns finished.
    "bits byte": 4.5e-13,
    "sum": 6e-13,
    "product": 4e-15,
    "column": 6e-13,
}

# A gather moves whole sectors of the device's memory.
_SECTOR = 32
_MOST_SOURCES = 2**31 - 1


class GpuBackend:
    """Plans and bindings of a model's packed layers on GPUs, kept for as long as each graph lives.

    Several threads may use it at once; a binding is lent to one of them, and others wait for it,
    since a graph and its buffers are on the device once.
    """

    def __init__(
        self, layers: Sequence[BinaryLayer], open_device: Callable[[int], Device] = cuda_device
    ) -> None:
        self._layers = list(layers)
        self._open_device = open_device
        self._plans: WeakKeyDictionary[PackedGraph, dict[Any, Plan]] = WeakKeyDictionary()
        self._bound: WeakKeyDictionary[PackedGraph, dict[Any, CudaLayers]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def why_not(self, kind: str) -> str | None:
        """Return why the layers cannot be computed on a GPU; None if they can."""
        if not self._layers:
            return "the model has no layers of binary features and weights"
        device = self._open_device(device_number(kind))
        for number, layer in enumerate(self._layers):
            if not ways_of(device, layer):
                return f"layer {number} is too wide ({layer.num_inputs} x {layer.num_columns})"
        return None

    def plan(self, graph: PackedGraph, forced: str | None, kind: str) -> Plan:
        """See the protocol."""
        key = repr(forced), kind
        known = self._plans.setdefault(graph, {}).get(key)
        if known is None:
            device = self._open_device(device_number(kind))
            known = plan_on_gpu(self._layers, self._edges(graph), device, forced)
            self._plans[graph][key] = known
        return known

    @contextmanager
    def lent(self, graph: PackedGraph, plan: Plan, kind: str) -> Iterator[CudaLayers]:
        """See the protocol."""
        with self._lock:
            kept = self._bound.setdefault(graph, {})
            key = plan.ways, kind
            bound = kept.pop(key, None)
            if bound is None:
                kept.clear()  # another plan's buffers
                bound = self.bind(graph, plan, kind)
            yield bound
            kept[key] = bound

    def bind(self, graph: PackedGraph, plan: Plan, kind: str) -> CudaLayers:
        """Bind the layers to all nodes of a graph: copy it to the device and allocate buffers."""
        if graph.num_nodes > _MOST_SOURCES:
            raise input_error("graph", f"one of up to {_MOST_SOURCES} nodes", graph.num_nodes)
        features, beta = graph.bits
        device = self._open_device(device_number(kind))
        return CudaLayers(device, self._layers, self._edges(graph), plan.ways, features, beta)

    def _edges(self, graph: PackedGraph) -> list[Edges]:
        return [graph.edges(layer.aggr) for layer in self._layers]


def is_gpu(kind: str) -> bool:
    """Whether a kind of backend is a GPU."""
    return kind.startswith("cuda")


def checked_device(device: str) -> str:
    """Return a device's name, ``"cpu"``, ``"cuda"`` or ``"cuda:1"``, or raise what is expected."""
    if device == "cpu":
        return device
    if not isinstance(device, str) or not re.fullmatch(r"cpu|cuda(:\d{1,3})?", device):
        raise input_error("device", "'cpu', 'cuda' or 'cuda:N'", repr(device))
    return device


def device_number(kind: str) -> int:
    """Return the number of a GPU that is named as ``"cuda"`` or ``"cuda:1"``."""
    return int(kind.partition(":")[2] or 0)


def plan_on_gpu(
    layers: Sequence[BinaryLayer],
    edges: Sequence[Edges],
    device: Device,
    forced: str | None = None,
    units: Mapping[str, float] = UNITS,
) -> Plan:
    """Choose a way for each layer, T or G; ``forced`` is as in ``plan_layers``."""
    ways = forced_ways(forced, len(layers), None)
    plan = Plan(threads=1, units=units)
    for number, (layer, block) in enumerate(zip(layers, edges, strict=True)):
        possible = ways_of(device, layer)
        inputs, columns = padded_inputs(layer.num_inputs), layer.num_columns
        rows, sources, entries = block.num_rows, block.num_sources, len(block.ids)
        weighed: Work = {"weight": entries * layer.heads, "row": rows}
        if layer.attention is not None:
            weighed["attention"] = entries * layer.heads
        work: dict[Way, Work] = {}
        touched: dict[Way, int] = {}
        touched["T"] = entries * _rounded_up(columns, _SECTOR)
        touched["G"] = entries * max(_SECTOR, inputs // 8)
        if "T" in possible:
            made = {"launch": 3, "record bit": sources * inputs * columns}
            summed = {"record byte": touched["T"], "record row": rows}
            work["T"] = weighed | made | summed | {"record column": rows * columns}
        if "G" in possible:
            padded = _rounded_up(columns, TILE_COLUMNS)
            made = {"launch": 2, "bits byte": touched["G"], "sum": rows * inputs}
            ended = {"product": rows * inputs * padded, "column": rows * padded}
            work["G"] = weighed | made | ended
        seconds: dict[Way, float] = {way: seconds_of(done, units) for way, done in work.items()}
        choice = min(seconds, key=lambda way: seconds[way]) if ways is None else ways[number]
        if choice not in work:
            expected = " or ".join(repr(way) for way in work)
            raise input_error("plan", f"{expected} for layer {number} on a GPU", repr(forced))
        plan.layers.append(LayerPlan(layer.num_inputs, columns, choice, work, seconds, touched))
    return plan


def _rounded_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
