"""Is a live graph exact? Thousands of random updates, compared with the graph packed anew.

Run: .venv/bin/python benchmarks/live_exact.py [--graphs cora,pubmed,arxiv]
     [--convs gcn,sage,gat] [--updates 10000] [--checks 10] [--scale 1] [--threads 2]
     [--parts 1] [--jobs 1] [--without-sums]

Updates are calls of ``LiveGraph.update``. Each changes 1 to 1,000 things, numbers drawn so that
every order of magnitude is as frequent, of one of six kinds: edges added (every other batch with
weights, where the model reads them), edges removed, features, new nodes with edges, nodes removed,
or some of everything. The same changes are made to a raw graph in NumPy. Every so often, and at the
end, this is packed anew and run, and bits and scales after every hidden layer, logits and classes
are compared, as are all the nodes that updates returned as changed since the last time. ``cora``
and other datasets have a model that was trained for some epochs; ``arxiv`` and other shapes of
``bignn bench`` are random graphs with an untrained one.

``--parts`` shares the updates of every graph and model out among so many copies of the graph, each
with random numbers of its own, and ``--jobs`` runs so many of these at once, in processes of their
own. All of it on 16 cores: ``--parts 16 --jobs 16 --threads 1 --checks 5``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import bignn
from bignn import kernels
from bignn.kernels.packed_layers import PackedLayers
from bignn.lab.bench.problems import CitationProblem, Problem, make_problem
from bignn.runtime import LiveGraph, PackedModel, pack_graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
MOST_AT_ONCE = 1000


class Growing:
    """An array that rows are added to at its end."""

    def __init__(self, items: NDArray[Any]) -> None:
        self._items, self._size = items.copy(), len(items)

    @property
    def items(self) -> Any:
        """The items, as a view."""
        return self._items[: self._size]

    def add(self, items: NDArray[Any]) -> None:
        """Add items at the end."""
        size = self._size + len(items)
        if size > len(self._items):
            room = np.empty((size + size // 4, *self._items.shape[1:]), self._items.dtype)
            room[: self._size] = self.items
            self._items = room
        self._items[self._size : size] = items
        self._size = size


class RawGraph:
    """Features and edges that change, in plain arrays; an edge that is gone is marked."""

    def __init__(self, x: Floats, edges: Ints) -> None:
        self._x, self._edges = Growing(x), Growing(edges.T)
        self._weights = Growing(np.ones(edges.shape[1], dtype=np.float32))
        self._is_there = Growing(np.ones(edges.shape[1], dtype=np.bool_))
        self._is_removed = Growing(np.zeros(len(x), dtype=np.bool_))

    @property
    def x(self) -> Floats:
        """The features, which may be written to."""
        items: Floats = self._x.items
        return items

    @property
    def num_nodes(self) -> int:
        """Number of nodes, removed ones included."""
        return len(self._x.items)

    @property
    def num_edges(self) -> int:
        """Number of edges that exist."""
        return int(self._is_there.items.sum())

    @property
    def removed(self) -> Ints:
        """The removed nodes, rising."""
        return np.flatnonzero(self._is_removed.items)

    @property
    def present(self) -> Ints:
        """The nodes that were not removed, rising."""
        return np.flatnonzero(~self._is_removed.items)

    def add_nodes(self, x: Floats) -> None:
        """Add nodes with these features."""
        self._x.add(x)
        self._is_removed.add(np.zeros(len(x), np.bool_))

    def add_edges(self, edges: Ints, weights: Floats | None) -> None:
        """Add edges [2, n]; without weights, all have 1."""
        self._edges.add(edges.T)
        self._weights.add(np.ones(edges.shape[1]) if weights is None else weights)
        self._is_there.add(np.ones(edges.shape[1], np.bool_))

    def remove_edges(self, edges: Ints) -> None:
        """Mark every copy of some edges as gone."""
        is_source = np.zeros(self.num_nodes, dtype=np.bool_)
        is_source[edges[0]] = True
        places = np.flatnonzero(is_source[self._edges.items[:, 0]])
        found = self._edges.items[places] @ [self.num_nodes, 1]
        gone = np.isin(found, [self.num_nodes, 1] @ edges)
        self._is_there.items[places[gone]] = False

    def remove_nodes(self, nodes: Ints) -> None:
        """Mark nodes as removed and their edges as gone."""
        is_removed = self._is_removed.items
        is_removed[nodes] = True
        self._is_there.items[is_removed[self._edges.items].any(axis=1)] = False

    def some_edges(self, rng: np.random.Generator, count: int) -> Ints:
        """Draw edges that exist, at most so many, each once."""
        places = rng.integers(0, len(self._edges.items), count)
        return np.unique(self._edges.items[places[self._is_there.items[places]]].T, axis=1)

    def graph(self) -> bignn.Graph:
        """Return the graph as it is now."""
        kept = self._is_there.items
        return bignn.Graph(self.x, self._edges.items[kept].T, self._weights.items[kept])


class Updates:
    """Random updates that are made to a live graph and to a raw one."""

    KINDS = ("edges", "fewer edges", "features", "nodes", "fewer nodes", "everything")

    def __init__(self, live: LiveGraph, raw: RawGraph, seed: int) -> None:
        self.live, self.raw = live, raw
        self.rng = np.random.default_rng(seed)
        self.original, self.original_edges = raw.x.copy(), raw.num_edges
        self.made, self.seconds = 0, 0.0

    def update(self) -> Ints:
        """Make one update; return the nodes that the live graph says have another class."""
        count = int(np.exp(self.rng.uniform(0, np.log(MOST_AT_ONCE + 1))))
        raw, num_nodes, present = self.raw, self.raw.num_nodes, self.raw.present
        kind = self._kind(len(present))
        parts = {kind: count} if kind != "everything" else {}
        if not parts:
            parts = dict.fromkeys(self.KINDS[:-1], max(1, count // 5))
        changes: dict[str, Any] = {}
        if some := parts.get("features"):
            nodes = self.rng.choice(present, min(some, len(present)), replace=False)
            changes |= {"nodes": nodes, "x": self._rows(len(nodes))}
            raw.x[nodes] = changes["x"]
        if some := parts.get("nodes"):
            changes["add_nodes"] = self._rows(some)
            raw.add_nodes(changes["add_nodes"])
        if some := parts.get("fewer edges"):
            changes["remove_edges"] = raw.some_edges(self.rng, some)
            raw.remove_edges(changes["remove_edges"])
        gone = np.empty(0, dtype=np.int64)
        if some := parts.get("fewer nodes"):
            gone = self.rng.choice(present, min(some, len(present) // 2), replace=False)
            changes["remove_nodes"] = gone
        if some := parts.get("edges", 0) + 2 * parts.get("nodes", 0):
            new = np.arange(num_nodes, raw.num_nodes)
            ends = np.concatenate([present, new])
            edges = self.rng.choice(ends, (2, some))
            edges[0, : len(new)] = new
            edges = np.concatenate([edges, edges[::-1]], axis=1)
            weights = None
            if self.made % 2 and self.live.model.edge_weight == "used":
                weights = self.rng.choice([0.5, 1.0, 1.5], edges.shape[1]).astype(np.float32)
            changes |= {"add_edges": edges, "edge_weight": weights}
            raw.add_edges(edges, weights)
        if len(gone):
            raw.remove_nodes(gone)
        self.made += 1
        start = time.perf_counter()
        changed = self.live.update(**changes)
        self.seconds += time.perf_counter() - start
        return changed

    def _kind(self, num_present: int) -> str:
        """Draw what to change; a graph that grew or shrank by a third goes back."""
        kind = self.KINDS[self.rng.integers(len(self.KINDS))]
        for more, fewer, now, before in (
            ("nodes", "fewer nodes", num_present, len(self.original)),
            ("edges", "fewer edges", self.raw.num_edges, self.original_edges),
        ):
            if kind == more and now > 4 / 3 * before:
                kind = fewer
            elif kind == fewer and now < 2 / 3 * before:
                kind = more
        return kind

    def _rows(self, count: int) -> Floats:
        """Draw rows that the graph had at first, with some columns of others."""
        taken = self.original[self.rng.integers(0, len(self.original), (2, count))]
        is_first = self.rng.random(taken.shape[1:]) < 0.9
        made: Floats = np.where(is_first, taken[0], taken[1])
        return made


def state_of(model: PackedModel, graph: Any) -> list[NDArray[Any]]:
    """Return bits and scales after every hidden layer, and the logits, of a full run."""
    layers = [replace(layer, keep=frozenset(["bits"])) for layer in model.network.layers[:-1]]
    layers.append(model.network.layers[-1])
    edges = [graph.edges(layer.aggr) for layer in layers]
    backend = kernels.checked_backend(None)
    features, beta = graph.bits
    bound = PackedLayers(layers, edges, "T" * len(layers), features, beta, backend)
    values = bound.run_to_values()
    kept = [np.array(part) for n in range(len(layers) - 1) for part in bound.kept(n, "bits")]
    return [*kept, values]


def compare(live: LiveGraph, raw: RawGraph) -> Ints | None:
    """Return the classes if all that is kept equals a full run of the raw graph."""
    full = state_of(live.model, pack_graph(raw.graph(), like=live.model))
    gone = raw.removed
    full[-1][gone] = np.nan
    classes: Ints = full[-1].argmax(axis=1)
    classes[gone] = -1
    kept: list[NDArray[Any]] = []
    for number in range(1, len(live.model.network.layers)):
        words, beta = live._layers.state(number)
        kept += [words.reshape(live.num_nodes, -1), beta]
    kept += [live.predict(output="logits"), live.predict()]
    same = [
        np.array_equal(mine, theirs, equal_nan=mine.dtype.kind == "f")
        for mine, theirs in zip(kept, [*full, classes], strict=True)
    ]
    same.append(np.array_equal(live.removed, gone))
    if not all(same):
        print(f"  NOT EQUAL: bits and scales by layer, logits, classes, removed nodes: {same}")
        return None
    return classes


def raw_graph(problem: Problem) -> RawGraph:
    """Make the raw graph of a problem, without the self-loops that models add."""
    if isinstance(problem, CitationProblem):
        edges = problem.graph.edge_index
    else:
        offsets, ids = problem.adjacency_rows
        edges = np.stack([ids, np.repeat(np.arange(problem.num_nodes), np.diff(offsets))])
    return RawGraph(problem.model_input(), edges.astype(np.int64))


class Seen(NamedTuple):
    """What was seen of one graph: whether all was equal, counts, and seconds of updates."""

    is_equal: bool
    updates: int = 0
    comparisons: int = 0
    told: int = 0
    seconds: float = 0.0


def run(name: str, conv: str, part: int, options: argparse.Namespace) -> Seen:
    """Make one part of the updates of a graph, and print what is seen on the way."""
    bignn.set_num_threads(options.threads)
    num_updates = (options.updates + part) // options.parts
    scale = options.scale if name not in ("cora", "citeseer", "pubmed") else 1.0
    problem = make_problem(name, conv=conv, scale=scale, epochs=20)
    raw = raw_graph(problem)
    graph = pack_graph(raw.graph(), like=problem.packed)
    live = problem.packed.live(graph, keep_sums=not options.without_sums)
    updates = Updates(live, raw, seed=part)
    checks = np.unique(np.linspace(0, num_updates, options.checks + 1).astype(int))[1:]
    before = live.predict()
    told: set[int] = set()
    num_told = 0
    for turn in range(1, num_updates + 1):
        changed = updates.update()
        told.update(changed.tolist())
        num_told += len(changed)
        if turn not in checks:
            continue
        classes = compare(live, raw)
        if classes is None:
            return Seen(is_equal=False)
        old = np.full(len(classes), -2)
        old[: len(before)] = before
        missed = set(np.flatnonzero(old != classes).tolist()) - told
        if missed:
            print(f"  NOT TOLD: {len(missed)} nodes have another class, {sorted(missed)[:5]}")
            return Seen(is_equal=False)
        before, told = classes, set()
        print(
            f"  {name}, {conv}, part {part}, {turn:,} updates: {live.num_nodes:,} nodes "
            f"({len(raw.removed):,} removed), {raw.num_edges:,} edges, equal",
            flush=True,
        )
    return Seen(True, num_updates, len(checks), num_told, updates.seconds)


def report(name: str, conv: str, parts: list[Seen]) -> bool:
    """Print a line for a graph and model; false where something differed."""
    if not all(part.is_equal for part in parts):
        print(f"{name}, {conv}: NOT EQUAL", flush=True)
        return False
    updates, comparisons, told, seconds = (sum(some) for some in list(zip(*parts, strict=True))[1:])
    print(
        f"{name}, {conv}: {updates:,} updates, {comparisons} comparisons: every bit, scale, logit "
        f"and class equal; {told:,} new classes, {seconds:.0f} s of updates",
        flush=True,
    )
    return True


def main() -> None:
    """Print a line for every comparison, and one for every graph and model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", default="cora,pubmed,arxiv")
    parser.add_argument("--convs", default="gcn,sage,gat")
    parser.add_argument("--updates", type=int, default=10_000)
    parser.add_argument("--checks", type=int, default=10)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--without-sums", action="store_true")
    options = parser.parse_args()
    pairs = [(a, b) for a in options.graphs.split(",") for b in options.convs.split(",")]
    # Fresh processes: forked ones would have none of the threads that torch counts on.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        # Large graphs come last in the list and take longest, so they begin first.
        waiting: dict[tuple[str, str], list[Future[Seen]]] = {
            (name, conv): [
                pool.submit(run, name, conv, part, options) for part in range(options.parts)
            ]
            for name, conv in reversed(pairs)
        }
        is_equal = [
            report(name, conv, [part.result() for part in waiting[name, conv]])
            for name, conv in reversed(pairs)
        ]
    sys.exit(0 if all(is_equal) else 1)


if __name__ == "__main__":
    main()
