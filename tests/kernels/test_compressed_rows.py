"""Compressed rows: the order of edges, self-loops, degrees and offsets, by their definitions."""

import numpy as np
import pytest

from bignn.kernels import native
from bignn.kernels.compressed_rows import (
    compress_edges,
    is_among,
    offsets_fit,
    order_of_entries,
    rows_and_sources,
    take_rows,
)
from bignn.kernels.gcn_degrees import degree_scale, gcn_degree_scale, with_self_loops


@pytest.mark.parametrize("is_native", [True, False])
def test_edges_are_sorted_by_target_then_source_stably(
    is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_native:
        monkeypatch.setattr(native, "is_available", lambda: False)
    rng = np.random.default_rng(0)
    for nodes, edges in ((1, 0), (1, 5), (7, 0), (7, 300), (1000, 50), (300, 5000)):
        source, target = rng.integers(0, nodes, (2, edges))
        weights = rng.random(edges, dtype=np.float32)  # show which of repeated edges comes first
        order = np.lexsort((source, target))
        offsets, ids, sorted_weights = compress_edges(source, target, weights, nodes)
        assert np.array_equal(ids, source[order])
        assert ids.dtype == np.int32
        assert offsets.dtype == np.int64
        assert np.array_equal(np.diff(offsets), np.bincount(target, minlength=nodes))
        assert offsets[0] == 0
        if edges:
            assert sorted_weights is not None
            assert np.array_equal(sorted_weights, weights[order])
        assert compress_edges(source, target, None, nodes)[2] is None
        ones = np.ones(edges, dtype=np.float32)
        assert compress_edges(source, target, ones, nodes)[2] is None


def test_entries_may_be_strided_read_only_and_of_any_integers() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, 9, (40, 2))  # rows and columns are every second number of it
    pairs.flags.writeable = False
    expected = np.lexsort((pairs[:, 1], pairs[:, 0]))
    for some in (pairs, pairs.astype(np.int32), np.asfortranarray(pairs)):
        offsets, order = order_of_entries(some[:, 0], some[:, 1], (9, 9))
        assert np.array_equal(order, expected)
        assert np.array_equal(np.diff(offsets), np.bincount(pairs[:, 0], minlength=9))
    # A matrix need not be square.
    _, order = order_of_entries(pairs[:, 0], 100 * pairs[:, 1], (9, 900))
    assert np.array_equal(order, expected)


def test_a_node_keeps_its_last_self_loop() -> None:
    source = np.array([0, 1, 1, 2, 1, 3, 1])
    target = np.array([1, 1, 0, 2, 1, 0, 1])
    weights = np.array([9, 5, 8, 0, 6, 7, 0.25], dtype=np.float32)
    new_source, new_target, new_weights = with_self_loops(source, target, weights, 5)
    assert new_weights is not None
    assert list(zip(new_source, new_target, new_weights, strict=True)) == [
        *[(0, 1, 9), (1, 0, 8), (3, 0, 7)],
        *[(0, 0, 1), (1, 1, 0.25), (2, 2, 0), (3, 3, 1), (4, 4, 1)],
    ]
    plain = with_self_loops(source, target, None, 5)
    assert np.array_equal(plain[0], new_source)
    assert np.array_equal(plain[1], new_target)
    assert plain[2] is None
    # Degrees are those of the same edges.
    degree = np.bincount(new_target, new_weights, minlength=5)
    scale = gcn_degree_scale(source, target, weights, 5)
    assert scale.dtype == np.float32
    np.testing.assert_array_equal(scale, degree_scale(degree).astype(np.float32))
    assert scale.tolist() == [0.25, np.float32(9.25**-0.5), 0, 1, 1]
    assert gcn_degree_scale(source, target, None, 5).tolist() == [
        *[np.float32(3**-0.5), np.float32(2**-0.5), 1, 1, 1],
    ]


def test_a_degree_of_0_has_scale_0() -> None:
    degree = np.array([0, 4, 0.25, 1e-30, 0])
    assert degree_scale(degree).tolist() == pytest.approx([0, 0.5, 2, 1e15, 0])
    assert degree_scale(degree.astype(np.float32)).dtype == np.float32
    no_edges = np.zeros(0, dtype=np.int64)
    assert gcn_degree_scale(no_edges, no_edges, None, 3).tolist() == [1, 1, 1]
    loop = np.array([1])
    nothing = np.zeros(1, dtype=np.float32)
    assert gcn_degree_scale(loop, loop, nothing, 3).tolist() == [1, 0, 1]


def test_offsets_fit_if_they_rise_from_0_to_the_count() -> None:
    for offsets, count, fits in (
        ([0], 0, True),
        ([0, 0, 0], 0, True),
        ([0, 2, 2, 5], 5, True),
        ([0, 2, 2, 5], 4, False),
        ([0, 2, 2, 5], 6, False),
        ([1, 2, 5], 5, False),
        ([0, 3, 2, 5], 5, False),
        ([0, 6, 5], 5, False),
        ([0, -(2**63), 5], 5, False),
        ([0, 2**63 - 1, 5], 5, False),
        ([], 0, False),
    ):
        assert offsets_fit(np.array(offsets, dtype=np.int64), count) is fits, (offsets, count)


@pytest.mark.parametrize("num_nodes", [1, 7, 60, 100_000])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_some_rows_natively_and_in_numpy(
    num_nodes: int, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few and many rows: found by sorting and by a bitmap, places by bisection and by a table."""
    rng = np.random.default_rng(num_nodes)
    source, target = rng.integers(0, num_nodes, (2, 5 * num_nodes))
    of_edges = rng.random(5 * num_nodes, dtype=np.float32)
    offsets, ids, weights = compress_edges(source, target, of_edges, num_nodes)
    ids = ids.astype(dtype)
    for count in {0, 1, num_nodes // 3, num_nodes}:
        rows = np.sort(rng.permutation(num_nodes)[:count])
        found = []
        for is_native in (True, False):
            with monkeypatch.context() as patch:
                if not is_native:
                    patch.setattr(native, "is_available", lambda: False)
                taken = rows_and_sources(offsets, ids, rows)
                found += [
                    [taken, *take_rows(offsets, ids, given, rows, taken)]
                    for given in (weights, None)
                ]
        for mine, other in zip(found[:2], found[2:], strict=True):
            for one, two in zip(mine, other, strict=True):
                np.testing.assert_array_equal(one, two)
                assert getattr(one, "dtype", None) == getattr(two, "dtype", None)


def test_rows_whose_neighbours_were_not_taken_are_refused() -> None:
    offsets, ids = np.array([0, 1, 2]), np.array([1, 0], dtype=np.int32)
    rows = np.array([0])
    with pytest.raises(ValueError, match="not among the nodes taken"):
        native.take_rows(offsets, ids, None, rows, rows)
    with pytest.raises(ValueError, match="no such node"):
        native.rows_and_sources(offsets, ids, np.array([2]))


def test_values_among_rising_ones() -> None:
    rng = np.random.default_rng(0)
    for count in (0, 1, 7, 100):
        rising = np.unique(rng.integers(0, 150, count))
        values = rng.integers(-5, 160, 50)
        np.testing.assert_array_equal(is_among(values, rising), np.isin(values, rising))
        assert is_among(values[:0], rising).shape == (0,)
