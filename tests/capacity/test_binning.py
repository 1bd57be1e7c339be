"""Entropies of neurons against closed forms and counts by hand."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from bignn.capacity import binning, entropy
from bignn.capacity.binning import bootstrap, dependence, robust_entropy
from bignn.errors import InputError


def by_hand(column: NDArray[np.float64], bins: int) -> float:
    """The definition, value by value, with edges that are never computed by division."""
    low, high = min(column), max(column)
    counts = [0] * bins
    for value in column:
        place = 0
        while place < bins - 1 and (value - low) * bins > (place + 1) * (high - low):
            place += 1
        counts[place] += 1
    shares = [count / len(column) for count in counts if count]
    return -sum(p * float(np.log2(p)) for p in shares)


def test_bins_are_closed_on_the_right_and_the_minimum_is_in_the_first() -> None:
    # Bins (0, 1], (1, 2], (2, 3], (3, 4]: counts 2, 1, 0, 1. Closed on the left: 1, 1, 1, 1.
    assert entropy([0.0, 1.0, 2.0, 4.0], 4) == 1.5
    assert entropy([0, 1, 2, 4], 4) == 1.5  # whole numbers as well
    np.testing.assert_array_equal(
        entropy([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [4.0, 5.0]], 4), [1.5, 0.0]
    )


def test_uniform_values_have_log2_of_the_bins() -> None:
    values = np.random.default_rng(0).random((100_000, 2))
    np.testing.assert_allclose(entropy(values, 200), np.log2(200), rtol=1e-2)


def test_gaussian_values_have_the_entropy_of_their_bins_probabilities() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 200_000)
    edges = np.linspace(values.min(), values.max(), 201)
    levels = np.array([NormalDist(3.0, 2.0).cdf(edge) for edge in edges])
    p = np.diff(levels)
    p /= p.sum()
    assert entropy(values, 200) == pytest.approx(-(p * np.log2(p)).sum(), rel=1e-2)


def test_two_points() -> None:
    values = np.array([-1.0] * 300 + [7.0] * 700)
    expected = -0.3 * np.log2(0.3) - 0.7 * np.log2(0.7)
    for bins in (2, 3, 200):
        assert entropy(values, bins) == pytest.approx(expected, rel=1e-12)


def test_what_does_not_vary_has_no_entropy() -> None:
    values: NDArray[np.float64]
    for values in [np.full(50, 3.3), np.zeros(4), np.array([2.0])]:
        assert entropy(values) == 0
        assert not np.signbit(entropy(values))


def test_one_bin_has_no_entropy() -> None:
    assert entropy(np.arange(10.0), 1) == 0


@given(
    arrays(np.float64, st.integers(1, 40), elements=st.integers(-1000, 1000)),
    st.integers(1, 30),
)
def test_any_whole_numbers(values: NDArray[np.float64], bins: int) -> None:
    assert float(entropy(values, bins)) == pytest.approx(by_hand(values, bins), abs=1e-12)


def test_the_same_in_small_blocks_any_layout_and_type(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).integers(-50, 50, (97, 11)).astype(np.float32)
    expected = [by_hand(column.astype(np.float64), 13) for column in values.T]
    for at_once in (1, 7, 50, 2**20):
        monkeypatch.setattr(binning, "_AT_ONCE", at_once)
        for form in (values, np.asfortranarray(values), values.astype(np.int16)):
            np.testing.assert_allclose(entropy(form, 13), expected, rtol=1e-12)
    np.testing.assert_allclose(entropy(values.astype(np.float16), 13), expected)
    np.testing.assert_allclose(entropy(torch.from_numpy(values), 13), expected)
    assert entropy(np.array([True, False, True, False])) == 1


def test_neither_increasing_linear_maps_nor_the_order_of_nodes_matter() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(0, 1000, (500, 4)) / 64
    expected = entropy(values, 50)
    np.testing.assert_array_equal(entropy(values * 8 - 3, 50), expected)
    np.testing.assert_array_equal(entropy(values[rng.permutation(500)], 50), expected)
    np.testing.assert_array_equal(entropy(values[:, ::-1], 50), expected[::-1])


def test_no_neurons() -> None:
    assert entropy(np.zeros((5, 0))).shape == (0,)


def test_what_is_refused() -> None:
    values: object
    for values, bins, line in [
        (np.array([[0.0, 1.0], [0.0, np.nan]]), 5, r"'values'.*neuron 1; did training diverge"),
        (np.array([0.0, np.inf]), 5, "'values' must be numbers, none beyond 1e"),
        (np.array([0.0, -np.inf]), 5, "'values' must be numbers, none beyond 1e"),
        (np.zeros((0, 3)), 5, r"at least one sample, got shape \[0, 3\]"),
        (np.zeros((2, 3, 4)), 5, r"\[samples, neurons\], got shape \[2, 3, 4\]"),
        (np.float64(1.0), 5, r"got shape \[\]"),
        (["a", "b"], 5, "'values' must be an array of numbers, got dtype"),
        ([[1.0], [1.0, 2.0]], 5, "'values' must be an array of numbers"),
        (np.array([1 + 2j]), 5, "got dtype complex128"),
        (np.zeros(3), 0, "'bins' must be from 1 to 16777216, got 0"),
        (np.zeros(3), 1.5, "'bins' must be a whole number, got 1.5"),
    ]:
        with pytest.raises(InputError, match=line):
            entropy(values, bins)  # type: ignore[arg-type]


def test_corrections_are_known_by_name() -> None:
    with pytest.raises(InputError, match=r"'correction' must be one of .*miller-madow"):
        entropy(np.zeros(3), correction="more")  # type: ignore[arg-type]


def test_miller_madow_by_hand() -> None:
    # Three bins are not empty, four samples: (3 - 1) / (2 * 4) nats more.
    corrected = entropy([0.0, 1.0, 2.0, 4.0], 4, correction="miller-madow")
    assert corrected == pytest.approx(1.5 + 2 / 8 / np.log(2))
    assert entropy(np.zeros(9), correction="miller-madow") == 0


def test_miller_madow_takes_most_of_the_bias() -> None:
    # A column is a draw of 200 samples from 50 equally likely levels.
    values = np.random.default_rng(4).integers(0, 50, (200, 400)).astype(float)
    values[0], values[1] = 0, 49  # the range is known
    truth = np.log2(50)
    bias = truth - entropy(values, 50).mean()
    corrected = truth - entropy(values, 50, correction="miller-madow").mean()
    assert bias == pytest.approx(49 / 400 / np.log(2), rel=0.15)
    assert abs(corrected) < 0.15 * bias


def test_outliers_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    values = rng.uniform(size=(10_000, 3))
    values[:50, 0] = 1e6  # half a percent: all others fall into the first bin
    values[:, 2] = 0  # and hardly anything at all, kept as it is
    values[:20, 2] = 1
    assert entropy(values, 64)[0] < 0.1
    for at_once in (binning._AT_ONCE, 10_000):
        monkeypatch.setattr(binning, "_AT_ONCE", at_once)
        bits = robust_entropy(values, 64)
        assert bits[:2] == pytest.approx([6, 6], rel=0.01)
        assert bits[2] == entropy(values[:, 2], 64) > 0
    assert robust_entropy(values, 64, tails=0) == pytest.approx(entropy(values, 64))
    assert robust_entropy(values[:, 1], 64).shape == ()
    with pytest.raises(InputError, match=r"'tails' must be from 0 to below 0\.5, got 0\.5"):
        robust_entropy(values, tails=0.5)


def test_the_bootstrap_has_the_standard_error_of_theory() -> None:
    values = np.array([0.0] * 600 + [1.0] * 1400)
    found = bootstrap(values, 2, resamples=600)
    # Var H = p q log2(q / p)² / N for two points.
    expected = np.sqrt(0.3 * 0.7) * np.log2(0.7 / 0.3) / np.sqrt(2000)
    assert found.std == pytest.approx(expected, rel=0.1)
    assert found.bits == pytest.approx(float(entropy(values, 2)))
    assert found.high - found.low == pytest.approx(2 * 1.96 * expected, rel=0.15)
    assert found == bootstrap(values, 2, resamples=600)
    assert found != bootstrap(values, 2, resamples=600, seed=1)


def test_the_bootstrap_draws_nodes_whole() -> None:
    """Copies of a neuron are as uncertain together as one, three times over: not √3 times."""
    column = np.random.default_rng(5).normal(size=2000)
    one = bootstrap(column, 20)
    three = bootstrap(np.stack([column] * 3, axis=1), 20)
    assert three.std == pytest.approx(3 * one.std)
    assert three.low == pytest.approx(3 * one.low)


def test_the_bootstrap_mirrors_the_bias() -> None:
    """With many bins for few samples the estimate is low, and the interval reaches above it."""
    values = np.random.default_rng(6).random(300)
    found = bootstrap(values, 100)
    assert found.low > found.bits
    assert found.high < np.log2(100) + 0.3
    for wrong, line in (({"resamples": 1}, "resamples"), ({"level": 1.0}, "level")):
        with pytest.raises(InputError, match=line):
            bootstrap(values, 100, **wrong)


def test_dependence_on_bins_and_samples() -> None:
    values = np.random.default_rng(7).normal(size=(400, 3))
    rows = dependence(values, [1, 10, 40], [100, 400])
    assert [(row.bins, row.samples) for row in rows] == [
        *[(1, 100), (10, 100), (40, 100)],
        *[(1, 400), (10, 400), (40, 400)],
    ]
    assert rows[0].bits == rows[0].corrected_bits == 0
    assert rows[4].bits == pytest.approx(float(entropy(values, 10).sum()))
    assert rows[5].corrected_bits == pytest.approx(
        float(entropy(values, 40, correction="miller-madow").sum())
    )
    assert dependence(values, [10])[0] == rows[4]
    # 100 samples have a range and bins of their own: about as many bits, not the same.
    assert rows[1].bits != rows[4].bits
    assert rows[1].bits == pytest.approx(rows[4].bits, rel=0.1)
    with pytest.raises(InputError, match="'samples' must be numbers from 1 to 400, got 401"):
        dependence(values, [10], [401])
