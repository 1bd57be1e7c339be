"""A live graph after any updates equals the changed graph, packed anew and run, to the last bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from numpy.typing import NDArray
from packed_family import SIZES, make_chain

import bignn
from bignn import Graph, LiveGraph, PackedModel, pack_graph
from bignn.kernels.packed_layers import PackedLayers

Ints = NDArray[np.int64]

#: With few bits, rows notice coarse changes of scales only, and sums can be kept.
MODELS = {
    "gcn": make_chain(["gcn", "gcn", "gcn"], edge_bits=7),
    "gcn of many bits": make_chain(["gcn", "gcn", "gcn"]),
    "sage": make_chain(["sage", "sage", "sage"], seed=1, edge_bits=5),
    "gat": make_chain(["gat", "gat", "gat"], seed=2, edge_bits=7),
    "gat of many bits": make_chain(["gat", "gat"], seed=2),
    "mixed": make_chain(["gcn", "sage", "mean-gcn"], seed=3, edge_bits=4),
    "other degrees": make_chain(["gcn_plain", "gcn_source", "gcn_improved"], seed=4, edge_bits=3),
    "weighted": make_chain(["weighted_mean", "weighted_sum"], seed=5, edge_bits=7),
    "without loops": make_chain(["gcn_source", "gcn_source", "gcn_source"], seed=7, edge_bits=6),
    "one layer": make_chain(["gcn"], seed=6, edge_bits=7),
}


def state_of(model: PackedModel, graph: Any) -> list[NDArray[Any]]:
    """Bits and scales after every hidden layer, the logits and the classes of a full run."""
    layers = [
        replace(layer, keep=frozenset(["bits"] if number < len(model.network.layers) - 1 else []))
        for number, layer in enumerate(model.network.layers)
    ]
    features, beta = graph.bits
    edges = [graph.edges(layer.aggr) for layer in layers]
    bound = PackedLayers(layers, edges, "T" * len(layers), features, beta, "portable")
    values = bound.run_to_values()
    kept = [np.array(part) for n in range(len(layers) - 1) for part in bound.kept(n, "bits")]
    return [*kept, values, bound.run_to_classes()]


def kept_by(live: LiveGraph) -> list[NDArray[Any]]:
    """The same of a live graph."""
    kept: list[NDArray[Any]] = []
    for number in range(1, len(live.model.network.layers)):
        words, beta = live._layers.state(number)
        rows = live._rows(np.arange(live.num_nodes))
        kept += [words.reshape(live.num_nodes, -1)[rows], beta[rows]]
    return [*kept, live.predict(output="logits"), live.predict()]


class Mirror:
    """A raw graph that the same changes are made to, in plain NumPy."""

    def __init__(self, graph: Graph) -> None:
        self.x = graph.dense_x().copy()
        self.edges = graph.edge_index.copy()
        self.weights = np.ones(self.edges.shape[1], dtype=np.float32)
        if graph.edge_weight is not None:
            self.weights = graph.edge_weight.copy()
        self.removed: set[int] = set()

    def add(self, edges: Ints, weights: NDArray[np.float32] | None) -> None:
        if weights is None:
            weights = np.ones(edges.shape[1], dtype=np.float32)
        self.edges = np.concatenate([self.edges, edges], axis=1)
        self.weights = np.concatenate([self.weights, weights])

    def keep(self, kept: Any) -> None:
        self.edges, self.weights = self.edges[:, kept], self.weights[kept]

    def remove(self, edges: Ints) -> None:
        gone = {(int(a), int(b)) for a, b in edges.T}
        self.keep(np.array([(int(a), int(b)) not in gone for a, b in self.edges.T], dtype=bool))

    def remove_nodes(self, nodes: list[int]) -> None:
        self.keep(~np.isin(self.edges, nodes).any(axis=0))
        self.removed.update(nodes)

    def graph(self) -> Graph:
        return Graph(self.x, self.edges, self.weights)

    @property
    def present(self) -> list[int]:
        return [node for node in range(len(self.x)) if node not in self.removed]


def random_graph(rng: np.random.Generator, num_nodes: int, *, weighted: bool) -> Graph:
    edges = (num_nodes * rng.random((2, 3 * num_nodes // 2)) ** 1.3).astype(np.int64)
    edges = np.concatenate([edges, edges[:, :5]], axis=1)  # repeated ones, and some loops
    weights = rng.choice([0.25, 1.0, 1.5], edges.shape[1]).astype(np.float32)
    x = rng.standard_normal((num_nodes, SIZES[0])).astype(np.float32)
    return Graph(x, edges, weights if weighted else None)


def check(live: LiveGraph, mirror: Mirror, changed: Ints | None, before: Ints) -> None:
    """Compare a live graph with the changed graph packed anew, and the nodes named as changed."""
    fresh = state_of(live.model, pack_graph(mirror.graph(), like=live.model))
    found = kept_by(live)
    gone = sorted(mirror.removed)
    fresh[-2][gone], fresh[-1][gone] = np.nan, -1
    assert len(found) == len(fresh)
    for mine, full in zip(found, fresh, strict=True):
        np.testing.assert_array_equal(mine, full)
    np.testing.assert_array_equal(live.removed, gone)
    if changed is not None:
        old = np.full(live.num_nodes, -2)
        old[: len(before)] = before
        np.testing.assert_array_equal(changed, np.flatnonzero(old != found[-1]))


class Updates(RuleBasedStateMachine):
    """Random batches of changes of all kinds."""

    @initialize(
        kind=st.sampled_from(sorted(MODELS)),
        seed=st.integers(0, 2**32 - 1),
        weighted=st.booleans(),
        ordered=st.booleans(),
        keep_sums=st.booleans(),
    )
    def start(self, kind: str, seed: int, weighted: bool, ordered: bool, keep_sums: bool) -> None:
        self.rng = np.random.default_rng(seed)
        graph = random_graph(self.rng, 50, weighted=weighted)
        self.mirror = Mirror(graph)
        model = MODELS[kind]
        packed = pack_graph(graph, like=model, order="locality" if ordered else None)
        self.live = model.live(packed, keep_sums=keep_sums)
        self.changed: Ints | None = None
        self.before = self.live.predict()

    def update(self, **changes: Any) -> None:
        self.before = self.live.predict()
        self.changed = self.live.update(**changes)

    def new_edges(self, count: int, num_nodes: int) -> Ints:
        nodes = [*self.mirror.present, *range(len(self.mirror.x), num_nodes)]
        return self.rng.choice(nodes, (2, count)) if nodes else np.empty((2, 0), dtype=np.int64)

    @rule(count=st.integers(0, 4))
    def change_features(self, count: int) -> None:
        count = min(count, len(self.mirror.present))
        nodes = self.rng.permutation(self.mirror.present)[:count].astype(np.int64)
        x = self.rng.standard_normal((count, SIZES[0])).astype(np.float32)
        self.mirror.x[nodes] = x
        self.update(nodes=nodes, x=x)

    @rule(count=st.integers(1, 6), weight=st.sampled_from([None, 1.0, 2.5]))
    def add_edges(self, count: int, weight: float | None) -> None:
        edges = self.new_edges(count, len(self.mirror.x))
        weights = None if weight is None else np.full(edges.shape[1], weight, np.float32)
        self.mirror.add(edges, weights)
        self.update(add_edges=edges, edge_weight=weights)

    @rule(count=st.integers(1, 6))
    def remove_edges(self, count: int) -> None:
        edges = self.mirror.edges[:, self.rng.permutation(self.mirror.edges.shape[1])[:count]]
        self.mirror.remove(edges)
        self.update(remove_edges=edges)

    @rule(count=st.integers(1, 3), edges=st.integers(0, 5))
    def add_nodes(self, count: int, edges: int) -> None:
        x = self.rng.standard_normal((count, SIZES[0])).astype(np.float32)
        given = self.new_edges(edges, len(self.mirror.x) + count)
        self.mirror.x = np.concatenate([self.mirror.x, x])
        self.mirror.add(given, None)
        self.update(add_nodes=x, add_edges=given)

    @rule(count=st.integers(1, 2))
    def remove_nodes(self, count: int) -> None:
        nodes = self.rng.permutation(self.mirror.present)[:count].tolist()
        self.mirror.remove_nodes(nodes)
        self.update(remove_nodes=np.array(nodes, dtype=np.int64))

    @rule()
    def everything_at_once(self) -> None:
        if len(self.mirror.present) < 4 or self.mirror.edges.shape[1] == 0:
            return
        x = self.rng.standard_normal((2, SIZES[0])).astype(np.float32)
        node, gone = self.rng.permutation(self.mirror.present)[:2].tolist()
        removed = self.mirror.edges[:, :1]
        added = np.concatenate([removed, self.new_edges(3, len(self.mirror.x) + 1)], axis=1)
        weights = self.rng.choice([0.5, 1.0], 4).astype(np.float32)
        self.mirror.x[node] = x[0]
        self.mirror.x = np.concatenate([self.mirror.x, x[1:]])
        self.mirror.remove(removed)
        self.mirror.add(added, weights)
        self.mirror.remove_nodes([gone])
        self.update(
            nodes=[node], x=x[:1], add_nodes=x[1:], remove_edges=removed, add_edges=added,
            edge_weight=weights, remove_nodes=[gone],
        )  # fmt: skip

    @invariant()
    def equals_a_fresh_run(self) -> None:
        check(self.live, self.mirror, self.changed, self.before)


TestUpdates = Updates.TestCase
TestUpdates.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)


@pytest.mark.parametrize("kind", ["gcn", "sage", "weighted"])
def test_sums_are_moved_by_several_threads(kind: str) -> None:
    """Batches so large that rows are shared out among threads, on a graph with rows of many."""
    rng = np.random.default_rng(0)
    model = MODELS[kind]
    edges = (4000 * rng.random((2, 40000)) ** [[1], [1.6]]).astype(np.int64)
    weights = rng.choice([0.5, 1.0], 40000).astype(np.float32) if kind == "weighted" else None
    graph = Graph(rng.standard_normal((4000, SIZES[0])).astype(np.float32), edges, weights)
    live, mirror = model.live(graph), Mirror(graph)
    before = bignn.get_num_threads()
    try:
        bignn.set_num_threads(3)
        for _ in range(2):
            added, removed = rng.integers(0, 4000, (2, 60)), np.unique(mirror.edges[:, :40], axis=1)
            classes = live.predict()
            changed = live.update(add_edges=added, remove_edges=removed)
            mirror.remove(removed)
            mirror.add(added, None)
            assert live.work[1].moved > live.work[1].rows / 2
            check(live, mirror, changed, classes)
    finally:
        bignn.set_num_threads(before)


def test_kept_sums_take_memory_and_save_work() -> None:
    graph = random_graph(np.random.default_rng(0), 400, weighted=False)
    with_sums, without = (MODELS["gcn"].live(graph, keep_sums=keep) for keep in (True, False))
    # 36 and 5 outputs, in whole cache lines, and the rows' numbers of entries.
    assert with_sums.nbytes - without.nbytes == 4 * 400 * (48 + 1 + 16 + 1)
    for live in (with_sums, without):
        live.update(add_edges=[[3, 7, 20, 31, 8], [5, 2, 1, 3, 9]])
    assert sum(work.moved for work in with_sums.work) > 0
    assert sum(work.moved for work in without.work) == 0
    assert [work.rows for work in with_sums.work] == [work.rows for work in without.work]
