"""The order of locality: every node once, communities side by side, natively as in Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bignn.kernels import native
from bignn.kernels.compressed_rows import compress_edges
from bignn.kernels.node_order import locality_order, reference_order


def rows_of(
    edges: NDArray[np.int64], num_nodes: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    offsets, ids, _ = compress_edges(edges[0], edges[1], None, num_nodes)
    return offsets, ids


def cliques(count: int, size: int, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Edges of cliques, one from each to the next, ids shuffled; and the clique of each node."""
    rng = np.random.default_rng(seed)
    of_node = rng.permutation(np.repeat(np.arange(count), size))
    source, target = np.nonzero(of_node[:, None] == of_node[None])
    first = np.array([np.flatnonzero(of_node == k)[0] for k in range(count)])
    ring = np.stack([first, np.roll(first, 1)])
    return np.concatenate([np.stack([source, target]), ring, ring[::-1]], axis=1), of_node


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_native_and_python_give_the_same_order(data: st.DataObject) -> None:
    if not native.is_available():
        pytest.skip("no native extension")
    num_nodes = data.draw(st.sampled_from([1, 2, 7, 40, 200]))
    num_edges = data.draw(st.sampled_from([0, 1, 30, 400]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    edges = (num_nodes * rng.random((2, num_edges)) ** 2).astype(np.int64)
    offsets, ids = rows_of(np.concatenate([edges, edges[::-1]], axis=1), num_nodes)
    order = locality_order(offsets, ids)
    assert order.dtype == np.int64
    assert np.array_equal(order, reference_order(offsets, ids))
    assert np.array_equal(np.sort(order), np.arange(num_nodes))


@pytest.mark.parametrize("is_native", [True, False])
def test_directions_do_not_count(is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_native:
        monkeypatch.setattr(native, "is_available", lambda: False)
    edges = np.random.default_rng(0).integers(0, 60, (2, 150))
    both = np.concatenate([edges, edges[::-1]], axis=1)
    expected = locality_order(*rows_of(both, 60))
    assert np.array_equal(locality_order(*rows_of(edges, 60)), expected)
    assert np.array_equal(locality_order(*rows_of(edges[::-1], 60)), expected)
    offsets, ids = rows_of(both, 60)
    assert np.array_equal(locality_order(offsets, ids.astype(np.int64)), expected)


@pytest.mark.parametrize("is_native", [True, False])
def test_communities_lie_side_by_side(is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_native:
        monkeypatch.setattr(native, "is_available", lambda: False)
    for seed in range(3):
        edges, of_node = cliques(20, 9, seed)
        found = of_node[locality_order(*rows_of(edges, 180))]
        assert np.count_nonzero(np.diff(found)) == 19  # each begins where the one before ends


def test_nodes_without_edges_are_there() -> None:
    for num_nodes in (0, 1, 5):
        nothing = np.zeros(num_nodes + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
        assert sorted(locality_order(*nothing).tolist()) == list(range(num_nodes))
        assert sorted(reference_order(*nothing).tolist()) == list(range(num_nodes))
