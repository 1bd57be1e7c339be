"""How fast is a live graph updated? Updates per second, rows computed, and PyG beside it.

Run: .venv/bin/python benchmarks/live.py [--shape arxiv] [--conv gcn] [--scale 1] [--epochs 0]
     [--threads 2] [--batches 1,10,100,1000] [--rounds 30] [--features] [--pyg 2] [--compare]
     [--cpu-time] [--without-sums] [--scale-bits 8]

The graph is a shape of ``bignn bench`` (random, skewed degrees) with an untrained binary model of
the paper's widths, or a dataset, whose model is trained for ``--epochs``. An update adds an
undirected edge between two random nodes (both directions), or takes such an edge away again; with
``--features`` it gives one node new features. Every batch is one call of ``LiveGraph.update``.

Printed are updates per second and the median of a call; for each layer the rows brought up to date,
how many of them by moving kept sums, the share of them that came out as they were (where the wave
stops), and the time it took. Then, for some batches, the time of PyG's own way: the surroundings
of the changed nodes (``k_hop_subgraph``, kept edges in ``edge_index``), and a float model's forward
on them; and of its forward on the whole graph, by ``edge_index`` and by a sparse matrix, which is
less where surroundings are most of the graph. Last, the time of a full packed run.

``--compare`` checks at the end that every logit equals a fresh run of the changed graph.
``--without-sums`` keeps no sums. ``--cpu-time`` counts processor time (of both threads together),
for machines that others use as well. ``--scale-bits`` counts, for batches of 100, the rows that
came out new in hidden layers, those whose bits are as before, and those whose scale is as before,
too, if it is rounded to so many significant bits.
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
    work: list[list[tuple[float, ...]]] = []
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
        work.append([tuple(some) for some in live.work])
        classes += len(changed)
    rows, new, moved, taken = np.array(work).mean(axis=0).T
    stopped = 1 - new / np.maximum(rows, 1)
    middle = statistics.median(seconds)
    print(
        f"batches of {batch:>5}: {batch * len(seconds) / sum(seconds):>9,.0f} updates/s, median "
        f"{1e3 * middle:8.3f} ms a call, {classes / len(seconds):.1f} new classes; by layer: rows "
        f"{[round(some) for some in rows]}, moved {[round(some) for some in moved]}, as before "
        f"{[f'{100 * some:.0f} %' for some in stopped]}, ms {np.round(1e3 * taken, 3).tolist()}",
        flush=True,
    )


def rounded(scales: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """Round scales to some significant bits."""
    digits, exponents = np.frexp(scales)
    made: NDArray[np.float32] = np.ldexp(np.rint(digits * 2.0**bits), exponents - bits)
    return made


def count_scales(live: LiveGraph, bits: int, rounds: int) -> None:
    """Print how many rows of hidden layers batches of 100 edges change in their scales alone."""
    rng = np.random.default_rng(0)
    added: list[NDArray[np.int64]] = []
    layers = range(1, len(live.model.network.layers))
    counts = np.zeros((rounds, len(layers), 3))
    for turn in range(rounds):
        before = [live._layers.state(number) for number in layers]
        live.update(**edge_updates(rng, live.num_nodes, 100, added))
        for number, (words, beta) in enumerate(before):
            new_words, new_beta = live._layers.state(number + 1)
            is_new_bits = (words != new_words).reshape(live.num_nodes, -1).any(axis=1)
            is_new = is_new_bits | (beta != new_beta)
            is_coarse = rounded(beta, bits) == rounded(new_beta, bits)
            by_scale = is_new & ~is_new_bits
            counts[turn, number] = is_new.sum(), by_scale.sum(), (by_scale & is_coarse).sum()
    for number, (new, by_scale, coarse) in zip(layers, counts.mean(axis=0), strict=True):
        print(
            f"layer {number}, batches of 100: {new:,.0f} new rows, {by_scale:,.0f} of them by their"
            f" scale alone, {coarse:,.0f} of these not in {bits} bits"
        )


def time_pyg(problem: Problem, batches: list[int], rounds: int, now: Clock) -> None:
    """Print what recomputing the same surroundings takes with PyG, float weights."""
    edges = torch.from_numpy(np.stack([problem.ids, problem.rows]).astype(np.int64))
    x = torch.from_numpy(problem.raw_features())
    hops = len(problem.sizes) - 1
    kinds = {"gcn": pyg.GCN, "sage": pyg.GraphSAGE, "gat": pyg.GAT}
    model = kinds[problem.conv](x.shape[1], problem.sizes[1], hops, problem.sizes[-1]).eval()
    torch.sparse.check_sparse_tensor_invariants.disable()  # without this, torch warns
    rows = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.shape[1]))
    forms = {"edge_index": edges}
    if problem.conv != "gat":
        forms["a sparse matrix"] = rows.coalesce().to_sparse_csr()
    for name, form in forms.items():
        seconds = []
        for _ in range(rounds + 1):
            start = now()
            with torch.no_grad():
                model(x, form).argmax(dim=1)
            seconds.append(now() - start)
        middle = statistics.median(seconds[1:])
        print(f"PyG, all nodes by {name}: median {1e3 * middle:.0f} ms", flush=True)
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
    parser.add_argument("--without-sums", action="store_true")
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--scale-bits", type=int, default=0)
    options = parser.parse_args()
    bignn.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    now = time.process_time if options.cpu_time else time.perf_counter
    batches = [int(batch) for batch in options.batches.split(",")]
    problem = make_problem(
        options.shape, conv=options.conv, scale=options.scale, epochs=options.epochs
    )
    graph, model = problem.packed_graph(), problem.packed
    start = now()
    live = model.live(graph, keep_sums=not options.without_sums)
    print(
        f"{options.shape}, {options.conv}, {live.num_nodes:,} nodes, {graph.num_entries:,} entries,"
        f" {options.threads} threads: live in {now() - start:.2f} s, "
        f"{live.nbytes / 2**20:.0f} MiB (packed graph "
        f"{(graph.edge_bytes + graph.feature_bytes) / 2**20:.0f} MiB)",
        flush=True,
    )
    for batch in batches:
        time_updates(live, batch, options.rounds, features=options.features, now=now)
    if options.scale_bits:
        count_scales(live, options.scale_bits, options.rounds)
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
