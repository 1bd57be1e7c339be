"""Native sums over rows of floats, their rounded weights and scales, against plain NumPy."""

from typing import Any

import numpy as np
import pytest

from bignn.kernels import edge_rounding, native, reference

COLUMNS = (0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 129)


def random_rows(num_rows: int, num_sources: int) -> tuple[Any, Any, Any]:
    """Offsets, ids and weights of rows with 0 to 11 entries, one with 300."""
    rng = np.random.default_rng(num_rows)
    degree = rng.integers(0, 12, num_rows)
    degree[num_rows // 2 : num_rows // 2 + 1] = 300
    offsets = np.concatenate([[0], np.cumsum(degree)]).astype(np.int64)
    ids = rng.integers(0, num_sources, offsets[-1])
    return offsets, ids, rng.standard_normal(offsets[-1]).astype(np.float32)


def one_after_the_other(offsets: Any, ids: Any, weights: Any, x: Any) -> Any:
    """Sums of rows in x's type, each product and each sum rounded."""
    out = np.zeros((len(offsets) - 1, x.shape[1]), x.dtype)
    for i in range(len(out)):
        for e in range(offsets[i], offsets[i + 1]):
            out[i] = out[i] + weights[e] * x[ids[e]]
    return out


@pytest.mark.parametrize("isa", native.supported())
def test_sums_are_those_of_a_plain_loop(isa: str) -> None:
    rng = np.random.default_rng(0)
    for num_rows in (0, 1, 50):
        offsets, ids, weights = random_rows(num_rows, 40)
        places = rng.permutation(len(ids))
        scale = rng.random(num_rows).astype(np.float32)
        for columns in COLUMNS:
            x = rng.standard_normal((40, columns)).astype(np.float32)
            out = native.sum_rows(offsets, ids, None, weights, x, None, isa=isa)
            expected = one_after_the_other(offsets, ids, weights, x)
            assert np.array_equal(out, expected), (num_rows, columns)
            out = native.sum_rows(offsets, ids, places, weights, x, scale, isa=isa)
            expected = one_after_the_other(offsets, ids, weights[places], x) * scale[:, None]
            assert np.array_equal(out, expected), (num_rows, columns)


@pytest.mark.parametrize("isa", native.supported())
def test_whole_numbers_are_added_exactly(isa: str) -> None:
    rng = np.random.default_rng(1)
    offsets, ids, _ = random_rows(50, 40)
    weights = rng.integers(1, 256, len(ids)).astype(np.float32)
    for columns in COLUMNS:
        x = rng.integers(-5000, 5000, (40, columns)).astype(np.float32)
        x[rng.random(x.shape) < 0.5] = 4999
        scale = np.ones(50, dtype=np.float32)
        out = native.sum_rows(offsets, ids, None, weights, x, scale, isa=isa, largest=255 * 5000)
        expected = one_after_the_other(offsets, ids, weights.astype(int), x.astype(int))
        assert np.array_equal(out, expected.astype(np.float32)), columns
    assert abs(expected).max() > 1 << 24
    in_floats = native.sum_rows(offsets, ids, None, weights, x, scale, isa=isa)
    assert not np.array_equal(in_floats, expected.astype(np.float32))


@pytest.mark.parametrize("isa", native.supported())
def test_weights_are_rounded_as_the_reference_rounds_them(isa: str) -> None:
    rng = np.random.default_rng(2)
    offsets, ids, weights = random_rows(50, 40)
    weights[offsets[3] : offsets[4]] = 1e-30
    weights[offsets[5] : offsets[6]] = 3e38
    weights = np.abs(weights)
    beta, column, row = (rng.random(n).astype(np.float32) * 9 for n in (40, 40, 50))
    ones = np.ones(50, dtype=np.float32)
    for edge_bits in range(2, 9):
        q, scale = native.round_rows(
            offsets, ids, weights, beta, column, row, edge_bits=edge_bits, isa=isa
        )
        expected = edge_rounding.round_edge_weights(
            offsets, ids, weights, column * beta, row, edge_bits
        )
        assert np.array_equal(q, expected[0])
        assert np.array_equal(scale, expected[1])
        q, scale = native.round_rows(
            offsets, ids, None, beta, None, None, edge_bits=edge_bits, isa=isa
        )
        expected = edge_rounding.round_edge_weights(offsets, ids, None, beta, ones, edge_bits)
        assert np.array_equal(q, expected[0])
        assert np.array_equal(scale, expected[1])


@pytest.mark.parametrize("isa", native.supported())
def test_rows_are_binarized_as_the_reference_does(isa: str) -> None:
    rng = np.random.default_rng(3)
    for columns in COLUMNS[1:]:
        h = rng.standard_normal((30, columns)).astype(np.float32)
        words, beta = native.binarize(h, isa)
        expected = reference.binarize(h)
        assert np.array_equal(words, expected[0]), columns
        assert np.array_equal(beta, expected[1]), columns
    h[4, 2] = np.nan
    words, beta = native.binarize(h, isa)
    assert np.array_equal(words, reference.binarize(h)[0])
    assert beta[4] == edge_rounding.LARGEST_WEIGHT


@pytest.mark.parametrize("isa", native.supported())
def test_arrays_that_do_not_fit_are_refused(isa: str) -> None:
    offsets, ids = np.array([0, 2, 3]), np.array([0, 1, 2])
    weights, x = np.ones(3, dtype=np.float32), np.ones((3, 4), dtype=np.float32)
    beta = np.ones(3, dtype=np.float32)
    wrong: list[tuple[Any, Any, Any, Any]] = [
        (np.array([0, 2, 4]), ids, None, weights),
        (np.array([1, 2, 3]), ids, None, weights),
        (np.array([0, 4, 3]), ids, None, weights),
        (offsets, np.array([0, 1, 3]), None, weights),
        (offsets, np.array([0, -1, 2]), None, weights),
        (offsets, ids, np.array([0, 1, 3]), weights),
        (offsets, ids, np.array([0, -1, 2]), weights),
        (offsets, ids, None, weights[:2]),
    ]
    for rows, columns, places, some in wrong:
        with pytest.raises(ValueError, match="of the wrong number"):
            native.sum_rows(rows, columns, places, some, x, None, isa=isa)
        if places is None:
            with pytest.raises(ValueError, match="of the wrong number"):
                native.round_rows(rows, columns, some, beta, None, None, edge_bits=7, isa=isa)
