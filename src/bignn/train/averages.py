"""Means over seeds. No torch, since reading results needs none."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def mean_and_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Return the mean and the sample standard deviation (n - 1).

    Both are None if any value is missing; the deviation of a single value is None.
    """
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None, None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def plus_minus(mean: float, std: float | None, digits: int = 1) -> str:
    """Format ``mean ± std``, or the mean alone where one seed has no deviation."""
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
