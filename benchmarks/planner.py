"""Does the planner choose well? Every way of random layers, and of the bench graphs, is timed.

    python benchmarks/planner.py [--shapes 50] [--backend avx2] [--threads 2] [--seed 0] [--graphs]
                                 [--cpu-time]

For every problem: the plan that the planner chose, the fastest plan, and how many times as long as
the fastest the chosen one takes. Plans take turns, and the least of their times counts. With
--cpu-time it is processor time of whole predictions, for one thread on cores that others use too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import product

import numpy as np

from bignn import kernels
from bignn.cost.units import _problem, _Shape
from bignn.graph import EMBEDDED
from bignn.kernels.threads import get_num_threads, set_num_threads
from bignn.lab.bench.problems import make_problem
from bignn.lab.bench.shapes import SHAPES
from bignn.runtime import PackedGraph, PackedModel

#: Times a plan: model, graph, plan, backend.
Timed = Callable[[PackedModel, PackedGraph, str, str], float]


def random_shape(rng: np.random.Generator) -> _Shape:
    """Draw a graph and a model of two layers, small enough to time every plan."""
    degree = int(2 ** rng.uniform(1, 6.5))
    nodes = int(min(2 ** rng.uniform(9, 17), 2e6 / degree))
    inputs = int(2 ** rng.uniform(4, 12.5))
    hidden = int(2 ** rng.uniform(3, 9))
    classes = int(2 ** rng.uniform(1, 5.6))
    ones = max(1, int(inputs / 2 ** rng.uniform(3, 8))) if rng.random() < 0.5 else None
    bits = int(rng.choice([7, 17]))
    return _Shape(nodes, degree, (inputs, hidden, classes), (), ones=ones, edge_bits=bits)


def wall_time(model: PackedModel, graph: PackedGraph, plan: str, backend: str) -> float:
    """Return the seconds of all layers."""
    taken = model.explain(graph, plan=plan, backend=backend)
    return sum(layer.measured or 0.0 for layer in taken.layers)


def cpu_time(model: PackedModel, graph: PackedGraph, plan: str, backend: str) -> float:
    """Return the processor's seconds of a prediction."""
    model.predict(graph, plan=plan, backend=backend)  # binds the layers
    begin = time.process_time()
    model.predict(graph, plan=plan, backend=backend)
    return time.process_time() - begin


def compare(
    name: str, model: PackedModel, graph: PackedGraph, backend: str, rounds: int, timed: Timed
) -> float:
    """Time all plans of a problem; print a line and return how much worse the chosen one is."""
    chosen = model.explain(graph, backend=backend, measure=False)
    ways = [
        [way for way, cost in layer.seconds.items() if cost < np.inf] for layer in chosen.layers
    ]
    plans = ["".join(letters) for letters in product(*ways)]
    least = dict.fromkeys(plans, np.inf)
    for _ in range(rounds):
        for plan in plans:
            least[plan] = min(least[plan], timed(model, graph, plan, backend))
    best = min(plans, key=lambda plan: least[plan])
    ratio = least[chosen.ways] / least[best]
    print(
        f"{name:<52}{chosen.ways:>5}{1e3 * least[chosen.ways]:>10.3f}"
        f"{1e3 * chosen.predicted():>10.3f}{best:>6}{1e3 * least[best]:>10.3f}{ratio:>8.2f}",
        flush=True,
    )
    return float(ratio)


def main() -> None:
    """Print a line per problem, and the worst ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", type=int, default=50)
    parser.add_argument("--backend")
    parser.add_argument("--threads", type=int, default=get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--graphs", action="store_true", help="the bench graphs too")
    parser.add_argument("--cpu-time", action="store_true", help="processor time instead of time")
    options = parser.parse_args()
    timed = cpu_time if options.cpu_time else wall_time
    if options.cpu_time and options.threads != 1:
        parser.error("--cpu-time counts what waiting threads take too; use it with --threads 1")
    set_num_threads(options.threads)
    backend = kernels.checked_backend(options.backend)
    header = ("chosen", "ms", "predicted", "best", "ms", "ratio")
    print(f"{f'{backend}, {options.threads} threads':<51}{header[0]:>6}{header[1]:>10}"
          f"{header[2]:>10}{header[3]:>6}{header[4]:>10}{header[5]:>8}")  # fmt: skip
    ratios = []
    rng = np.random.default_rng(options.seed)
    for _ in range(options.shapes):
        shape = random_shape(rng)
        sizes = "-".join(map(str, shape.sizes))
        name = f"{shape.nodes} x {shape.degree}, {sizes}, {shape.ones or 'dense'}, "
        model, graph = _problem(shape, rng)
        ratios.append(
            compare(f"{name}{shape.edge_bits} bits", model, graph, backend, options.rounds, timed)
        )
    for name in (*EMBEDDED, *SHAPES) if options.graphs else ():
        scale = 0.1 if name in ("reddit", "products") else 1.0
        problem = make_problem(name, scale=scale, epochs=0)
        label = name if scale == 1 else f"{name} x {scale}"
        graph = problem.packed_graph()
        ratios.append(compare(label, problem.packed, graph, backend, options.rounds, timed))
    worst = sorted(ratios, reverse=True)[:5]
    over = sum(ratio > 1.3 for ratio in ratios)
    print(f"{over} of {len(ratios)} over 1.3; worst {', '.join(f'{ratio:.2f}' for ratio in worst)}")


if __name__ == "__main__":
    main()
