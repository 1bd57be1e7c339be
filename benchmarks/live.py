"""How fast is a live graph updated? Updates per second, rows computed, and PyG beside it.

Run: .venv/bin/python benchmarks/live.py [--shape arxiv] [--conv gcn] [--scale 1] [--threads 2]
     [--batches 1,10,100,1000] [--rounds 30] [--features] [--pyg 2] [--compare]
     [--cpu-time]

The graph is a shape of ``bignn bench`` (random, skewed degrees) with an untrained binary model of
the paper's widths. An update adds an undirected edge between two random nodes (both directions), or
takes such an edge away again; with ``--features`` it gives one node new features. Every batch is
one call of ``LiveGraph.update``. Printed are updates per second and the median of a call, rows
computed per layer and the share of them that came out as they were (where the wave stops), and,
for some batches, the time of PyG's own way: the three-hop surroundings of the changed nodes
(``k_hop_subgraph``, kept edges in ``edge_index``), and a float GCN's forward on them. Last, the
time of a full packed run. ``--compare`` checks at the end that every bit, scale and class equals a
fresh run of the changed graph. ``--cpu-time`` counts processor time (of both threads together), for
machines that others use as well.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from numpy.typing import NDArray
from torch_geometric.utils import k_hop_subgraph

import bignn
from bignn.lab.bench.problems import Problem, make_problem
from bignn.runtime import LiveGraph

Clock = Callable[[], float]


def edge_updates(
    rng: np.random.Generator, num_nodes: int, count: int, added: list[NDArray[np.int64]]
) -> dict[str, Any]:
    """Draw edges to add; every second batch takes away those of the one before."""
    if added:
        return {"remove_edges": added.pop()}
    ends = rng.integers(0, num_nodes, (2, count))
    ends[1] = np.where(ends[0] == ends[1], (ends[1] + 1) % num_nodes, ends[1])
    added.append(np.concatenate([ends, ends[::-1]], axis=1))
    return {"add_edges": added[-1]}


def time_updates(live: LiveGraph, batch: int, rounds: int, *, features: bool, now: Clock) -> None:
    """Print one line for a size of batch."""
    rng = np.random.default_rng(batch)
    seconds: list[float] = []
    work: list[list[tuple[int, int]]] = []
    added: list[NDArray[np.int64]] = []
    classes = 0
    for turn in range(2 * rounds + 2):
        if features:
            nodes = rng.choice(live.num_nodes, batch, replace=False)
            x = rng.standard_normal((batch, live.model.num_features)).astype(np.float32)
            changes: dict[str, Any] = {"nodes": nodes, "x": x}
        else:
            changes = edge_updates(rng, live.num_nodes, batch, added)
        start = now()
        changed = live.update(**changes)
        if turn < 2:  # the first pair touches fresh memory
            continue
        seconds.append(now() - start)
        work.append([(some.rows, some.changed) for some in live.work])
        classes += len(changed)
    rows, new = np.array(work).mean(axis=0).T
    stopped = 1 - new / np.maximum(rows, 1)
    middle = statistics.median(seconds)
    print(
        f"batches of {batch:>5}: {batch * len(seconds) / sum(seconds):>9,.0f} updates/s, median "
        f"{1e3 * middle:8.3f} ms a call; rows by layer {[round(some) for some in rows]}, of which "
        f"as before {[f'{100 * some:.0f} %' for some in stopped]}, "
        f"{classes / len(seconds):.1f} new classes",
        flush=True,
    )


def time_pyg(problem: Problem, batches: list[int], rounds: int, now: Clock) -> None:
    """Print what recomputing the same surroundings takes with PyG, float weights."""
    edges = torch.from_numpy(np.stack([problem.ids, problem.rows]).astype(np.int64))
    x = torch.from_numpy(problem.raw_features())
    hops = len(problem.sizes) - 1
    kinds = {"gcn": pyg.GCN, "sage": pyg.GraphSAGE, "gat": pyg.GAT}
    model = kinds[problem.conv](x.shape[1], problem.sizes[1], hops, problem.sizes[-1]).eval()
    rng = np.random.default_rng(0)
    for batch in batches:
        seconds = []
        for _ in range(rounds):
            ends = torch.from_numpy(rng.integers(0, problem.num_nodes, 2 * batch))
            start = now()
            with torch.no_grad():
                # Nodes whose answers change, then all that these answers are computed from.
                out, *_ = k_hop_subgraph(
                    ends, hops, edges, num_nodes=problem.num_nodes, flow="target_to_source"
                )
                nodes, part, place, _ = k_hop_subgraph(
                    out, hops, edges, relabel_nodes=True, num_nodes=problem.num_nodes
                )
                model(x[nodes], part)[place].argmax(dim=1)
            seconds.append(now() - start)
        middle = statistics.median(seconds)
        print(
            f"PyG, batches of {batch:>5}: {batch / middle:>9,.1f} updates/s, median "
            f"{1e3 * middle:.0f} ms",
            flush=True,
        )


def main() -> None:
    """Print all lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="arxiv")
    parser.add_argument("--conv", default="gcn", choices=("gcn", "sage", "gat"))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batches", default="1,10,100,1000")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--features", action="store_true")
    parser.add_argument("--pyg", type=int, default=2)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    bignn.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    now = time.process_time if options.cpu_time else time.perf_counter
    batches = [int(batch) for batch in options.batches.split(",")]
    problem = make_problem(options.shape, conv=options.conv, scale=options.scale, epochs=0)
    graph, model = problem.packed_graph(), problem.packed
    start = now()
    live = model.live(graph)
    print(
        f"{options.shape}, {options.conv}, {live.num_nodes:,} nodes, {graph.num_entries:,} entries,"
        f" {options.threads} threads: live in {now() - start:.2f} s, "
        f"{live.nbytes / 2**20:.0f} MiB (packed graph "
        f"{(graph.edge_bytes + graph.feature_bytes) / 2**20:.0f} MiB)",
        flush=True,
    )
    for batch in batches:
        time_updates(live, batch, options.rounds, features=options.features, now=now)
    full = []
    for _ in range(7):
        start = now()
        model.predict(graph)
        full.append(now() - start)
    print(f"full packed run: median {1e3 * statistics.median(full):.1f} ms")
    if options.compare:
        fresh = live.packed_graph()
        same = (live.predict(output="logits") == model.predict(fresh, output="logits")).all()
        print(f"logits equal those of a fresh run: {bool(same)}")
    if options.pyg:
        time_pyg(problem, batches[:3], options.pyg, now)


if __name__ == "__main__":
    main()
