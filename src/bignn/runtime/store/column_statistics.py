"""Means and spreads of the columns of features that no memory holds, numerically stable.

Every part of 4,096 rows has its mean and its sum of squared deviations from it; parts are put
together in order (Chan, Golub and LeVeque 1979), so that the result depends on the rows alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels import native
from bignn.runtime.input_bits import rotation_scales
from bignn.runtime.input_stage import absolute_sums, constant_statistics, normalized

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

#: Rows of a part where the native core, which has the same number, is missing.
_PART_ROWS = 4096
#: A column whose spread is at most this share of its largest number is constant.
_CONSTANT = 1e-7


class ColumnStatistics:
    """Statistics of the rows seen so far.

    Args:
        num_columns: d.
        normalize_rows: whether rows are normalised first.

    """

    def __init__(self, num_columns: int, *, normalize_rows: bool) -> None:
        self.normalize_rows = normalize_rows
        self.num_rows = 0
        self.mean: Doubles = np.zeros(num_columns)
        self.squares: Doubles = np.zeros(num_columns)
        self.first: Doubles = np.zeros(num_columns)
        self.largest: Doubles = np.zeros(num_columns)

    def add(self, x: Floats) -> None:
        """Add rows of features; all but the last block have a multiple of 4,096 rows."""
        if not len(x):
            return
        if self.num_rows == 0:
            self.first[:] = self._normalized(x[:1])[0]
        if native.is_available():
            parts = native.feature_statistics(x, self.normalize_rows)
        else:
            parts = self._parts(x)
        rows = native.statistics_rows() if native.is_available() else _PART_ROWS
        for number, (mean, squares, least, most) in enumerate(zip(*parts, strict=True)):
            self._merge(min(rows, len(x) - number * rows), mean, squares)
            np.maximum(self.largest, np.maximum(np.abs(least), np.abs(most)), out=self.largest)

    def _merge(self, count: int, mean: Doubles, squares: Doubles) -> None:
        total = self.num_rows + count
        apart = mean - self.mean
        self.squares += squares + apart * apart * (self.num_rows * count / total)
        self.mean += apart * (count / total)
        self.num_rows = total

    def _normalized(self, x: Floats) -> Any:
        return normalized(
            x,
            normalize_rows=self.normalize_rows,
            mean=None,
            scale=None,
            absolute_sums=absolute_sums,
        )

    def _parts(self, x: Floats) -> tuple[NDArray[Any], ...]:
        made: list[tuple[Any, ...]] = []
        for begin in range(0, len(x), _PART_ROWS):
            rows = self._normalized(x[begin : begin + _PART_ROWS]).astype(np.float64)
            mean = rows.mean(axis=0)
            squares = np.square(rows - mean).sum(axis=0)
            made.append((mean, squares, rows.min(axis=0), rows.max(axis=0)))
        return tuple(np.stack(part) for part in zip(*made, strict=True))

    def mean_and_scale(self, *, rotates: bool) -> tuple[Floats, Floats]:
        """Return the means and factors that standardise the columns, as ``InputStage.fit`` does."""
        deviation = np.sqrt(self.squares / max(1, self.num_rows))
        constant = deviation <= _CONSTANT * self.largest
        if rotates:
            scale = rotation_scales(np.where(constant, 0.0, deviation))
            mean = np.where(constant, self.first, self.mean)
        else:
            own_mean, own_scale = constant_statistics(self.first)
            scale = np.where(constant, own_scale, 1.0 / np.where(constant, 1.0, deviation))
            mean = np.where(constant, own_mean, self.mean)
        return mean.astype(np.float32), scale.astype(np.float32)

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as JSON holds them, to the last bit."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return {"num_rows": self.num_rows, **arrays}

    def restore(self, stored: dict[str, Any]) -> None:
        """Continue from what :meth:`as_json` returned."""
        self.num_rows = int(stored["num_rows"])
        for name in _ARRAYS:
            getattr(self, name)[:] = stored[name]


_ARRAYS = ("mean", "squares", "first", "largest")
