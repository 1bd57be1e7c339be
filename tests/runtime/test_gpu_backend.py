"""Packed models on an emulated GPU: the CPU engine's answers, plans, and clear refusals."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from emulated_device import EmulatedDevice
from packed_models import OUTPUTS, as_floats

from bignn import InputError, PackedGraph, PackedModel, pack_graph
from bignn.kernels.cuda import device as cuda
from bignn.kernels.cuda.compiled import CudaError
from bignn.runtime import doctor, network_runner, packed_model, predict_file
from bignn.runtime.backends import gpu as backend
from bignn.runtime.backends.gpu import GpuBackend, checked_device, plan_on_gpu


@pytest.fixture
def on_gpu(gpu: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """Make every GPU the emulated one."""

    class Emulated(GpuBackend):
        def __init__(self, layers: Any) -> None:
            super().__init__(layers, lambda number: gpu)

    monkeypatch.setattr(network_runner, "GpuBackend", Emulated)
    monkeypatch.setattr(packed_model, "cuda_device", lambda number: gpu)
    return gpu


def fresh(model: PackedModel) -> PackedModel:
    return PackedModel(model.operations, model.arrays, model.num_features)


def test_answers_are_the_cpus(
    on_gpu: EmulatedDevice, binary: PackedModel, binary_graph: PackedGraph
) -> None:
    model = fresh(binary)
    for output in OUTPUTS:
        for nodes in (None, [3, 0, 3]):
            ours = model.predict(binary_graph, nodes, output=output, device="cuda")
            theirs = model.predict(binary_graph, nodes, output=output)
            np.testing.assert_array_equal(ours, theirs)
    assert any(name.startswith("sum_") for name in on_gpu.launched)


def test_a_graph_is_bound_once(
    on_gpu: EmulatedDevice, binary: PackedModel, binary_graph: PackedGraph
) -> None:
    model = fresh(binary)
    model.predict(binary_graph, device="cuda")
    on_gpu.launched.clear()
    model.predict(binary_graph, device="cuda")
    again = len(on_gpu.launched)
    on_gpu.launched.clear()
    fresh(binary).predict(binary_graph, device="cuda")
    assert 0 < again < len(on_gpu.launched)


def test_plans_are_explained(
    on_gpu: EmulatedDevice, binary: PackedModel, binary_graph: PackedGraph
) -> None:
    plan = fresh(binary).explain(binary_graph, device="cuda:1")
    assert set(plan.ways) <= {"T", "G"}
    assert all(layer.measured is not None and layer.measured > 0 for layer in plan.layers)
    assert str(plan)
    # Way G is for weights of few bits.
    with pytest.raises(InputError, match="'plan' must be 'T' for layer 0 on a GPU, got 'G'"):
        fresh(binary).predict(binary_graph, device="cuda", plan="G")


def test_the_planner_weighs_bytes(
    on_gpu: EmulatedDevice, binary: PackedModel, binary_graph: PackedGraph
) -> None:
    layers = [replace(layer, edge_bits=7) for layer in binary.network.layers]
    edges = [binary_graph.edges(layer.aggr) for layer in layers]
    nothing = dict.fromkeys(backend.UNITS, 0.0)
    for unit, ways in (("bits byte", "TT"), ("record byte", "GG")):
        assert plan_on_gpu(layers, edges, on_gpu, units=nothing | {unit: 1.0}).ways == ways


def test_a_backend_is_for_the_cpu(
    on_gpu: EmulatedDevice, binary: PackedModel, binary_graph: PackedGraph
) -> None:
    with pytest.raises(InputError, match="'backend' must be None on 'cuda', got 'reference'"):
        fresh(binary).predict(binary_graph, device="cuda", backend="reference")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "CUDA", "", 0])
def test_other_devices_are_refused(device: Any) -> None:
    with pytest.raises(InputError, match="'device' must be 'cpu', 'cuda' or 'cuda:N'"):
        checked_device(device)


def test_models_without_bits_are_predicted_on_the_cpu(on_gpu: EmulatedDevice) -> None:
    model = as_floats(make_packed_model([300, 5]))
    graph = pack_graph(make_graph(60, 300), like=model)
    with pytest.warns(UserWarning, match="predicted on the CPU: the model has no layers"):
        ours = fresh(model).predict(graph, device="cuda")
    np.testing.assert_array_equal(ours, model.predict(graph))


def test_a_missing_package_is_one_line(
    binary: PackedModel, binary_graph: PackedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    cuda._opened.cache_clear()
    try:
        with pytest.raises(InputError) as caught:
            binary.predict(binary_graph, device="cuda")
        expected = "'device' must be 'cpu' here, got 'cuda'; cuda-bindings is not installed"
        assert str(caught.value) == f"{expected} (pip install '.[gpu]')"
        assert doctor.examine()["gpu"] == "cuda-bindings is not installed (pip install '.[gpu]')"
        assert "cuda-bindings is not installed" in doctor.describe(doctor.examine())
    finally:
        cuda._opened.cache_clear()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CudaError("there is no GPU here"), "there is no GPU here"),
        (RuntimeError("libnvrtc.so.13\nnot found"), "CUDA does not work here: libnvrtc.so.13"),
    ],
)
def test_a_broken_driver_is_one_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        raise error

    monkeypatch.setattr(cuda, "CudaDevice", fail)
    cuda._opened.cache_clear()
    try:
        assert cuda.why_not() == line
        with pytest.raises(InputError, match="'device' must be 'cpu' here, got 'cuda:2'"):
            cuda.cuda_device(2)
    finally:
        cuda._opened.cache_clear()


def test_what_does_not_fit_is_one_line(
    gpu_library: Path, binary: PackedModel, binary_graph: PackedGraph
) -> None:
    full = EmulatedDevice(gpu_library, free_bytes=100)
    layers = GpuBackend(binary.network.layers, lambda number: full)
    plan = layers.plan(binary_graph, None, "cuda")
    with (
        pytest.raises(InputError, match="predict it on the CPU"),
        layers.lent(binary_graph, plan, "cuda"),
    ):
        pass


def test_files_are_predicted_on_a_gpu(
    on_gpu: EmulatedDevice, binary: PackedModel, binary_graph: PackedGraph, tmp_path: Path
) -> None:
    model, graph = str(tmp_path / "model.bignn"), str(tmp_path / "graph.bigraph")
    binary.save(model)
    binary_graph.save(graph)
    ours = predict_file.predict_file(model, graph, device="cuda", explain=True)
    theirs = predict_file.predict_file(model, graph)
    assert ours["predictions"] == theirs["predictions"]
    assert on_gpu.launched
    assert "60 nodes in" in predict_file.describe(ours)
    assert " on cuda, plan " in predict_file.describe(ours)
