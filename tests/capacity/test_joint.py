"""Estimates that do not take neurons for independent, against cases whose answer is known."""

import numpy as np
import pytest
from numpy.typing import NDArray

from bignn.capacity import entropy
from bignn.capacity.joint import copula_entropy, rate, water_filling
from bignn.errors import InputError

#: Neighbouring neurons share 0.8: ``det R = (1 - 0.8²)^(d - 1)``.
CORRELATED = 0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6)))


def normals(size: int, width: int, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).standard_normal((size, width))


def correlated(size: int = 40_000) -> NDArray[np.float64]:
    return normals(size, 6) @ np.linalg.cholesky(CORRELATED).T


def test_independent_neurons_add_up() -> None:
    values = normals(20_000, 5)
    assert copula_entropy(values) == pytest.approx(entropy(values).sum(), rel=1e-3)


def test_correlated_gaussians_have_the_closed_form() -> None:
    values = correlated()
    shared = -0.5 * 5 * np.log2(1 - 0.8**2)
    assert shared == pytest.approx(3.68, abs=0.01)
    found = entropy(values, 500).sum() - copula_entropy(values, 500)
    assert found == pytest.approx(shared, rel=2e-2)


def test_copies_add_nothing() -> None:
    samples = normals(3000, 4)
    for values in (samples, np.maximum(samples, 0)):
        twice = np.concatenate([values, 3 * values - 1, -values], axis=1)
        alone = copula_entropy(values)
        assert entropy(twice).sum() > 2.9 * entropy(values).sum()
        # The mirrored copy's bins are closed on the other side, so its own entropy may be larger.
        assert copula_entropy(twice) == pytest.approx(alone, rel=5e-3)


def test_sums_of_neurons_add_little() -> None:
    """A fifth neuron that is the sum of four is known to within a few of its 6.6 bits of bins."""
    values = normals(5000, 4)
    with_sum = np.concatenate([values, values.sum(axis=1, keepdims=True)], axis=1)
    assert copula_entropy(with_sum) == pytest.approx(copula_entropy(values), abs=2)


def test_increasing_maps_do_not_change_what_is_shared() -> None:
    values = correlated(5000)
    mapped = np.exp(values)
    shared, mapped_shared = (
        entropy(some, 500).sum() - copula_entropy(some, 500) for some in (values, mapped)
    )
    assert mapped_shared == pytest.approx(shared, rel=1e-6)


def test_chance_correlations_do_not_count() -> None:
    """30 independent neurons seem to share d (d - 1) / (4 N ln 2) = 5.2 bits in 60 samples."""
    shared = [
        entropy(values).sum() - copula_entropy(values)
        for values in (normals(60, 30, seed) for seed in range(20))
    ]
    assert abs(np.mean(shared)) < 1.0


def test_more_neurons_than_samples() -> None:
    values = normals(20, 50)
    assert 0 < copula_entropy(values) <= entropy(values).sum() + 1e-9


def test_what_does_not_vary_counts_nothing() -> None:
    for estimate in (copula_entropy, rate):
        assert estimate(np.ones((9, 3))) == 0
        assert estimate(np.ones((1, 3))) == 0
        values = normals(500, 2)
        with_constant = np.concatenate([values, np.full((500, 1), 7.0)], axis=1)
        assert estimate(with_constant) == pytest.approx(estimate(values))


def test_many_nodes_are_sampled() -> None:
    values = correlated(20_000)
    for estimate in (copula_entropy, rate):
        some = estimate(values, max_samples=5000)
        assert some == estimate(values, max_samples=5000)
        assert some != estimate(values, max_samples=5000, seed=1)
        assert some == pytest.approx(estimate(values), rel=1e-2)
        with pytest.raises(InputError, match="'max_samples' must be at least 2, got 1"):
            estimate(values, max_samples=1)


def test_water_filling_by_hand() -> None:
    # θ = ½: ½ log2(4 / ½) + ½ log2(1 / ½) = 1.5 + 0.5.
    assert water_filling([1, 4], 1) == pytest.approx(2)
    # 0.1 lies under the water, whose level is 1 - 0.1 for the other.
    assert water_filling([0.1, 4], 1) == pytest.approx(0.5 * np.log2(4 / 0.9))
    assert water_filling([0.3, 0.6], 1) == 0
    assert water_filling([0, 0, 4], 0.25) == pytest.approx(2)
    assert water_filling([1, 1, 1], 1) == pytest.approx(1.5 * np.log2(3))
    with pytest.raises(InputError, match="'distortion' must be above 0, got 0"):
        water_filling([1], 0)


def test_the_rate_of_correlated_gaussians() -> None:
    values = correlated()
    units = 200 / (values.max(axis=0) - values.min(axis=0))
    # All eigenvalues are far above the error of a bin, so the level is 1/12 and R is a determinant.
    _, logarithm = np.linalg.slogdet(12 * CORRELATED * np.outer(units, units))
    assert rate(values) == pytest.approx(0.5 * logarithm / np.log(2), rel=5e-3)


def test_the_rate_of_copies() -> None:
    values = normals(2000, 3)
    assert rate(np.concatenate([values, 3 * values - 1, -values], axis=1)) == pytest.approx(
        rate(values)
    )


def test_the_rate_is_never_more_than_the_neurons_bits() -> None:
    """Sparse values: a Gaussian layer of the same covariance would need far more."""
    values = np.maximum(normals(5000, 4) - 2, 0)
    assert rate(values) == pytest.approx(entropy(values).sum())
