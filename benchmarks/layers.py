"""Where do packed layers spend their time: instructions or memory, neighbours, bits or products?

    python benchmarks/layers.py [--threads 1] [flickr arxiv ...]

For each shape: the time of each layer, and the same when all neighbours are the same 64 nodes,
whose rows are then in the first cache: what is left are the instructions. Then the time per row of
one layer of way G at several sizes and degrees, whose differences are the costs of outputs (lookup
product, end of the row), inputs (tables) and neighbours (bits). Medians.
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

import bignn
from bignn.lab.bench.problems import ShapeProblem
from bignn.lab.bench.shapes import SHAPES, Shape
from bignn.runtime import PackedGraph, PackedModel

#: Inputs, outputs, neighbours of a row besides itself.
SIZES = [(256, 16, 2), (256, 256, 2), (256, 512, 2), (256, 16, 14), (256, 256, 14), (602, 256, 490)]


def layer_ms(packed: PackedModel, graph: PackedGraph, plan: str | None, runs: int) -> list[float]:
    """Median milliseconds of each layer."""
    found = []
    for _ in range(runs):
        packed.predict(graph, plan=plan)
        layers = packed.explain(graph, plan=plan).layers
        found.append([1e3 * (layer.measured or 0) for layer in layers])
    return [statistics.median(times) for times in zip(*found, strict=True)]


def of_shape(name: str, scale: float) -> None:
    """Print a shape's layers, as they are and out of the cache."""
    problem = ShapeProblem(name, scale=scale)
    packed = problem.packed
    graph = problem.packed_graph()
    plan = packed.explain(graph).ways
    real = layer_ms(packed, graph, plan, 5)
    problem.ids = (problem.ids % 64).astype(np.int32)
    cached = layer_ms(packed, problem.packed_graph(), plan, 5)
    for number, (ours, least) in enumerate(zip(real, cached, strict=True)):
        print(
            f"{name} layer {number}, way {plan[number]}: {ours:.1f} ms, in the cache {least:.1f} ms"
        )


def of_sizes(rows: int = 20_000) -> None:
    """Print the time per row of way G."""
    for inputs, outputs, degree in SIZES:
        SHAPES["made up"] = Shape(rows, rows * degree // 2, (inputs, outputs, 16))
        problem = ShapeProblem("made up")
        first = layer_ms(problem.packed, problem.packed_graph(), "GT", 9)[0]
        print(
            f"{inputs} inputs, {outputs} outputs, {degree + 1} neighbours: "
            f"{1e6 * first / rows:.0f} ns per row"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("shapes", nargs="*", default=["flickr", "arxiv"])
    options = parser.parse_args()
    if options.threads is not None:
        bignn.set_num_threads(options.threads)
    for shape in options.shapes:
        of_shape(shape, options.scale)
    of_sizes()
