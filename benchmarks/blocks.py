"""How long does way T take in blocks of sources, neighbour by neighbour, and way G beside it?

    .venv/bin/python benchmarks/blocks.py [--shape reddit] [--scale 1] [--threads 2] [--rounds 7]

Runs the packed Bi-GCN of a shape of ``bignn bench shapes`` by the plans named below, in turns, and
prints the median milliseconds of each layer. All must give the same classes.
"""

from __future__ import annotations

import argparse
from statistics import median

import numpy as np

from bignn import set_num_threads
from bignn.kernels import native
from bignn.kernels.packed_layers import PackedLayers
from bignn.lab.bench.problems import make_problem

#: First letters of plans, and the logarithm of the sources in a block: 0 for none.
TRIED = (("G", 0), ("T", 0), ("T", 12), ("T", 13), ("T", 14))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="reddit")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    set_num_threads(given.threads)
    problem = make_problem(given.shape, scale=given.scale)
    graph, layers = problem.packed_graph(), problem.packed.network.layers
    edges = [graph.edges(layer.aggr) for layer in layers]
    features, beta = graph.bits
    backend = native.best()
    assert backend is not None
    print(f"{given.shape} x {given.scale}, {given.threads} threads, {backend}")
    bound = {}
    expected = None
    for first, shift in TRIED:
        ways = first + "T" * (len(layers) - 1)
        made = PackedLayers(layers, edges, ways, features, beta, backend, shift)
        classes = made.run_to_classes()
        expected = classes if expected is None else expected
        assert np.array_equal(classes, expected), (ways, shift)
        bound[f"{ways}, {f'blocks of 2^{shift}' if shift else 'no blocks'}"] = made
    times: dict[str, list[list[float]]] = {name: [] for name in bound}
    for _ in range(given.rounds):
        for name, made in bound.items():
            made.run_to_classes()
            times[name].append([1e3 * made.seconds(number) for number in range(len(layers))])
    for name, found in times.items():
        print(f"{name:<24}" + "".join(f"{median(some):>9.1f}" for some in zip(*found, strict=True)))


if __name__ == "__main__":
    main()
