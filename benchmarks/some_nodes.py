"""How long do predictions of 1, 10, ..., all nodes take? Never longer than all nodes should.

Run: .venv/bin/python benchmarks/some_nodes.py [--threads 2] [--rounds 9]
     [--nodes 100000] [--edges 2000000] [--layers 2] [--cpu-time] (a minute)

PubMed with an untrained Bi-GCN of the recipe's widths, and a random graph (skewed degrees, 64
normal features) with one of width 64. Nodes are drawn anew in every round; numbers of nodes take
turns, in another order in every round (the caches are full of what the one before left), and times
are medians, with the share of the time that all nodes take. ``--cpu-time`` counts
processor time, for machines that others use as well.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

import bignn
from bignn.graph import Graph
from bignn.lab.bench.problems import make_problem
from bignn.lab.bench.shapes import skewed_graph
from bignn.nn import GCN
from bignn.packing import pack
from bignn.runtime import PackedGraph, PackedModel, pack_graph

COUNTS = (1, 10, 100, 300, 1000, 3000, 10000)


def random_problem(num_nodes: int, num_edges: int, layers: int) -> tuple[PackedModel, PackedGraph]:
    """Make a random graph and an untrained model of width 64."""
    rng = np.random.default_rng(0)
    offsets, ids = skewed_graph(num_nodes, num_edges, rng)
    target = np.repeat(np.arange(num_nodes), np.diff(offsets))
    x = rng.standard_normal((num_nodes, 64), dtype=np.float32)
    torch.manual_seed(0)
    model = GCN(64, 64, layers, 10, binarize="both", normalize_rows=False)
    model.fit_input(torch.from_numpy(x))
    packed = pack(model.eval())
    return packed, pack_graph(Graph(x, np.stack([ids, target])), like=packed)


def print_times(
    name: str, model: PackedModel, graph: PackedGraph, rounds: int, *, cpu_time: bool
) -> None:
    """Print a line per number of nodes."""
    now = time.process_time if cpu_time else time.perf_counter
    rng = np.random.default_rng(1)
    counts = [count for count in COUNTS if count < graph.num_nodes]
    times: dict[int | None, list[float]] = {count: [] for count in (*counts, None)}
    for turn in range(rounds + 1):
        for place in rng.permutation(len(times)):
            count, found = list(times.items())[place]
            repeats = 10 if count is not None and count <= 10 else 1
            for _ in range(repeats):
                # Drawn before all nodes, too: it takes as much of the caches.
                nodes = rng.choice(graph.num_nodes, count or 10, replace=False)
                start = now()
                model.predict(graph, nodes if count is not None else None)
                if turn:  # the first touches fresh memory
                    found.append(now() - start)
    whole = statistics.median(times[None])
    print(f"{name}: {graph.num_nodes:,} nodes, {graph.num_entries:,} entries")
    for count, found in times.items():
        middle = statistics.median(found)
        shown = "all" if count is None else f"{count:,}"
        print(f"{shown:>8} nodes {1e3 * middle:9.3f} ms  {middle / whole:6.3f} of all", flush=True)


def main() -> None:
    """Print both graphs' times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    bignn.set_num_threads(options.threads)
    problem = make_problem("pubmed", epochs=0)
    print_times(
        "pubmed", problem.packed, problem.packed_graph(), options.rounds, cpu_time=options.cpu_time
    )
    made = random_problem(options.nodes, options.edges, options.layers)
    print_times("random", *made, options.rounds, cpu_time=options.cpu_time)


if __name__ == "__main__":
    main()
