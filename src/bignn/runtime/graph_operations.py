"""Operations that compute each row from statistics of all rows, or of all rows of its graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.runtime.operations import Operation
from bignn.runtime.packed_graph import Members
from bignn.runtime.row_operations import lengths
from bignn.runtime.values import Floats, Value, floats_of


def run_on_graph(step: Operation, value: Value, members: Members | None = None) -> Floats:
    """Normalise over nodes: subtract the mean, divide by a spread.

    Args:
        step: the operation.
        value: the value that it takes.
        members: the rows of each graph that is normalised by itself; rows of no graph become 0.
            None normalises all rows together.

    """
    x = floats_of(value)
    if members is None:
        return _normalized(x, np.array([0, len(x)]), **_options(step))
    out = np.zeros_like(x)
    out[members.rows] = _normalized(x[members.rows], members.offsets, **_options(step))
    return out


def _options(step: Operation) -> dict[str, Any]:
    return {key: step.parameters[key] for key in ("spread", "eps", "center")}


def _normalized(
    x: Floats, offsets: NDArray[np.int64], *, spread: str, eps: float, center: bool
) -> Floats:
    """Normalise each graph; graph g has the rows from ``offsets[g]`` up to ``offsets[g + 1]``."""
    counts = np.diff(offsets)
    graph_of_row = np.repeat(np.arange(len(counts)), counts)

    def at_rows(values: NDArray[Any]) -> Floats:
        values = values.astype(np.float32)
        return values if len(values) == 1 else values[graph_of_row]

    def means(values: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.add.reduceat(values, offsets[:-1], axis=0, dtype=np.float64)
        return np.asarray(sums / counts[:, None])

    of_entries = spread in ("entries", "variance")
    if center:
        mean = means(x)
        x = x - at_rows(mean.mean(axis=1, keepdims=True) if of_entries else mean)
    if spread == "none":
        return x if center else x.copy()  # results may be overwritten, arguments may not
    if spread == "length":
        return x / (lengths(x) + np.float32(eps))
    squares = means(np.square(x, dtype=np.float64))
    divisor: NDArray[Any]
    match spread:
        case "columns":
            divisor = np.sqrt(squares + eps)
        case "entries":
            divisor = np.sqrt(squares.mean(axis=1, keepdims=True)) + eps
        case "variance":
            divisor = np.sqrt(squares.mean(axis=1, keepdims=True) + eps)
        case "rows":
            divisor = np.sqrt(squares.sum(axis=1, keepdims=True) + eps)
        case _:
            divisor = np.sqrt(counts)[:, None]
    return x / at_rows(divisor)
