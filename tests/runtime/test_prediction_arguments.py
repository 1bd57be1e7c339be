"""Wrong arguments of predictions are refused in one line that names them."""

from typing import Any

import numpy as np
from conftest import make_graph, make_packed_model
from packed_models import NODES, for_each_case, packed_case, refused

from bignn import PackedGraph, PackedModel


@for_each_case
def test_nodes_that_are_none_are_refused(case: str) -> None:
    model, graph = packed_case(case)
    mask = np.zeros(NODES, dtype=np.bool_)
    cases: list[tuple[Any, str]] = [
        (-1, r"^'nodes' must be node ids in 0\.\.59, got -1$"),
        ([3, -7, 60], r"^'nodes' must be node ids in 0\.\.59, got -7$"),
        ([3, 60], r"^'nodes' must be node ids in 0\.\.59, got 60$"),
        (np.array([2**63], dtype=np.uint64), r"^'nodes' .* got 9223372036854775808$"),
        (1.0, r"^'nodes' must be a list of node ids, got float64 of shape \[1\]"),
        ([0.5, 2], r"^'nodes' must be a list of node ids, got float64 of shape \[2\]"),
        (mask, r"^'nodes' .* got bool of shape \[60\]; .* np\.flatnonzero\(mask\)$"),
        (True, r"^'nodes' must be a list of node ids, got bool"),
        ([[1, 2]], r"^'nodes' must be a list of node ids, got int64 of shape \[1, 2\]"),
        (["a"], r"^'nodes' must be node ids: the graph has no names, got 'a'$"),
        ([["a"]], r"^'nodes' must be a list of node ids, got <U1 of shape \[1, 1\]"),
    ]
    for nodes, match in cases:
        refused(lambda nodes=nodes: model.predict(graph, nodes), match)  # type: ignore[misc]


def test_wrong_graphs_are_refused(binary: PackedModel, binary_graph: PackedGraph) -> None:
    something: Any
    for something in ({"x": 1}, None, "cora", np.ones((3, 300)), PackedGraph):
        match = rf"^'graph' must be a .*Graph.*, got {type(something).__name__}; see bignn\.load"
        refused(lambda some=something: binary.predict(some), match)  # type: ignore[misc]
        refused(lambda some=something: binary.explain(some), match)  # type: ignore[misc]
        refused(lambda some=something: binary.stream(some), match)  # type: ignore[misc]
    match = r"^'graph' must be one with 300 features per node, got 20"
    refused(lambda: binary.predict(make_graph(9, 20)), match)
    other = make_packed_model([300, 20, 5], seed=1)
    match = r"^'graph' must be packed with this model's input statistics, got .* like=model\)$"
    refused(lambda: other.predict(binary_graph), match)
    refused(lambda: other.predict(binary_graph, [1]), match)
    refused(lambda: other.explain(binary_graph), match)
    refused(lambda: next(other.stream(binary_graph)), match)
    # Other weights with the same statistics are fine.
    arrays = {
        key: binary.arrays[key] if key.startswith("input.") else values
        for key, values in other.arrays.items()
    }
    assert PackedModel(other.operations, arrays, 300).predict(binary_graph).shape == (NODES,)


def test_names_that_are_not_known_are_refused(
    binary: PackedModel, binary_graph: PackedGraph
) -> None:
    name: Any
    for name in ("class", "", 3, ["logits"]):
        match = r"^'output' must be one of \['classes', 'probabilities', .*\], got "
        refused(lambda name=name: binary.predict(binary_graph, output=name), match)  # type: ignore[misc]
        refused(lambda name=name: next(binary.stream(binary_graph, output=name)), match)  # type: ignore[misc]
    for name in ("mmx", "", "AVX2"):
        match = r"^'backend' must be one of \['reference'.*\], got "
        refused(lambda name=name: binary.predict(binary_graph, backend=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.predict(binary_graph, [1], backend=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.explain(binary_graph, backend=name), match)  # type: ignore[misc]
    for name in ("X", "TTT", "TS"):
        match = r"^'plan' must be "
        refused(lambda name=name: binary.predict(binary_graph, plan=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.predict(binary_graph, [1], plan=name), match)  # type: ignore[misc]
        refused(lambda name=name: binary.explain(binary_graph, plan=name), match)  # type: ignore[misc]
    for size in (0, -1, 1.5, "7", None):
        match = r"^'block' must be a number of nodes, at least 1, got "
        refused(lambda size=size: next(binary.stream(binary_graph, block=size)), match)  # type: ignore[misc]
