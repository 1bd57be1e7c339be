"""The benchmark at toy scale: every row is filled, contenders are what they claim to be."""

import copy
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bignn import kernels
from bignn.cli import main
from bignn.errors import InputError
from bignn.kernels import native
from bignn.lab.bench import suite_report
from bignn.lab.bench import suites as bench
from bignn.lab.bench.contenders import Simulated, contenders_of
from bignn.lab.bench.problems import (
    MODELS,
    CitationProblem,
    ModelName,
    Problem,
    ShapeProblem,
)
from bignn.lab.bench.shapes import SHAPES
from bignn.lab.bench.timing import Seconds, measure
from bignn.packing import pack
from bignn.train.recipes import recipe

PROMISED = (
    *("suite", "shape", "model", "threads", "backend", "torch_capability", "edge_bits"),
    *("plan", "packed_ms", "best_float_ms", "pyg_ms", "simulated_ms"),
    *("speedup_vs_pyg", "speedup_vs_best_float", "peak_mib_float"),
    *("peak_mib_packed", "agreement", "flipped_bits"),
    *("graph_mib_float", "graph_mib_packed", "memory_ratio_with_graph"),
)


@pytest.fixture(params=MODELS)
def conv(request: pytest.FixtureRequest) -> ModelName:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=["cora", "arxiv"])
def problem(request: pytest.FixtureRequest, conv: ModelName) -> Problem:
    if request.param == "cora":
        return CitationProblem("cora", conv=conv, epochs=1)
    return ShapeProblem("arxiv", conv=conv, scale=0.002)


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """What was timed together, each quickly: how long things take is not looked at."""
    together: list[set[str]] = []

    def quickly(calls: Any, log: Any) -> dict[str, Seconds]:
        together.append(set(calls))
        return measure(calls, rounds=2, warm_up=0)

    monkeypatch.setattr("bignn.lab.bench.rounds.measure_sensibly", quickly)
    return together


def test_the_float_contenders_compute_the_same_network(problem: Problem) -> None:
    classes = {}
    for key, kind in contenders_of(problem.conv).items():
        if key in ("packed", "simulated"):
            continue
        contender = kind(problem)
        contender.load()
        contender.run()  # buffers are shared from call to call
        classes[key] = np.asarray(contender.run())
    assert {"pyg", "torch_sparse"} <= set(classes)
    for found in classes.values():
        assert (classes["pyg"] == found).mean() > 0.995


def test_the_simulation_is_the_binary_model(problem: Problem) -> None:
    simulated = contenders_of(problem.conv)["simulated"](problem)
    simulated.load()
    rows = np.repeat(np.arange(problem.num_nodes), np.diff(problem.offsets))
    keep = rows != problem.ids
    edges = torch.from_numpy(np.stack([problem.ids[keep].astype(np.int64), rows[keep]]))
    plain = copy.deepcopy(problem.model)  # its sums are not rounded
    for conv in plain.layers:
        conv.edge_bits = None
    with torch.no_grad():
        expected = plain(torch.from_numpy(problem.raw_features()), edges)
    simulated.run()
    assert isinstance(simulated, Simulated)
    assert (expected.argmax(1) == simulated.run()).float().mean() > 0.98
    packed = pack(plain).predict(problem.packed_graph())
    assert (simulated.run().numpy() == packed).mean() > 0.95  # sums that nearly cancel abound


def test_a_shape_has_the_published_sizes() -> None:
    problem = ShapeProblem("flickr")
    shape = SHAPES["flickr"]
    assert problem.num_nodes == shape.num_nodes
    assert len(problem.ids) == 2 * shape.num_edges + shape.num_nodes
    # Every edge stands in both directions.
    rows = np.repeat(np.arange(problem.num_nodes), np.diff(problem.offsets))
    forward = np.sort(rows * problem.num_nodes + problem.ids)
    backward = np.sort(problem.ids.astype(np.int64) * problem.num_nodes + rows)
    assert np.array_equal(forward, backward)
    degree = np.diff(problem.offsets)
    assert degree.max() > 20 * np.median(degree)


def test_the_papers_reddit_has_the_edges_of_graphsaint() -> None:
    full, papers = SHAPES["reddit"], SHAPES["reddit-saint"]
    assert (papers.num_edges, full.num_edges) == (11_606_919, 57_307_946)
    assert (papers.num_nodes, papers.sizes) == (full.num_nodes, full.sizes)


def test_edges_are_counted_in_the_form_that_each_runs_on(problem: Problem) -> None:
    entries, nodes = len(problem.ids), problem.num_nodes
    given = len(problem.adjacency_rows[1])
    for key, kind in contenders_of(problem.conv).items():
        contender = kind(problem)
        if key == "packed":
            contender.load()
            kept = given if problem.conv == "sage" else entries
            # int64 offsets, int32 ids, a float per node.
            assert contender.structure_bytes() == 8 * (nodes + 1) + 4 * kept + 4 * nodes
        elif key == "torch_sparse" and problem.conv != "gat":
            kept = given if problem.conv == "sage" else entries
            # CSR: int32 offsets and ids, float32 values.
            assert contender.structure_bytes() == 4 * (nodes + 1) + 8 * kept
        elif key == "pyg":
            assert contender.structure_bytes() >= 16 * (entries - nodes)  # int64 pairs


def test_memory_ratios_are_of_sums() -> None:
    row: dict[str, Any] = {"peak_mib_packed": 10.0, "peak_mib_float": 300.0}
    row |= {"graph_mib_packed": 90.0, "graph_mib_float": 100.0}
    assert bench.memory_ratios(row) == {"memory_ratio": 30.0, "memory_ratio_with_graph": 4.0}


def test_bench_fills_every_promised_column(
    tmp_path: Path, timed: list[set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "bench.png"
    arguments = ["bench", "shapes", "--only", "flickr", "--scale", "0.01", "--plot", str(picture)]
    assert main([*arguments, "--threads", "1", "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert datetime.fromisoformat(report["date"]).tzinfo == UTC
    (row,) = report["rows"]
    assert timed
    assert set(PROMISED) <= set(row)
    for key in PROMISED:
        assert row[key] is not None, key
    assert row["backend"] == kernels.default_backend()
    layers = ShapeProblem("flickr", scale=0.01).packed.network.layers
    assert row["edge_bits"] == [layer.edge_bits for layer in layers]
    assert row["agreement"] > 0.99
    assert row["flipped_bits"] <= row["hidden_bits"] / 1000
    assert row["peak_mib_packed"] < row["peak_mib_float"]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert "flickr" in captured.err  # progress


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_other_models_are_measured_too(
    model: str, timed: list[set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "shapes", "--only", "flickr", "--scale", "0.005", "--no-memory"]
    assert main([*arguments, "--model", model, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["model"] == f"bi-{model}"
    for key in PROMISED:
        assert ("mib" in key or "memory" in key) or row[key] is not None, key
    assert row["best_float"] in contenders_of(model)
    assert timed == [set(contenders_of(model))]
    assert row["agreement"] > 0.97


def _missing_backends() -> list[str]:
    return [name for name in native.KNOWN_INSTRUCTION_SETS if name not in native.supported()]


def test_bench_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, said in (
        (["--only", "mars"], "--only must be some of"),
        (["--scale", "0"], "--scale must be above 0"),
        (["citation", "--only", "flickr"], "--only must be some of ['cora'"),
        (["gemm", "--plot", "x.txt"], "--plot must be a file name ending in .png"),
        (["--threads", "0"], "--threads must be a number from 1"),
        (["--edge-bits", "1"], "--edge-bits must be a whole number from 2 to 8"),
        (["--edge-bits", "99", "gemm"], "--edge-bits must be a whole number from 2 to 8"),
        *((["--backend", name], f"got '{name}'; this ") for name in _missing_backends()),
    ):
        assert main(["bench", *arguments]) == 2
        captured = capsys.readouterr()
        assert said in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""


@pytest.mark.parametrize("conv", MODELS)
def test_rounded_models_agree_with_torch_on_every_node_and_bit(
    conv: ModelName, timed: list[set[str]]
) -> None:
    for suite, name in (("shapes", "arxiv"), ("citation", "cora")):
        report = bench.run([suite], model=conv, scale=0.005, only=[name], memory=False, edge_bits=5)
        (row,) = report["rows"]
        assert set(row["edge_bits"]) == {5}
        assert row["agreement"] == 1.0
        assert row["flipped_bits"] == 0
        assert row["hidden_bits"] > 0
        assert "5-bit edge weights" in suite_report.describe(report)


def test_progress_says_that_others_used_the_cores(
    timed: list[set[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bignn.lab.bench.other_load.OtherLoad.is_in_the_way", True)
    bench.run(["shapes"], scale=0.005, only=["arxiv"], memory=False, against=["torch_sparse"])
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "x as fast as" in line]
    assert line.endswith("not reliable: other processes used the cores")


def test_only_the_contenders_asked_for_are_timed(
    timed: list[set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", "shapes", "--only", "arxiv", "--scale", "0.005", "--no-memory", "--json"]
    assert main([*arguments, "--against", "pyg_sparse"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert timed == [{"packed", "pyg_sparse"}]
    assert row["speedup_vs_pyg_sparse"] > 0
    assert row["best_float"] is row["speedup_vs_best_float"] is None  # torch was not timed
    assert row["pyg_ms"] is None and row["agreement"] is None
    assert main([*arguments, "--against", "torch_sparse"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["best_float"] == "torch_sparse"
    with pytest.raises(InputError, match="'against' must be some of"):
        bench.run(["shapes"], against=["pyg", "dgl"])


@pytest.mark.parametrize(("suite", "name"), [("shapes", "arxiv"), ("citation", "cora")])
def test_weights_can_be_measured_as_floats(
    suite: str, name: str, timed: list[set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["bench", suite, "--only", name, "--scale", "0.005", "--no-memory", "--json"]
    assert main([*arguments, "--edge-bits", "none"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert min(row["edge_bits"]) > 8  # what packed models round float weights to
    assert row["agreement"] > 0.98


def test_problems_take_the_bits_of_edge_weights_as_recipes_do() -> None:
    for edge_bits, expected in (("none", None), (None, recipe("bi-gcn").edge_bits), (5, 5)):
        how: Any = {"edge_bits": edge_bits}
        for problem in (
            ShapeProblem("arxiv", scale=0.002, **how),
            CitationProblem("cora", epochs=0, **how),
        ):
            assert {layer.edge_bits for layer in problem.model.layers} == {expected}


def test_products_are_exact_and_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "PRODUCTS", ((33, 100, 17),))
    assert main(["bench", "gemm"]) == 0
    assert "33x100x17" in capsys.readouterr().out
    row = bench.run(["gemm"])["rows"][0]
    assert row["agreement"] == 1.0
    assert row["gmacs"] > 0


def test_what_cannot_fit_is_left_out_with_its_predicted_size(
    monkeypatch: pytest.MonkeyPatch, timed: list[set[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    needed = contenders_of("gcn")["pyg"].bytes_needed(ShapeProblem("flickr", scale=0.01))
    monkeypatch.setattr("bignn.lab.bench.rounds.memory_bytes", lambda: needed)
    report = bench.run(["shapes"], scale=0.01, only=["flickr"], memory=False)
    (row,) = report["rows"]
    assert row["pyg_ms"] is None
    assert all("pyg" not in names for names in timed)
    assert row["pyg_predicted_bytes"] == needed
    assert "left out" in capsys.readouterr().err
    assert "-" in suite_report.describe(report)


def test_rows_of_a_figure_are_told_apart_by_graph_model_and_threads() -> None:
    keys = ("speedup_vs_best_float", "speedup_vs_pyg_sparse", "speedup_vs_pyg")
    nothing = dict.fromkeys((*keys, "speedup_vs_simulated"))
    rows = [
        {**nothing, "shape": "arxiv", "model": model, "threads": 2, "speedup_vs_pyg": ratio}
        for model, ratio in (("bi-gcn", 55.0), ("bi-sage", 26.0), ("bi-gat", 31.0))
    ]
    series = {one.label: one for one in suite_report.speedups(rows).series}["PyG, edge_index"]
    assert series.x == ("arxiv, Bi-GCN", "arxiv, Bi-GraphSAGE", "arxiv, Bi-GAT")
    assert series.y == (55.0, 26.0, 31.0)
    more = [*rows, {**rows[0], "threads": 1}]
    assert suite_report.row_names(more)[0] == "arxiv, Bi-GCN, 2 threads"
    assert suite_report.row_names(more)[3] == "arxiv, Bi-GCN, 1 thread"
    more = [{**rows[0], "backend": backend} for backend in ("avx2", "avx512")]
    assert suite_report.row_names(more, {"arxiv": "OGBN-Arxiv"}) == (
        *("OGBN-Arxiv, Bi-GCN, avx2", "OGBN-Arxiv, Bi-GCN, avx512"),
    )
    assert suite_report.row_names([{**rows[0], "shape": "3x4x5", "model": "xnor"}]) == (
        "3x4x5, xnor",
    )
