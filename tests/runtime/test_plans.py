"""Plans of packed models: made once, explained, forced, and refused where there is no such way."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import make_graph
from packed_models import OUTPUTS, as_floats, refused

import bignn
from bignn import PackedGraph, PackedModel, kernels, pack_graph
from bignn.kernels import checked_backend
from bignn.runtime import Plan, planner
from bignn.runtime.backends import cpu


def test_a_graph_is_planned_once(
    binary: PackedModel, binary_graph: PackedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str | None] = []

    def counted(*arguments: Any, forced: str | None, **options: Any) -> Plan:
        calls.append(forced)
        return planner.plan_layers(*arguments, forced=forced, **options)

    monkeypatch.setattr(cpu, "plan_layers", counted)
    graph = replace(binary_graph)
    for _ in range(2):
        for output in OUTPUTS:
            binary.predict(graph, output=output)
        list(binary.stream(graph))
    assert calls == [None]
    binary.explain(graph)
    assert calls == [None]
    binary.predict(graph, plan="T")
    assert calls == [None, "T"]
    before = bignn.get_num_threads()
    try:  # plans are for a number of threads
        bignn.set_num_threads(before + 1)
        binary.predict(graph)
    finally:
        bignn.set_num_threads(before)
    assert calls == [None, "T", None]
    binary.predict(replace(graph))
    assert len(calls) == 4


def test_the_backend_is_resolved_once(
    binary: PackedModel, binary_graph: PackedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolved: list[str | None] = []

    def counted(backend: str | None) -> str:
        resolved.append(backend)
        return checked_backend(backend)

    monkeypatch.setattr(kernels, "checked_backend", counted)
    binary.predict(binary_graph)
    binary.predict(binary_graph, [1, 2], backend="reference")
    list(binary.stream(binary_graph, backend="reference"))
    binary.explain(binary_graph)
    assert resolved == [None, "reference", "reference", None]


def test_explaining_leaves_the_plan_of_predictions_alone(
    binary: PackedModel, binary_graph: PackedGraph
) -> None:
    chosen = kernels.checked_backend(None)
    kept = binary._runner.cpu.plan(binary_graph, None, chosen)
    explained = binary.explain(binary_graph)
    assert explained is not kept
    assert all(layer.measured is not None for layer in explained.layers)
    explained.layers[0].way = "G" if explained.layers[0].way != "G" else "T"
    assert binary._runner.cpu.plan(binary_graph, None, chosen) is kept
    assert all(layer.measured is layer.record_bytes is None for layer in kept.layers)
    assert kept.ways == binary.explain(binary_graph, measure=False).ways


def test_a_plan_is_explained(binary: PackedModel, binary_graph: PackedGraph) -> None:
    plan = binary.explain(binary_graph)
    assert len(plan.layers) == 2
    assert [(layer.num_inputs, layer.num_columns) for layer in plan.layers] == [(300, 20), (20, 5)]
    assert set(plan.layers[0].seconds) == {"T", "G", "S"}
    assert set(plan.layers[1].seconds) == {"T", "G"}
    assert plan.threads == bignn.get_num_threads()
    for layer in plan.layers:
        assert layer.way in layer.seconds
        assert all(seconds > 0 for seconds in layer.seconds.values())
        assert all(touched > 0 for touched in layer.bytes_touched.values())
        assert layer.measured is not None
        assert layer.measured > 0
        # Two where another run of the model has met a value that needs them.
        assert layer.record_bytes in ((None,) if layer.way == "G" else (1, 2))
    header, *rows = str(plan).splitlines()
    assert "measured ms" in header
    assert len(rows) == 2
    assert f"{plan.layers[0].way} (" in rows[0]
    assert "300x20" in rows[0]
    unmeasured = binary.explain(binary_graph, measure=False)
    assert unmeasured.ways == plan.ways
    assert all(layer.measured is None for layer in unmeasured.layers)


def test_forced_plans_are_explained_as_forced(
    binary: PackedModel, binary_graph: PackedGraph
) -> None:
    logits = binary.predict(binary_graph, output="logits")
    for forced in ("TT", "SG", "g,t"):
        plan = binary.explain(binary_graph, plan=forced)
        assert plan.ways == forced.upper().replace(",", "")
        assert all(layer.measured for layer in plan.layers)
        got = binary.predict(binary_graph, output="logits", plan=forced)
        assert got.tobytes() == logits.tobytes()


def test_the_reference_can_be_explained(binary: PackedModel, binary_graph: PackedGraph) -> None:
    assert len(binary.explain(binary_graph, backend="reference").layers) == 2


def test_float_models_have_no_plans(binary: PackedModel) -> None:
    arrays: dict[str, Any] = {"w": np.ones((4, 300), dtype=np.float32)}
    steps: list[dict[str, Any]] = [
        {"op": "linear", "in": ["x"], "out": "a", "weight": "w"},
        {"op": "aggregate", "in": ["a"], "out": "b", "aggr": "gcn", "edge_bits": 17},
    ]
    other = PackedModel(steps, arrays, 300)
    graph = pack_graph(make_graph(9, 300), like=other)
    match = r"^'plan' must be None for a model that is not all bits, got 'T'$"
    refused(lambda: other.predict(graph, plan="T"), match)
    refused(lambda: other.predict(graph, [1], plan="T"), match)
    refused(lambda: other.explain(graph), "^only a model with binary features and weights has ways")


def test_plans_are_of_the_layers_that_run_packed(binary: PackedModel) -> None:
    half = as_floats(binary)
    graph = pack_graph(make_graph(9, 300), like=half)
    assert len(half.explain(graph).layers) == 1
    expected = half.predict(graph, output="logits", plan="T")
    assert np.array_equal(half.predict(graph, output="logits", plan="G"), expected)
    refused(lambda: half.predict(graph, plan="TT"), "'plan' must be one of T, G, S, or 1 of them")


def test_sparse_plans_of_dense_bits_are_refused(binary: PackedModel) -> None:
    graph = pack_graph(make_graph(9, 300), like=binary)
    refused(lambda: binary.predict(graph, plan="S"), r"^'plan' must be 'T' or 'G' .* dense bits")
    refused(lambda: binary.predict(graph, [1], plan="ST"), r"^'plan' must be 'T' or 'G'")
