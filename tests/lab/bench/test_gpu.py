"""``bignn bench --device cuda``: its float models, ours on an emulated GPU, and its tables."""

from typing import Any

import pytest
import torch
from emulated_device import EmulatedDevice

from bignn import InputError
from bignn.cli import main
from bignn.lab.bench import gpu as bench
from bignn.lab.bench.contenders.gcn import TorchSparse
from bignn.lab.bench.problems import Problem, make_problem
from bignn.runtime.backends.gpu import GpuBackend


@pytest.fixture(scope="module")
def problem() -> Problem:
    return make_problem("arxiv", scale=0.0005)


def test_float_models_agree(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    class Plenty:
        total_memory = 1 << 40

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Plenty)
    features = torch.from_numpy(problem.raw_features())
    expected = TorchSparse(problem)
    expected.load()
    with torch.no_grad():
        for make in (bench._contenders()["torch CSR fp32"], bench._by_edges):
            same = make(problem, features, "cpu")() == expected.run()
            assert same.float().mean() > 0.98  # sums in another order
    Plenty.total_memory = 1 << 10
    with pytest.raises(torch.OutOfMemoryError):
        bench._by_edges(problem, features, "cpu")


def test_a_report_has_all_contenders(
    problem: Problem, gpu: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(make: Any, device: str) -> dict[str, Any]:
        if "compiled" in repr(make):
            return {"ms": None, "gb": None, "why_not": "does not run: here"}
        return {"ms": 1.0, "gb": 3.0, "why_not": None}

    monkeypatch.setattr(bench, "_float", measured)
    monkeypatch.setattr(bench, "cuda_device", lambda number: gpu)
    monkeypatch.setattr(bench, "GpuBackend", lambda layers: GpuBackend(layers, lambda number: gpu))
    monkeypatch.setattr(bench, "make_problem", lambda name, **options: problem)
    report = bench.run(["shapes"], scale=0.0005, only=["arxiv"])
    (row,) = report["rows"]
    assert row["differing_classes"] == 0
    assert set(row["plan"]) <= {"T", "G"}
    text = bench.describe(report)
    assert text.startswith("Bi-GCN on an emulated GPU, torch ")
    assert "classes that differ from the CPU engine's: 0" in text
    assert "PyG compiled           does not run: here" in text
    assert text.count("of the memory") == 4


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["gemm"], "'suites' must be citation or shapes on a GPU, got 'gemm'"),
        (["--model", "gat"], "--model must be 'gcn' on a GPU, got 'gat'"),
        (["--backend", "portable"], "--backend must be left out on a GPU, got 'portable'"),
    ],
)
def test_what_is_for_the_cpu_is_refused(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "--device", "cuda", *arguments]) != 0
    assert line in capsys.readouterr().err


def test_other_graphs_are_refused() -> None:
    with pytest.raises(InputError, match="'only' must be some of"):
        bench.run(["citation"], only=["arxiv"])
