"""Means of several seeds. No torch: who reads results needs none."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def mean_and_std(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation (n - 1); None if anything is missing, and for the
    deviation of one value.
    """
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return None, None
    return statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None


def plus_minus(mean: float, std: float | None, digits: int = 1) -> str:
    """Format ``mean ± std``, or the mean alone where one seed has no deviation."""
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
