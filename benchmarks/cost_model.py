"""Does predicted time agree with measured time, by the planner's operations and by the paper's?

    python benchmarks/cost_model.py [--threads 2] [--scale 0.1] [--rounds 3] [cora flickr ...]

For each shape of `bignn bench`: milliseconds of the packed Bi-GCN, and predicted / measured with

- planner: the operations that the packed engine does, at the planner's constants,
- units: the same operations, at unit costs measured by `bignn.cost.calibrate`,
- cycles: the paper's cycle operations, times the one unit cost that the same calibration gives.

Unit costs are measured before every timing, and the median of the ratios is printed: on a machine
with neighbours both change from minute to minute. `--scale` is that of reddit and products.
"""

from __future__ import annotations

import argparse
import statistics

import bignn
from bignn.cost import Sizes, calibrate, estimate
from bignn.graph import EMBEDDED
from bignn.lab.bench.problems import CitationProblem, Problem, ShapeProblem
from bignn.lab.bench.shapes import SHAPES
from bignn.lab.bench.timing import measure

LARGE = ("reddit", "products")


def problem_of(name: str, scale: float) -> tuple[Problem, Sizes]:
    """Make a bench problem and its sizes."""
    if name in EMBEDDED:
        citation = CitationProblem(name, epochs=0)
        return citation, Sizes.of(citation.graph)
    problem = ShapeProblem(name, scale=scale if name in LARGE else 1.0)
    edges = (len(problem.ids) - problem.num_nodes) // 2
    return problem, Sizes(problem.num_nodes, edges, problem.sizes[0], problem.sizes[-1])


def compare(name: str, scale: float, rounds: int) -> str:
    """Write a line of the table."""
    problem, sizes = problem_of(name, scale)
    packed, graph = problem.packed, problem.packed_graph()
    cycle_ops = estimate(problem.model, sizes).cycle_ops
    ratios: dict[str, list[float]] = {"planner": [], "units": [], "cycles": []}
    times = []
    for _ in range(rounds):
        calibration = calibrate()
        taken = measure({"packed": lambda: packed.predict(graph)}, rounds=7, budget=5.0)["packed"]
        plan = packed.explain(graph, measure=False)
        # The fastest burst, as calibration takes the least of several times.
        ratios["planner"].append(plan.predicted() / taken.fastest)
        ratios["units"].append(plan.predicted(calibration.units) / taken.fastest)
        ratios["cycles"].append(calibration.cycle * cycle_ops / taken.fastest)
        times.append(1e3 * taken.fastest)
    label = f"{name} x {scale:g}" if name in LARGE and scale != 1 else name
    columns = "".join(f"{statistics.median(found):>10.2f}" for found in ratios.values())
    spread = f"{min(ratios['units']):.2f} to {max(ratios['units']):.2f}"
    picosecond = 1e9 * statistics.median(times) / cycle_ops
    return (
        f"{label:<16}{plan.ways:<6}{statistics.median(times):>12.3f}{columns}{spread:>16}"
        f"{picosecond:>16.0f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("shapes", nargs="*", default=[*EMBEDDED, *SHAPES])
    options = parser.parse_args()
    bignn.set_num_threads(options.threads)
    print(
        f"{'':<16}{'plan':<6}{'measured ms':>12}{'planner':>10}{'units':>10}{'cycles':>10}"
        f"{'units, spread':>16}{'ps per cycle op':>16}"
    )
    for shape in options.shapes:
        print(compare(shape, options.scale, options.rounds), flush=True)
