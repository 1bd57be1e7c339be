"""Runs any list of operations in NumPy, and packed layers among them natively."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.layer import Edges
from bignn.runtime.backends.bound_layers import RunLayer
from bignn.runtime.graph_operations import run_on_graph
from bignn.runtime.neighbour_operations import run_on_neighbours
from bignn.runtime.network import PackedStep, RestStep, aggregation_of
from bignn.runtime.operations import GRAPHWIDE, NEIGHBOURLY, Operation
from bignn.runtime.packed_graph import Members
from bignn.runtime.pooling import pool
from bignn.runtime.row_operations import run_on_rows
from bignn.runtime.values import Bits, Floats, Value, floats_of

Nodes = NDArray[np.int64]


def run(
    operations: Sequence[RestStep],
    values: Mapping[str, Value],
    rows: Mapping[str, Nodes] | None,
    edges: Callable[[str, str, str], Edges],
    run_layer: RunLayer,
    backend: str,
    members: Callable[[Operation], Members] | None = None,
) -> Floats:
    """Run operations in order; return the last one's value as floats.

    Args:
        operations: the operations, in order.
        values: values that are known before the first of them.
        rows: the nodes (rising) that each value has; None if every value has all nodes.
        edges: gives the edges of an operation that reads neighbours, by its aggregation and the
            values it takes and makes.
        run_layer: runs a packed layer.
        backend: backend of products of bits.
        members: gives the nodes of each graph that an operation pools, or normalises by itself.

    """
    found: dict[str, Value] = dict(values)
    uses = {name: number for number, step in enumerate(operations) for name in step.inputs}
    for number, step in enumerate(operations):
        taken = [found[name] for name in step.inputs]
        # Numbers may be absurd; what overflows is infinite or not a number.
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(step, PackedStep):
                block = edges(aggregation_of(step), step.inputs[0], step.out)
                assert isinstance(taken[0], Bits)
                found[step.out] = run_layer(step, taken[0], block)
            elif step.op in NEIGHBOURLY:
                block = edges(aggregation_of(step), step.inputs[0], step.out)
                found[step.out] = run_on_neighbours(step, taken[0], block)
            elif step.op == "pool":
                assert members is not None
                found[step.out] = pool(step, taken[0], members(step))
            elif step.op in GRAPHWIDE:
                graphs = members(step) if members and step.parameters.get("per_graph") else None
                made = run_on_graph(step, taken[0], graphs)
                found[step.out] = _at(made, rows, step.inputs[0], step.out)
            else:
                taken = [
                    _at(some, rows, name, step.out)
                    for name, some in zip(step.inputs, taken, strict=True)
                ]
                free = {n for n in step.inputs if uses[n] == number and n not in values}
                spare = _spare(step, taken, free)
                found[step.out] = run_on_rows(step, taken, backend, spare)
        for name in step.inputs:  # large values go as soon as nothing needs them
            if uses[name] == number:
                found.pop(name, None)
    return floats_of(found[operations[-1].out])


def _spare(step: Operation, taken: Sequence[Value], free: Set[str]) -> Floats | None:
    """Find a free value among the first two that the result fits into."""
    shape = len(taken[0]), step.width
    for name, value in zip(step.inputs[:2], taken[:2], strict=True):
        is_free = name in free and name not in step.inputs[2:]
        fits = isinstance(value, np.ndarray) and value.shape == shape and value.flags.writeable
        if is_free and fits:
            return floats_of(value)
    return None


def _at(value: Value, rows: Mapping[str, Nodes] | None, name: str, wanted: str) -> Value:
    """Select, of the nodes that one value has, those that another has."""
    if rows is None or rows[name] is rows[wanted]:
        return value
    return value[np.searchsorted(rows[name], rows[wanted])]
