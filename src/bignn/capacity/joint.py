"""Bits of a layer whose neurons depend on each other. NumPy alone.

The paper adds neurons up as if they were independent. What two neurons share is then counted twice;
the estimates here count it once, in two ways.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.capacity.binning import Correction, Ranges, checked, entropy
from bignn.errors import input_error


def copula_entropy(
    values: ArrayLike,
    bins: int = 200,
    *,
    correction: Correction = "none",
    max_samples: int = 50_000,
    seed: int = 0,
) -> float:
    r"""Estimate ``Σ_k max(0, H(h_k) - I(h_k; h_1, ..., h_{k-1}))``: entropies less what is shared.

    This is the chain rule (Eq. entropy_of_layer) with the information I of a Gaussian copula. Every
    neuron is replaced by its normal scores ``Φ⁻¹(rank / N)`` (equal values, as the zeros of a ReLU,
    share the mean of their ranks), and ``I = -½ log2(1 - R²)`` with R² the share of a neuron's
    scores that a linear map of those before explains. Ranks do not change under an increasing map
    of a neuron. Neurons are taken in the order of what they add, largest first, until none adds a
    bit: copies add nothing, and no determinant is ever near 0.

    The estimate is exact for a Gaussian layer cut into many bins. Correlation of normal scores
    bounds I from below, so nonlinear dependence is missed and too much is counted; many equal
    values (neurons of few levels) can err to either side.

    R² from N samples is too large even where there is nothing to explain; the expected logarithm of
    a residual sum of squares with N - k degrees of freedom takes that out (exactly so for Gaussian
    values). Neurons beyond the first N - 2 cannot be judged and count in full.

    Args:
        values: a row per node, a column per neuron.
        bins: M of the neurons' own entropies.
        correction: correction of the neurons' own entropies.
        max_samples: correlations are taken from at most so many nodes, drawn by ``seed``.
        seed: seed of that draw.

    """
    array, bins = checked(values, bins)
    columns = array.reshape(len(array), -1)
    own = entropy(columns, bins, correction=correction)
    varied = np.flatnonzero(own > 0)
    if len(varied) == 0:
        return 0.0
    scores = _normal_scores(_some(columns, max_samples, seed), varied)
    return _chain(own[varied], _correlations(scores), scores.shape[1])


def rate(values: ArrayLike, bins: int = 200, *, max_samples: int = 50_000, seed: int = 0) -> float:
    r"""Compute the bits per node that describe a layer as finely as bins: a rate-distortion bound.

    Rounding neuron k to the middle of its bin, ``Δ_k = (max - min) / M`` wide, costs a mean square
    error of ``Δ_k² / 12`` where values are spread evenly within bins (a mass at a bin's end, as the
    zeros of a ReLU, costs up to three times that, and is described more finely here). In units of
    Δ_k that is 1/12 for each of d neurons (constant ones left out), d/12 for a node. Among all
    layers with the same covariance, Gaussian ones need the most bits for that error (Shannon), and
    theirs are known, by reverse water-filling over the eigenvalues λ of the covariance in these
    units:

    ``R = Σ_j max(0, ½ log2(λ_j / θ))``, ``θ`` such that ``Σ_j min(θ, λ_j) = d / 12``

    Coding the bins of each neuron by itself takes H_ind, so the result is the smaller of both: so
    many bits suffice for this error, for many nodes described together. Directions that hardly vary
    cost nothing, and a second copy of the layer adds nothing.
    Independent Gaussian neurons take 0.25 bits each less than by bins (``½ log2(2πe / 12)``, what
    rounding numbers one by one gives away).

    Args:
        values: a row per node, a column per neuron.
        bins: M.
        max_samples: the covariance is taken from at most so many nodes, drawn by ``seed``.
        seed: seed of that draw.

    """
    array, bins = checked(values, bins)
    columns = array.reshape(len(array), -1)
    span = Ranges.of(columns).span
    varied = np.flatnonzero(span > 0)
    if len(varied) == 0:
        return 0.0
    some = _some(columns, max_samples, seed)[:, varied] / span[varied] * bins
    some -= some.mean(axis=0)
    variances = np.linalg.eigvalsh(some.T @ some / len(some))
    by_itself = float(entropy(columns, bins).sum())
    return min(by_itself, water_filling(variances, len(varied) / 12))


def water_filling(variances: ArrayLike, distortion: float) -> float:
    """Compute the rate in bits of independent Gaussians at a total mean square error."""
    falling = np.sort(np.maximum(np.asarray(variances, dtype=np.float64), 0))[::-1]
    if distortion <= 0:
        raise input_error("distortion", "above 0", distortion)
    if falling.sum() <= distortion:
        return 0.0
    # With the k largest above the water, θ = (distortion - the rest) / k must not exceed the k-th.
    rests = falling.sum() - np.cumsum(falling)
    levels = (distortion - rests) / np.arange(1, len(falling) + 1)
    fits = (levels > 0) & (levels <= falling)
    count = int(np.flatnonzero(fits)[-1]) + 1
    return float(0.5 * np.log2(falling[:count] / levels[count - 1]).sum())


def _some(columns: NDArray[Any], max_samples: int, seed: int) -> NDArray[Any]:
    if max_samples < 2:
        raise input_error("max_samples", "at least 2", max_samples)
    if len(columns) <= max_samples:
        return columns
    chosen = np.random.default_rng(seed).choice(len(columns), max_samples, replace=False)
    return columns[np.sort(chosen)]


def _normal_scores(columns: NDArray[Any], chosen: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute Φ⁻¹ of the ranks, equal values at their mean rank: a row per chosen neuron."""
    size = len(columns)
    # Mean ranks are multiples of a half, so there are 2 N - 1 of them.
    table = _quantiles(size)
    scores = np.empty((len(chosen), size))
    for row, column in zip(scores, chosen, strict=True):
        _, level, counts = np.unique(columns[:, column], return_inverse=True, return_counts=True)
        last = np.cumsum(counts)
        row[:] = table[(2 * last - counts - 1)[level]]
    return scores


@lru_cache(maxsize=2)
def _quantiles(size: int) -> NDArray[np.float64]:
    """Tabulate Φ⁻¹((r + ½) / N) for the ranks r = 0, ½, 1, ..., N - 1."""
    quantile = NormalDist().inv_cdf
    return np.array([quantile((number + 1) / (2 * size)) for number in range(2 * size - 1)])


def _correlations(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    scores = scores - scores.mean(axis=1, keepdims=True)
    length = np.sqrt((scores**2).sum(axis=1, keepdims=True))
    scores /= np.where(length > 0, length, 1)  # constant among the samples that were drawn
    return scores @ scores.T


def _chain(own: NDArray[np.float64], correlations: NDArray[np.float64], size: int) -> float:
    """Add up conditional entropies, by a Cholesky factorisation whose pivot adds the most bits."""
    width = len(own)
    left = np.ones(width)  # 1 - R² of each neuron, given those taken
    taken = np.zeros(width, dtype=bool)
    factor = np.zeros((width, width))
    total = 0.0
    for step in range(width):
        degrees = size - 1 - step
        if degrees < 1:
            return total + float(own[~taken].sum())
        with np.errstate(divide="ignore"):
            adds = own + 0.5 * np.log2(np.maximum(left, 0))
        adds -= 0.5 * (_mean_log(degrees) - _mean_log(size - 1)) / np.log(2)
        adds = np.minimum(adds, own)
        adds[taken] = -np.inf
        pivot = int(np.argmax(adds))
        if adds[pivot] <= 0:
            return total
        total += float(adds[pivot])
        taken[pivot] = True
        column = correlations[:, pivot] - factor[:, :step] @ factor[pivot, :step]
        factor[:, step] = column / np.sqrt(left[pivot])
        left -= factor[:, step] ** 2
    return total


def _mean_log(degrees: int) -> float:
    """Compute E[ln X] of a chi-squared X, within 0.01 from 2 degrees of freedom on (0.07 at 1)."""
    n = float(degrees)
    return float(np.log(n) - 1 / n - 1 / (3 * n**2) + 2 / (15 * n**4))
