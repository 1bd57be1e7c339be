"""Operations that compute each row from statistics of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from bignn.runtime.operations import Operation
from bignn.runtime.row_operations import lengths
from bignn.runtime.values import Floats, Value, floats_of


def run_on_graph(step: Operation, value: Value) -> Floats:
    """Normalise over all nodes: subtract the mean, divide by a spread."""
    x, spread, eps = floats_of(value), step.parameters["spread"], step.parameters["eps"]
    if step.parameters["center"]:
        mean = x.mean(axis=None if spread == "entries" else 0, dtype=np.float64)
        x = x - mean.astype(np.float32)
    if spread == "none":
        return x
    squares = np.einsum("ij,ij->j", x, x, dtype=np.float64) / len(x)
    divisor: Any
    match spread:
        case "columns":
            divisor = np.sqrt(squares + eps)
        case "entries":
            divisor = np.sqrt(squares.mean()) + eps
        case "rows":
            divisor = np.sqrt(squares.sum() + eps)
        case "size":
            divisor = np.sqrt(len(x))
        case _:
            divisor = lengths(x) + eps
    return np.asarray(x / np.float32(divisor), dtype=np.float32)
