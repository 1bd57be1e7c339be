"""What predictions take and give: numbers of nodes, and outputs made of logits."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.errors import input_error

#: What a prediction gives of each node, or of each graph.
Output = Literal["classes", "probabilities", "labels", "label_probabilities", "logits", "values"]


def check_output(output: str) -> None:
    """Refuse an output that is not known."""
    if output not in get_args(Output):
        raise input_error("output", f"one of {list(get_args(Output))}", repr(output))


def finished(values: NDArray[Any], output: Output) -> NDArray[Any]:
    """Make what a user asked for of logits, or of classes."""
    if output == "labels":
        return values > 0
    if output == "label_probabilities":
        with np.errstate(over="ignore"):
            values = np.float32(1) / (np.float32(1) + np.exp(-values))
    if output == "probabilities":
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
    return values


def row_ids(argument: str, nodes: ArrayLike, num_rows: int, what: str) -> NDArray[np.int64]:
    """Check numbers of nodes or graphs that a user gave, in any order."""
    try:
        ids = np.atleast_1d(np.asarray(nodes))
    except ValueError:  # lists of unequal lengths
        raise input_error(argument, f"a list of {what}", "lists of several lengths") from None
    if ids.size == 0:
        return ids.astype(np.int64)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        got = f"{ids.dtype} of shape {list(ids.shape)}"
        raise input_error(
            argument, f"a list of {what}", got, "for a mask, pass np.flatnonzero(mask)"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= num_rows:
        bad = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise input_error(argument, f"{what} in 0..{num_rows - 1}", bad)
    return ids.astype(np.int64)
