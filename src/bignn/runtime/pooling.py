"""Pooling: one row per graph from the rows of its nodes."""

from __future__ import annotations

import numpy as np

from bignn.runtime.operations import Operation
from bignn.runtime.packed_graph import Members
from bignn.runtime.values import Floats, Value, floats_of


def pool(step: Operation, value: Value, members: Members) -> Floats:
    """Take the mean, sum or maximum over the nodes of each graph; every graph has one at least."""
    x = floats_of(value)[members.rows]
    starts = members.offsets[:-1]
    if step.parameters["aggr"] == "max":
        largest: Floats = np.maximum.reduceat(x, starts, axis=0)
        return largest
    sums: Floats = np.add.reduceat(x, starts, axis=0)
    if step.parameters["aggr"] == "sum":
        return sums
    return sums / np.diff(members.offsets).astype(np.float32)[:, None]
