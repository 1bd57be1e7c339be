"""Measures a planned model: random weights, packed and run on a graph of the planned size, beside
what was estimated.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from bignn import kernels
from bignn.cost import Architecture, Sizes, calibrate, estimate
from bignn.cost.units import random_bits
from bignn.errors import InputError, input_error
from bignn.graph import Graph
from bignn.kernels.layer import DenseBits, PackedFeatures
from bignn.kernels.threads import get_num_threads
from bignn.lab.bench.peak_memory import memory_bytes
from bignn.lab.bench.shapes import skewed_graph
from bignn.lab.bench.timing import measure
from bignn.nn import GNN
from bignn.packing import pack
from bignn.runtime import PackedGraph, PackedModel, pack_graph

# Bytes per entry of A + I while a random graph is made: ends, their order, and the sorted ids.
_PER_ENTRY = 40
# Of the memory; the rest is for others, and for what is not foreseen.
_SHARE = 0.6


def run(architecture: Architecture, graph: Graph | Sizes, *, scale: float = 1.0) -> dict[str, Any]:
    """Measure the model, or the binary version of a float one.

    Args:
        architecture: what to build.
        graph: the graph, or the sizes of a random one with skewed degrees.
        scale: nodes and edges of a random graph times this.

    """
    if not (0 < scale <= 1):
        raise input_error("scale", "above 0 and at most 1", scale)
    if architecture.binarize == "none":
        architecture = architecture.twin
    if isinstance(graph, Graph):
        if scale != 1:
            raise input_error("scale", "1 where the graph itself is measured", scale)
        sizes = Sizes.of(graph)
    else:
        nodes, edges = (max(2, round(size * scale)) for size in (graph.nodes, graph.edges))
        sizes = replace(graph, nodes=nodes, edges=edges)
    _check_memory(architecture, sizes)
    _log(f"packing {sizes.nodes:,} nodes, {sizes.edges:,} edges")
    packed, features = _problem(architecture, graph if isinstance(graph, Graph) else sizes)
    _log("timing")
    taken = measure({"packed": lambda: packed.predict(features)}, rounds=11, budget=10.0)["packed"]
    counted = estimate(architecture, sizes)
    report = {
        "binarize": architecture.binarize,
        "synthetic": isinstance(graph, Sizes),
        "scale": scale,
        "nodes": sizes.nodes,
        "edges": sizes.edges,
        "threads": get_num_threads(),
        "model_bytes": packed.sizes.weights,
        "data_bytes": features.feature_bytes,
        "estimated_model_bytes": counted.model_bytes,
        "estimated_data_bytes": counted.data_bytes,
        "cycle_ops": counted.cycle_ops,
        "ms": 1e3 * taken.median,
        "fastest_ms": 1e3 * taken.fastest,
    }
    return report | _predicted(packed, features, counted.cycle_ops)


def _predicted(packed: PackedModel, features: PackedGraph, cycle_ops: float) -> dict[str, Any]:
    """Predict milliseconds from the planner's operations and from cycle operations, at unit costs
    measured now; None where a part of the model runs in NumPy, which no unit cost covers.
    """
    report: dict[str, Any] = dict.fromkeys(("plan", "predicted_ms", "cycle_ms"))
    if packed.network.rest or kernels.checked_backend(None) == "reference":
        return report
    _log("measuring unit costs")
    calibration = calibrate()
    plan = packed.explain(features)
    report["plan"] = plan.ways
    report["predicted_ms"] = 1e3 * plan.predicted(calibration.units)
    report["cycle_ms"] = 1e3 * calibration.cycle * cycle_ops
    return report


def _problem(architecture: Architecture, graph: Graph | Sizes) -> tuple[PackedModel, PackedGraph]:
    torch.manual_seed(0)
    is_real = isinstance(graph, Graph)
    model = GNN(**asdict(architecture), normalize_rows=is_real)
    if isinstance(graph, Graph):
        model.fit_input(torch.from_numpy(graph.dense_x()))
        packed = pack(model.eval())
        return packed, pack_graph(graph, like=packed)
    model.input_stage.is_fitted.fill_(True)  # mean 0, scale 1
    model.load_state_dict(model.state_dict())
    packed = pack(model.eval())
    return packed, _random_graph(architecture, graph, packed)


def _random_graph(architecture: Architecture, sizes: Sizes, packed: PackedModel) -> PackedGraph:
    rng = np.random.default_rng(0)
    offsets, ids = skewed_graph(sizes.nodes, sizes.edges, rng)
    degree_scale = (1 / np.sqrt(np.diff(offsets))).astype(np.float32)
    is_plain = not packed.network.aggregations.isdisjoint(("mean", "sum"))
    if is_plain:
        rows = np.repeat(np.arange(sizes.nodes, dtype=ids.dtype), np.diff(offsets))
        ids = ids[rows != ids]
        offsets = offsets - np.arange(len(offsets))  # every row has one self-loop
    features: PackedFeatures | np.ndarray[Any, np.dtype[np.float32]]
    num_columns = packed.network.input.num_columns
    beta = None
    if architecture.has_binary_features:
        features = DenseBits(random_bits(sizes.nodes, num_columns, rng))
        beta = rng.random(sizes.nodes, dtype=np.float32) + np.float32(0.5)
    else:
        features = rng.standard_normal((sizes.nodes, sizes.features), dtype=np.float32)
    return PackedGraph(
        features, num_columns, beta, offsets, ids, None, degree_scale, packed.input_digest,
        adjacency="plain" if is_plain else "gcn",
    )  # fmt: skip


def _check_memory(architecture: Architecture, sizes: Sizes) -> None:
    """Refuse a graph that would not fit memory, before it is made."""
    entries = 2 * sizes.edges + sizes.nodes
    layers = architecture.layers
    widest = max(layer.outputs for layer in layers)
    in_floats = architecture.binarize != "both" or architecture.jk == "cat"
    activations = sizes.nodes * widest * (8 if in_floats else 3)
    data = estimate(architecture, sizes).data_bytes
    needed = _PER_ENTRY * entries + 2 * data + activations
    most = _SHARE * memory_bytes()
    if needed > most:
        raise InputError(
            f"to measure {sizes.nodes:,} nodes and {sizes.edges:,} edges takes about "
            f"{needed / 1e9:.1f} GB, over {_SHARE:.0%} of this machine's memory; measure a part of "
            f"a random graph: --scale {0.9 * most / needed:.2g}"
        )


def _log(text: str) -> None:
    print(f"bignn cost: {text}", file=sys.stderr, flush=True)
