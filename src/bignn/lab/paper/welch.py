"""Welch's test, from means and deviations, by the standard library alone."""

from __future__ import annotations

import math


def p_value(ours: tuple[float, float, int], theirs: tuple[float, float, int]) -> float:
    """The two-sided p-value that means are equal, of (mean, sample deviation, count) of both.

    With ``v = s² / n`` of each, ``t² = (m - m')² / (v + v')`` and ``ν = (v + v')² / (v² / (n - 1) +
    v'² / (n' - 1))`` degrees of freedom: ``p = I_x(ν / 2, 1 / 2)`` at ``x = ν / (ν + t²)``, I the
    regularised incomplete beta function. One of the deviations must not be 0.
    """
    (mean, std, count), (other_mean, other_std, other_count) = ours, theirs
    v, w = std**2 / count, other_std**2 / other_count
    degrees = (v + w) ** 2 / (v**2 / (count - 1) + w**2 / (other_count - 1))
    squared = (mean - other_mean) ** 2 / (v + w)
    x, y = degrees / (degrees + squared), squared / (degrees + squared)
    return _regularised_beta(x, y, degrees / 2, 0.5)


def _regularised_beta(x: float, y: float, a: float, b: float) -> float:
    """``I_x(a, b)`` with ``y = 1 - x``, given apart since a subtraction would lose its digits: by
    its continued fraction where that converges fast, else by symmetry.
    """
    if x == 0 or y == 0:
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _regularised_beta(y, x, b, a)
    scale = a * math.log(x) + b * math.log(y)
    scale += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    # 1 / (1 + d_1 / (1 + d_2 / (1 + ...))), from the inside out; 200 terms are far more than the
    # tails of a t distribution need at any degrees of freedom that seeds give.
    fraction = 1.0
    for term in range(200, 0, -1):
        m, is_odd = divmod(term, 2)
        d = -(a + m) * (a + b + m) if is_odd else m * (b - m)
        fraction = 1 + d * x / ((a + term - 1) * (a + term)) / fraction
    return math.exp(scale) / a / fraction
