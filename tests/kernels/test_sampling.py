"""Sampled neighbourhoods, walks, subgraphs: native equals NumPy, draws are as they should be."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bignn import InputError
from bignn.kernels import native, sampling
from bignn.kernels.sampling import Choice, CompressedGraph

BACKENDS = ["reference", *native.supported()[:1]]


def edge_list(num_nodes: int, num_edges: int, seed: int) -> NDArray[np.int64]:
    """Rows and ids, skewed: isolated nodes, loops and repeated edges are among them."""
    ends = np.random.default_rng(seed).random((2, num_edges if num_nodes else 0)) ** 2
    return (num_nodes * ends).astype(np.int64)


def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> CompressedGraph:
    rows, ids = edge_list(num_nodes, num_edges, seed)
    return CompressedGraph.from_edges(rows, ids, num_nodes)


def sampled(graph: CompressedGraph, seeds: Any, fanouts: list[int], **options: Any) -> list[Any]:
    found = sampling.sample_neighbours(graph, seeds, fanouts, **options)
    edges = found.edges
    return [
        *[found.nodes, edges.sources, edges.targets, edges.numbers],
        *[found.nodes_per_hop, found.edges_per_hop],
    ]


def same(a: list[Any], b: list[Any]) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


graphs = st.builds(random_graph, st.integers(1, 40), st.integers(0, 150), st.integers(0, 99))
fanout_lists = st.lists(st.sampled_from([-1, 1, 2, 3, 7, 30]), min_size=1, max_size=4)


@given(graphs, fanout_lists, st.booleans(), st.integers(0, 2**64 - 1), st.integers(0, 40))
def test_neighbourhoods(
    graph: CompressedGraph, fanouts: list[int], replace: bool, seed: int, num_seeds: int
) -> None:
    order = np.random.default_rng(seed % 1000).permutation(graph.num_nodes)
    seeds = order[:num_seeds]
    found = sampling.sample_neighbours(
        graph, seeds, fanouts, seed=seed, replace=replace, backend="reference"
    )
    nodes, edges = found.nodes, found.edges
    assert np.array_equal(nodes[: len(seeds)], seeds)
    assert len(np.unique(nodes)) == len(nodes) == sum(found.nodes_per_hop)
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    place = np.empty(graph.num_edges, dtype=np.int64)
    place[graph.numbered(np.arange(graph.num_edges))] = np.arange(graph.num_edges)
    assert np.array_equal(nodes[edges.sources], graph.ids[place[edges.numbers]])
    assert np.array_equal(nodes[edges.targets], rows[place[edges.numbers]])
    first_node, first_edge, next_new = 0, 0, len(seeds)
    for hop, fanout in enumerate(fanouts):
        here = slice(first_edge, first_edge + found.edges_per_hop[hop])
        frontier = range(first_node, first_node + found.nodes_per_hop[hop])
        for v in frontier:  # each is expanded here, and so nowhere else
            drawn = edges.numbers[here][edges.targets[here] == v]
            size = graph.degrees[nodes[v]]
            if fanout == -1 or (not replace and size <= fanout) or size == 0:
                assert sorted(drawn) == sorted(place_numbers(graph, nodes[v]))
            else:
                assert len(drawn) == fanout
                assert replace or len(set(drawn)) == fanout
        for source in edges.sources[here]:  # new nodes are numbered as they are met
            assert source <= next_new
            next_new += source == next_new
        first_node, first_edge = frontier.stop, here.stop
        assert next_new == first_node + found.nodes_per_hop[hop + 1]
    assert first_edge == len(edges.numbers)
    options: dict[str, Any] = {"seed": seed, "replace": replace}
    wide = CompressedGraph(graph.offsets, graph.ids.astype(np.int64), graph.numbers)
    expected = sampled(graph, seeds, fanouts, **options, backend="reference")
    for backend in BACKENDS:
        assert same(expected, sampled(graph, seeds, fanouts, **options, backend=backend))
        assert same(expected, sampled(wide, seeds, fanouts, **options, backend=backend))


def place_numbers(graph: CompressedGraph, node: int) -> NDArray[np.int64]:
    return graph.numbered(np.arange(graph.offsets[node], graph.offsets[node + 1]))


@given(
    graphs,
    st.lists(st.integers(0, 10**6), max_size=9),
    st.integers(0, 5),
    st.integers(0, 2**64 - 1),
)
def test_walks(graph: CompressedGraph, roots: list[int], length: int, seed: int) -> None:
    starts = np.array(roots, dtype=np.int64) % graph.num_nodes
    walks = sampling.random_walks(graph, starts, length, seed=seed, backend="reference")
    assert walks.shape == (len(roots), length + 1)
    assert np.array_equal(walks[:, 0], starts)
    for walk in walks.tolist():
        for a, b in pairwise(walk):
            neighbours = graph.ids[graph.offsets[a] : graph.offsets[a + 1]]
            assert b in neighbours if len(neighbours) else b == a
    for backend in BACKENDS:
        again = sampling.random_walks(graph, starts, length, seed=seed, backend=backend)
        assert np.array_equal(again, walks)


@given(graphs, st.integers(0, 999))
def test_edges_between(graph: CompressedGraph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.permutation(graph.num_nodes)[: rng.integers(0, graph.num_nodes + 1)]
    ids = rng.permutation(graph.num_nodes)[: rng.integers(0, graph.num_nodes + 1)]
    number_of = {node: number for number, node in enumerate(ids.tolist())}
    expected = [
        (number_of[int(graph.ids[e])], i, int(graph.numbered(np.array([e]))[0]))
        for i, row in enumerate(rows)
        for e in range(graph.offsets[row], graph.offsets[row + 1])
        if int(graph.ids[e]) in number_of
    ]
    for backend in BACKENDS:
        found = sampling.edges_between(graph, rows, ids, backend=backend)
        listed = [found.sources.tolist(), found.targets.tolist(), found.numbers.tolist()]
        assert list(zip(*listed, strict=True)) == expected
        inside = sampling.induced_subgraph(graph, ids, backend=backend)
        between = sampling.edges_between(graph, ids, ids, backend=backend)
        assert np.array_equal(inside.numbers, between.numbers)


@pytest.mark.parametrize("backend", BACKENDS)
def test_edges_are_sorted_by_row_and_keep_their_numbers(backend: str) -> None:
    rows, ids = edge_list(30, 200, 1)
    graph = CompressedGraph.from_edges(rows, ids, 30, backend=backend)
    assert graph.numbers is not None
    assert np.array_equal(graph.numbers, np.argsort(rows, kind="stable"))
    assert np.array_equal(graph.ids, ids[graph.numbers])
    assert np.array_equal(graph.degrees, np.bincount(rows, minlength=30))
    order = np.argsort(rows, kind="stable")
    assert CompressedGraph.from_edges(rows[order], ids[order], 30, backend=backend).numbers is None
    empty = CompressedGraph.from_edges([], [], 3, backend=backend)
    assert empty.offsets.tolist() == [0, 0, 0, 0]
    found = sampling.sample_neighbours(empty, [2, 0], [5, -1], seed=0, backend=backend)
    assert (found.nodes.tolist(), found.nodes_per_hop) == ([2, 0], [2, 0, 0])


@pytest.mark.skipif(not native.is_available(), reason="no native extension")
def test_threads_change_nothing() -> None:
    """With enough rows for several pieces of work."""
    graph = random_graph(6000, 60_000)
    nodes = np.random.default_rng(0).permutation(6000)
    before = native.num_threads()
    found = []
    try:
        for threads in (1, 2, 5):
            native.set_num_threads(threads)
            inside = sampling.induced_subgraph(graph, nodes[:3000])
            found += [
                sampled(graph, nodes[:3000], [4, 5], seed=3),
                sampled(graph, nodes[:3000], [4, 5], seed=3, replace=True),
                [inside.sources, inside.targets, inside.numbers],
                [sampling.random_walks(graph, nodes[:3000], 4, seed=5)],
            ]
    finally:
        native.set_num_threads(before)
    for number, arrays in enumerate(found):
        assert same(arrays, found[number % 4])
    for replace in (False, True):
        expected = sampled(
            graph, nodes[:3000], [4, 5], seed=3, replace=replace, backend="reference"
        )
        assert same(expected, found[int(replace)])


def test_callers_on_several_threads_do_not_disturb_each_other() -> None:
    graph = random_graph(3000, 30_000)
    nodes = np.random.default_rng(0).permutation(3000)

    def sample(number: int) -> list[Any]:
        return sampled(graph, nodes[number : number + 900], [5, 5], seed=number)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(sample, range(40)))
    assert all(same(arrays, sample(number)) for number, arrays in enumerate(found))


def stars(num_rows: int, degree: int) -> CompressedGraph:
    """Rows that all have the neighbours 0 ... degree - 1."""
    offsets = np.arange(num_rows + 1) * degree
    return CompressedGraph(offsets, np.tile(np.arange(degree), num_rows))


def chi_square(counts: NDArray[Any], expected: Any) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_subsets_are_equally_likely() -> None:
    graph = stars(20_000, 6)
    found = sampling.sample_neighbours(graph, np.arange(20_000), [3], seed=11)
    drawn = np.sort((found.edges.numbers % 6).reshape(-1, 3), axis=1)
    counts = [int((drawn == subset).all(axis=1).sum()) for subset in combinations(range(6), 3)]
    assert sum(counts) == 20_000
    assert chi_square(np.array(counts), 1000) < 50  # 19 degrees of freedom: once in 7,000


def test_large_subsets() -> None:
    """More members than a word of bits, of more candidates than a cache line of them."""
    graph = stars(1000, 700)
    found = sampling.sample_neighbours(graph, np.arange(1000), [300], seed=2)
    drawn = (found.edges.numbers % 700).reshape(1000, 300)
    assert all(len(set(row)) == 300 for row in drawn.tolist())
    inclusion = np.bincount(drawn.ravel(), minlength=700) / 1000
    share = 300 / 700
    assert abs(inclusion - share).max() < 5 * (share * (1 - share) / 1000) ** 0.5


def test_draws_with_replacement_are_independent() -> None:
    graph = stars(9000, 3)
    found = sampling.sample_neighbours(graph, np.arange(9000), [2], seed=4, replace=True)
    drawn = (found.edges.numbers % 3).reshape(-1, 2)
    counts = [int((drawn == pair).all(axis=1).sum()) for pair in product(range(3), repeat=2)]
    assert chi_square(np.array(counts), 1000) < 32  # 8 degrees of freedom: once in 10,000


def test_steps_of_walks_are_uniform_and_other_seeds_give_other_walks() -> None:
    graph = stars(5, 5)
    walks = sampling.random_walks(graph, np.zeros(5000, np.int64), 2, seed=8)
    pairs = np.bincount(5 * walks[:, 1] + walks[:, 2], minlength=25)
    assert chi_square(pairs, 200) < 60  # 24 degrees of freedom: once in 15,000
    other = sampling.random_walks(graph, np.zeros(5000, np.int64), 2, seed=9)
    assert (walks != other).any()


def test_choice() -> None:
    choice = Choice([0, 1, 0, 3, 0.5, 0])
    assert np.allclose(choice.probabilities, np.array([0, 2, 0, 6, 1, 0]) / 9)
    counts = np.bincount(choice.draw(9000, seed=1), minlength=6)
    assert counts[[0, 2, 5]].sum() == 0
    assert chi_square(counts[[1, 3, 4]], np.array([2000, 6000, 1000])) < 20
    assert np.array_equal(choice.draw(9, seed=5), choice.draw(20, seed=5)[:9])
    assert Choice([2.0]).draw(3, seed=0).tolist() == [0, 0, 0]
    for weights in ([], [0.0, 0], [1, -1], [np.nan], [np.inf], [[1.0]], [1e308, 1e308]):
        with (
            np.errstate(over="ignore"),
            pytest.raises(InputError, match=r"'weights' must (be|have)"),
        ):
            Choice(weights)


GRAPH = random_graph(5, 9)


def test_bad_input() -> None:
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: sampling.sample_neighbours(GRAPH, [0], [], seed=0), "'fanouts' must be"),
        (lambda: sampling.sample_neighbours(GRAPH, [0], [3, 0], seed=0), r"got \[3, 0\]"),
        (lambda: sampling.sample_neighbours(GRAPH, [0], [-2], seed=0), "1 or more"),
        (lambda: sampling.sample_neighbours(GRAPH, [0], [2.5], seed=0), "'fanouts'"),  # type: ignore[list-item]
        (lambda: sampling.sample_neighbours(GRAPH, [5], [1], seed=0), r"'seeds' .* in 0\.\.4"),
        (lambda: sampling.sample_neighbours(GRAPH, [-1], [1], seed=0), r"got -1\.\.-1"),
        (lambda: sampling.sample_neighbours(GRAPH, [1, 1], [1], seed=0), "unique"),
        (lambda: sampling.sample_neighbours(GRAPH, [0.5], [1], seed=0), "a vector of integers"),
        (lambda: sampling.sample_neighbours(GRAPH, [0], [1], seed=-1), "'seed' must be"),
        (lambda: sampling.random_walks(GRAPH, [0], -1, seed=0), "'length' must be"),
        (lambda: sampling.random_walks(GRAPH, [7], 1, seed=0), "'roots' must be"),
        (lambda: sampling.edges_between(GRAPH, [9], [0]), "'rows' must be"),
        (lambda: sampling.edges_between(GRAPH, [0], [0, 0]), "'ids' must be unique"),
        (lambda: CompressedGraph(np.array([0, 2]), np.array([0])), "'offsets' must be rising"),
        (lambda: CompressedGraph(np.array([0, 2, 1]), np.array([0])), "'offsets' must be rising"),
        (lambda: CompressedGraph(np.array([], np.int64), np.array([0])), "'offsets' must be"),
        (lambda: CompressedGraph(np.array([0, 1]), np.array([1])), "'ids' must be node ids"),
        (
            lambda: CompressedGraph(np.array([0, 1]), np.zeros((1, 1), np.int32)),
            "'ids' must be a vec",
        ),
        (lambda: CompressedGraph(np.array([0, 1]), np.array([0]), np.array([0, 1])), "'numbers'"),
        (lambda: CompressedGraph.from_edges([0], [0, 1], 3), "as many as rows"),
        (lambda: CompressedGraph.from_edges([3], [0], 3), "'rows' must be node ids"),
        (lambda: CompressedGraph.from_edges([0], [0], 1 << 31), "'num_nodes'"),
    ]
    for call, message in cases:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


@pytest.mark.skipif(not native.is_available(), reason="no native extension")
def test_the_native_core_reads_nothing_past_an_arrays_end() -> None:
    from bignn import _native

    offsets, ids = np.array([0, 1, 2]), np.array([1, 0], dtype=np.int32)
    node, none = np.array([2]), np.array([], dtype=np.int64)
    for call in (
        lambda: _native.sample_neighbours(offsets, ids, None, node, np.array([1]), False, 0),
        lambda: _native.edges_between(offsets, ids, None, node, none),
        lambda: _native.edges_between(offsets, ids, None, none, -node),
        lambda: _native.random_walks(offsets, ids, 0, np.full((1, 2), 2)),
        lambda: _native.sort_edges(node, node, np.zeros(3, np.int64), ids[:1].copy(), node.copy()),
    ):
        with pytest.raises(ValueError, match="no such node"):
            call()
    with pytest.raises(ValueError, match="do not fit"):
        _native.edges_between(offsets, ids[:1], None, none, none)
    with pytest.raises(ValueError, match="do not fit"):
        _native.edges_between(offsets, ids, node, none, none)
    with pytest.raises(ValueError, match="without roots"):
        _native.random_walks(offsets, ids, 0, np.empty((1, 0), np.int64))
    # Nothing of a refused call is left behind.
    assert _native.edges_between(offsets, ids, None, np.array([0]), np.array([0]))[0].size == 0
