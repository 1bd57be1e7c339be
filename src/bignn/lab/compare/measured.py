"""Measures a float model and its binary twins side by side on a graph."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bignn.capacity import recommend_width
from bignn.errors import InputError
from bignn.graph import Graph
from bignn.kernels.threads import get_num_threads
from bignn.lab.bench.compared_problem import ComparedProblem, NeighbourRows, float_contenders
from bignn.lab.bench.contenders import Contender, Packed
from bignn.lab.bench.peak_memory import peak_mib_of_trained
from bignn.lab.bench.rounds import time_beside
from bignn.lab.bench.timing import Seconds
from bignn.nn import GNN
from bignn.runtime import PackedGraph, PackedModel
from bignn.train.seeds import SeedResults

Row = dict[str, Any]


@dataclass
class TrainedModel:
    """A trained model of the seed with the lowest validation loss, and its packed form."""

    name: str
    trained: SeedResults
    model: GNN
    packed: PackedModel
    #: None where its features are floats.
    graph: PackedGraph | None

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of that seed."""
        return self.trained.checkpoints[self.trained.best]


def measure(
    dataset: str,
    graph: Graph,
    neighbours: NeighbourRows,
    family: Sequence[TrainedModel],
    rows: dict[str, Row],
    memory: bool,
) -> None:
    """Fill in the rows of a float model and its binary twins, timed in the same rounds."""
    float_one, *binary_ones = family
    problem = ComparedProblem(graph, float_one.model, neighbours=neighbours)
    packed: dict[str, Contender] = {}
    for one in binary_ones:
        if one.packed.network.layers:
            own = ComparedProblem(graph, float_one.model, one.model, neighbours)
            packed[one.name] = Packed(own)
            packed[one.name].load()
            rows[one.name] |= _packed_columns(one, graph)
    timed = time_beside(
        packed,
        float_contenders(problem.float_model),
        problem,
        log=lambda text: _log(f"{float_one.name}: {text}"),
    )
    ways = {key: _way(taken) for key, taken in timed.seconds.items()}
    for name in packed:
        rows[name]["ways"]["packed"] = ways.pop(name)
    rows[float_one.name]["ways"] = ways
    packed.clear()
    for one in family:
        _fill(dataset, float_one, one, rows[one.name], timed.machine_was_busy, memory)
    with_bits = [one for one in binary_ones if one.graph is not None]
    advice = _width(float_one.model, graph) if with_bits else None
    for one in with_bits:
        rows[one.name]["recommended_width"] = advice


def compared(plain: Row, binary: Row) -> dict[str, float | None]:
    """Compare a binary model with its float twin: accuracy in points, the rest as ratios."""
    nothing = {"ms": None, "fastest_ms": None, "peak_mib": None}
    pyg = plain["ways"].get("pyg", nothing)
    fastest = min((way["fastest_ms"] for way in plain["ways"].values()), default=None)

    def times(theirs: float | None, ours: float | None) -> float | None:
        return theirs / ours if theirs and ours else None

    return {
        "accuracy_points": binary["accuracy_mean"] - plain["accuracy_mean"],
        "model_times_smaller": times(plain["model_bytes"], binary["model_bytes"]),
        "data_times_smaller": times(plain["data_bytes"], binary["data_bytes"]),
        "memory_times_less": times(plain["peak_mib"], binary["peak_mib"]),
        "memory_times_less_than_pyg": times(pyg["peak_mib"], binary["peak_mib"]),
        "times_faster": times(plain["predict_ms"], binary["predict_ms"]),
        "times_faster_than_pyg": times(pyg["ms"], binary["predict_ms"]),
        "fastest_times_faster": times(fastest, binary["fastest_ms"]),
        "fastest_times_faster_than_pyg": times(pyg["fastest_ms"], binary["fastest_ms"]),
    }


def _way(taken: Seconds) -> Row:
    return {"ms": 1e3 * taken.median, "fastest_ms": 1e3 * taken.fastest, "peak_mib": None}


def _packed_columns(one: TrainedModel, graph: Graph) -> Row:
    assert one.graph is not None
    plan = one.packed.explain(one.graph)
    weight = None if graph.edge_weight is None else torch.from_numpy(graph.edge_weight)
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    same = one.packed.predict(one.graph) == one.model.predict(x, edges, weight).numpy()
    return {"agreement": float(same.mean()), "plan": plan.ways, "explained": str(plan)}


def _fill(
    dataset: str, float_one: TrainedModel, one: TrainedModel, row: Row, is_busy: bool, memory: bool
) -> None:
    """Fill in the fastest way, and the peak memory of it and of PyG's layers on an edge index."""
    judged_by = "fastest_ms" if is_busy else "ms"
    best = min(row["ways"], key=lambda key: float(row["ways"][key][judged_by]), default=None)
    for key, way in row["ways"].items():
        if memory and key in (best, "pyg"):
            _log(f"peak memory of {one.name} ({key})")
            binary = one.checkpoint if key == "packed" else None
            way["peak_mib"] = peak_mib_of_trained(
                dataset, float_one.checkpoint, binary, key, threads=get_num_threads()
            )
    if best is not None:
        row["machine_was_busy"] = is_busy
        row["predicted_by"] = best
        row["predict_ms"] = row["ways"][best]["ms"]
        row["fastest_ms"] = row["ways"][best]["fastest_ms"]
        row["peak_mib"] = row["ways"][best]["peak_mib"]


def _width(float_model: GNN, graph: Graph) -> dict[str, Any] | None:
    try:
        advice = recommend_width(float_model, graph)
    except InputError as error:
        _log(f"no width is recommended: {error}")
        return None
    return {
        "width": advice.width,
        "estimate": advice.estimate,
        "lower_bound": advice.lower_bound,
        "bins": advice.bins,
        "float_width": max((layer.width for layer in advice.layers if layer.is_hidden), default=0),
    }


def _log(text: str) -> None:
    print(f"bignn compare: {text}", file=sys.stderr, flush=True)
