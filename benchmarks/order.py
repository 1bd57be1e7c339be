"""What does packing nodes in another order gain? Time of packed and float GCN, and cache reuse.

    BIGNN_DATA=... python benchmarks/order.py [--threads 1,2] [--rounds 9] [--cpu-time]
        [--packed-only] [--nodes 500000] [--edge-bits 7]
        [--orders locality,degree,cuthill-mckee,labels] [cora communities-0.2 arxiv ...]

Graphs are datasets by name (an untrained model of the recipe's widths), ``arxiv`` and the other
shapes of ``bignn bench`` (random, nothing to find), and ``communities-M``: arxiv's widths, ids
shuffled, communities of 50 to 5,000 nodes (power law of exponent 1.5), a share M of edges anywhere.

For each order: processor seconds that finding and applying it take, the share of reads of a
neighbour that was not among the last 2,048 and 32,768 read (what two sizes of caches would miss),
and the time of all nodes' classes beside that in the given order, packed and as torch's CSR product
(``torch_sparse`` of ``bignn bench``). Orders take turns; times are medians, ratios medians of each
round's. ``--cpu-time`` counts processor time, for machines that others use as well.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import reverse_cuthill_mckee

import bignn
from bignn.graph import Graph, SparseRows
from bignn.kernels.compressed_rows import compress_edges, entries_of
from bignn.kernels.node_order import locality_order
from bignn.lab.bench.contenders import contenders_of
from bignn.lab.bench.problems import CitationProblem, Problem, ShapeProblem, make_problem
from bignn.runtime import PackedGraph, PackedModel, pack_graph
from bignn.runtime.node_order import renumbered

Ints = NDArray[Any]
GRAPHS = [
    *["cora", "citeseer", "pubmed", "amazon-photo", "amazon-computers", "coauthor-cs"],
    *["coauthor-physics", "musae-github", "communities-0.2", "communities-0.5", "arxiv"],
]
WINDOWS = (2048, 32768)


def community_graph(
    num_nodes: int, num_edges: int, mixing: float, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Make undirected edges and self-loops; a share ``mixing`` of edges leaves its community.

    Within a community and outside one end is uniform and the other skewed, as in ``bignn bench``.
    """
    least, most = 50.0, 5000.0
    u = rng.random(int(num_nodes / least) + 1)
    sizes = ((least**-0.5 - u * (least**-0.5 - most**-0.5)) ** -2).astype(np.int64)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), num_nodes) + 1]
    sizes[-1] -= sizes.sum() - num_nodes
    start = np.cumsum(sizes) - sizes
    b = rng.integers(0, num_nodes, num_edges)
    community = np.repeat(np.arange(len(sizes)), sizes)[b]
    skewed = rng.random(num_edges) ** 1.8
    anywhere = rng.permutation(num_nodes)[(skewed * num_nodes).astype(np.int64)]
    inside = start[community] + (skewed * sizes[community]).astype(np.int64)
    a = np.where(rng.random(num_edges) < mixing, anywhere, inside)
    a, b = a[a != b], b[a != b]
    names, loops = rng.permutation(num_nodes), np.arange(num_nodes)
    source = np.concatenate([names[a], names[b], loops])
    target = np.concatenate([names[b], names[a], loops])
    offsets, ids, _ = compress_edges(source, target, None, num_nodes)
    return offsets, ids


class CommunityProblem(ShapeProblem):
    """A random graph with communities, and a model of ogbn-arxiv's widths."""

    def __init__(self, name: str, num_nodes: int) -> None:
        super().__init__("arxiv", scale=1e-3)
        self.name = name
        rng = np.random.default_rng(0)
        mixing = float(name.partition("-")[2])
        self.offsets, self.ids = community_graph(num_nodes, 7 * num_nodes, mixing, rng)
        self.degree_scale = (1 / np.sqrt(np.diff(self.offsets))).astype(np.float32)


def problem_of(name: str, num_nodes: int) -> Problem:
    """Make a problem by its name."""
    if name.startswith("communities-"):
        return CommunityProblem(name, num_nodes)
    return make_problem(name, epochs=0)


def raw_graph(problem: Problem) -> Graph:
    """Return a problem's graph as it is before packing."""
    if isinstance(problem, CitationProblem):
        return problem.graph
    edges = np.stack([problem.ids, problem.rows]).astype(np.int64)
    return Graph(problem.raw_features(), edges)


def degree_order(offsets: Ints, ids: Ints) -> Ints:
    """Order nodes by their number of neighbours, hubs first."""
    return np.argsort(-np.diff(offsets), kind="stable")


def cuthill_mckee_order(offsets: Ints, ids: Ints) -> Ints:
    """Order nodes by reverse Cuthill-McKee, SciPy's."""
    size = len(offsets) - 1
    matrix = csr_matrix((np.ones(len(ids), np.int8), ids, offsets), shape=(size, size))
    return np.asarray(reverse_cuthill_mckee(matrix, symmetric_mode=True), dtype=np.int64)


def label_order(offsets: Ints, ids: Ints) -> Ints:
    """Order nodes by communities of ten rounds of label propagation, hubs first in each.

    In a round a random half of the nodes take the label that most of their neighbours have.
    """
    size, rng = len(offsets) - 1, np.random.default_rng(0)
    rows = np.repeat(np.arange(size), np.diff(offsets))
    labels = np.arange(size)
    for _ in range(10):
        keys, counts = np.unique(rows * size + labels[ids], return_counts=True)
        rising = np.lexsort((counts, keys // size))  # the last entry of each row has the most
        of_row = keys[rising] // size
        last = np.flatnonzero(np.append(of_row[1:] != of_row[:-1], True))
        chosen = rng.random(len(last)) < 0.5
        labels[of_row[last[chosen]]] = keys[rising][last[chosen]] % size
    return np.lexsort((-np.diff(offsets), labels))


ORDERS: dict[str, Callable[[Ints, Ints], Ints]] = {
    "locality": locality_order,
    "degree": degree_order,
    "cuthill-mckee": cuthill_mckee_order,
    "labels": label_order,
}


def missed(ids: Ints, window: int) -> float:
    """Compute the share of reads of a node that was not among the last ``window`` reads."""
    reads = np.argsort(ids, kind="stable")
    near = (ids[reads][1:] == ids[reads][:-1]) & (np.diff(reads) <= window)
    return 1 - float(near.mean())


def reordered(problem: Problem, order: Ints) -> Problem:
    """Return a copy of a problem for the float contender, its nodes in another order."""
    out = copy.copy(problem)
    for name in ("rows", "edge_values", "adjacency_rows"):
        vars(out).pop(name, None)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    out.offsets, ids, _ = compress_edges(
        place[problem.ids], place[problem.rows], None, problem.num_nodes
    )
    out.ids = ids.astype(np.int32)
    out.degree_scale = problem.degree_scale[order]
    if isinstance(out, CitationProblem):
        x = out.graph.x
        if isinstance(x, SparseRows):
            offsets, entries = entries_of(x.indptr, order)
            x = SparseRows(offsets, x.indices[entries], x.values[entries], x.shape)
        else:
            x = x[order]
        out.graph = replace(out.graph, x=x)
    return out


def with_edge_bits(model: PackedModel, edge_bits: int | None) -> PackedModel:
    """Return a packed model whose layers round edge weights to ``edge_bits``."""
    if edge_bits is None:
        return model
    steps = [
        {**step, "edge_bits": edge_bits} if "edge_bits" in step else step
        for step in model.operations
    ]
    return PackedModel(steps, model.arrays, model.num_features)


def measure(
    runs: dict[str, Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> dict[str, list[float]]:
    """Time runs in turn, milliseconds of each round; a round before the first does not count."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            start = clock()
            runs[name]()
            if number:
                times[name].append(1e3 * (clock() - start))
    return times


def of_graph(name: str, options: argparse.Namespace) -> None:
    """Print the rows of one graph."""
    problem = problem_of(name, options.nodes)
    model = with_edge_bits(problem.packed, options.edge_bits)
    source = raw_graph(problem)
    start = time.process_time()
    graph = pack_graph(source, like=model)
    print(
        f"\n{name}: {graph.num_nodes:,} nodes, {graph.num_entries:,} entries, sizes "
        f"{problem.sizes}, packed in {time.process_time() - start:.2f} s"
    )
    graphs: dict[str, PackedGraph] = {"given": graph}
    floats: dict[str, Problem] = {"given": problem}
    for kind in options.orders.split(","):
        start = time.process_time()
        order = ORDERS[kind](graph.offsets, graph.ids)
        found = time.process_time()
        graphs[kind] = renumbered(graph, order)
        print(
            f"  {kind}: found in {found - start:.2f} s, applied in "
            f"{time.process_time() - found:.2f} s"
        )
        floats[kind] = reordered(problem, order)
    for kind, some in graphs.items():
        shares = ", ".join(f"{window:,}: {missed(some.ids, window):.0%}" for window in WINDOWS)
        print(f"  {kind}: not among the last reads, {shares}")
    expected = model.predict(graph, output="logits")
    for kind, some in graphs.items():
        assert np.array_equal(model.predict(some, output="logits"), expected), kind
    clock = time.process_time if options.cpu_time else time.perf_counter
    for threads in map(int, options.threads.split(",")):
        bignn.set_num_threads(threads)
        torch.set_num_threads(threads)
        report(
            f"{threads} threads, packed",
            measure(
                {kind: partial(model.predict, some) for kind, some in graphs.items()},
                options.rounds,
                clock,
            ),
        )
        if options.packed_only:
            continue
        contenders = {
            kind: contenders_of("gcn")["torch_sparse"](some) for kind, some in floats.items()
        }
        for contender in contenders.values():
            contender.load()
        runs = {kind: contender.run for kind, contender in contenders.items()}
        report(f"{threads} threads, float", measure(runs, options.rounds, clock))


def report(title: str, times: dict[str, list[float]]) -> None:
    """Print medians, and the time in the given order beside them."""
    for kind, some in times.items():
        ratio = statistics.median(a / b for a, b in zip(times["given"], some, strict=True))
        print(
            f"  {title} {kind:<14}{statistics.median(some):>9.1f} ms (least {min(some):.1f})"
            f"{ratio:>7.2f}x",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--packed-only", action="store_true")
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--edge-bits", type=int)
    parser.add_argument("--orders", default="locality")
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    chosen = parser.parse_args()
    for graph_name in chosen.graphs:
        of_graph(graph_name, chosen)
