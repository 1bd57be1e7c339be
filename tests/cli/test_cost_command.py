"""``bignn cost`` as a user sees it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_arrays
from printed_costs import FIGURES, agrees

import bignn
from bignn.cli import main
from bignn.lab.bench import planned
from bignn.train.recipes import cost as costs

PLANNED = ["--nodes", "300", "--edges", "900", "--features", "70", "--classes", "4"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["cost", *arguments, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_defaults_are_those_of_the_papers_tables() -> None:
    for dataset, model, measure, figure in FIGURES:
        if (dataset, model, measure) != ("citeseer", "sgc", "cycle_ops"):  # see test_cost.py
            assert agrees(getattr(costs.cost_of(model, dataset), measure), figure)


def test_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = run(capsys, "cora", "--model", "bi-gcn")
    assert document["model_bytes"] == 11_804
    assert document["data_bytes"] == 2708 * 1433 / 8 + 4 * 2708
    assert document["cycle_ops"] == 4_669_515
    assert [layer["cycle_ops"] for layer in document["layers"]] == [4_574_644, 94_871]
    assert document["sizes"] == {"nodes": 2708, "edges": 5429, "features": 1433, "classes": 7}
    assert document["twin"]["model"] == "gcn"
    assert document["twin"]["cycle_ops"] == 249_954_739
    assert document["ratios"]["full"] == pytest.approx(249_954_739 / 4_669_515)
    assert document["ratios"]["layers"][0]["extraction"] == pytest.approx(64 * 1433 / 1561)


def test_a_float_model_beside_its_binary_version(capsys: pytest.CaptureFixture[str]) -> None:
    document = run(capsys, "reddit", "--model", "saint")
    assert document["twin"]["model"] == "bi-saint"
    assert document["cycle_ops"] / document["twin"]["cycle_ops"] == document["ratios"]["full"]
    with_bits = run(capsys, "reddit", "--model", "bi-saint", "--binarize-head")
    head = with_bits["layers"][-1]
    assert head["model_bytes"] == 512 * 41 / 8 + 4 * 41
    assert run(capsys, "cora", "--model", "sgc")["twin"]["model"] == "binary sgc"


def test_widths_are_changed_by_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--hidden", "4", "--layers", "3", "--heads", "2", "--out-heads", "5"]
    layers = run(capsys, "cora", "--model", "bi-gat", *flags)["layers"]
    assert [(layer["inputs"], layer["outputs"]) for layer in layers] == [
        (1433, 8), (8, 8), (8, 35),
    ]  # fmt: skip


def test_a_planned_graph_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, *PLANNED, "--model", "gcn", "--hidden", "8")["cycle_ops"] == (
        300 * (70 * 8 + 8 * 4) + 900 * (8 + 4)
    )
    path = tmp_path / "toy.npz"
    np.savez(path, **make_arrays())  # type: ignore[arg-type]
    sizes = run(capsys, str(path))["sizes"]
    graph = bignn.load(path)
    pairs = {frozenset(pair) for pair in graph.edge_index.T.tolist() if pair[0] != pair[1]}
    assert sizes == {
        "nodes": graph.num_nodes,
        "edges": len(pairs),
        "features": graph.num_features,
        "classes": graph.num_classes,
    }


def test_the_table_has_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "cora"]) == 0
    total = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("total"))
    assert total.split() == [
        "total", "360.00K", "11.53K", "31.2x", "249,954,739", "4,669,515", "53.5x", "58.3x",
    ]  # fmt: skip


def test_measured_beside_estimated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calibration = bignn.cost.Calibration({}, 1e-9)
    monkeypatch.setattr(planned, "calibrate", lambda: calibration)
    monkeypatch.setattr("bignn.runtime.planner.Plan.predicted", lambda *_: 0.25)
    for model in ("bi-gcn", "gcn", "bi-sage", "bi-gat", "bi-saint", "bi-gcn-f"):
        arguments = [*PLANNED, "--model", model, "--measure", "--scale", "0.5", "--threads", "1"]
        measured = run(capsys, *arguments)["measured"]
        assert (measured["nodes"], measured["edges"], measured["synthetic"]) == (150, 450, True)
        assert measured["ms"] > 0
        in_bits = measured["binarize"] == "both"
        assert in_bits == (model != "bi-gcn-f")
        # Rows of 70 bits take 128.
        padding = 150 * (128 - 70) / 8
        assert measured["data_bytes"] == measured["estimated_data_bytes"] + padding
        if in_bits:
            assert measured["model_bytes"] > measured["estimated_model_bytes"]
        else:
            assert measured["model_bytes"] == measured["estimated_model_bytes"]
        if model in ("bi-gcn", "bi-sage", "bi-gat"):
            assert measured["predicted_ms"] == 250
            assert measured["cycle_ms"] == pytest.approx(1e-6 * measured["cycle_ops"])
        if model in ("bi-saint", "bi-gcn-f"):  # parts of them run in NumPy
            assert measured["predicted_ms"] is None


def test_a_graph_at_hand_is_measured_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planned, "_predicted", lambda *_: {"predicted_ms": None})
    assert main(["cost", "cora", "--measure", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert "on the graph itself (2,708 nodes, 5,278 edges), 1 thread" in out


def test_what_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planned, "memory_bytes", lambda: 10**9)
    assert main(["cost", "ogbn-products", "--measure"]) == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert len(error) == 1
    scale = error[0].split("--scale ")[1]
    assert 0 < float(scale) < 0.1
    counted = costs.cost_of("bi-gcn", "ogbn-products")
    part = float(scale) * np.array([counted.sizes.nodes, counted.sizes.edges])
    planned._check_memory(  # the advice is good
        counted.architecture, bignn.cost.Sizes(int(part[0]), int(part[1]), 100, 47)
    )


def test_failures_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[tuple[list[str], str]] = [
        ([], "give a dataset, or --nodes"),
        (["cora", *PLANNED], "give a dataset ('cora') or the sizes"),
        (["--nodes", "3"], "also needs --edges, --features, --classes"),
        (["nowhere"], "unknown dataset 'nowhere'"),
        (["cora", "--heads", "2"], "--heads must be 1"),
        (["cora", "--scale", "0.5"], "--scale must be left out without --measure"),
        ([*PLANNED, "--measure", "--scale", "2"], "--scale must be above 0"),
        ([*PLANNED[:-1], "0"], "--classes must be at least 1"),
        ([*PLANNED[:-1], str(2**63)], "--classes must be below 2**63, got 9223372036854775808"),
        (["cora", "--hidden", "9" * 400], "--hidden must be below 2**63, got 9999"),
    ]
    for arguments, line in cases:
        assert main(["cost", *arguments]) == (2 if line.startswith("--") else 1)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert line in captured.err
        assert captured.err.count("\n") == 1


def test_an_encoder_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--nodes", "1000", "--edges", "5000", "--features", "100", "--classes", "10"]
    assert main(["cost", *sizes, "--input-bits", "rotate:4"]) == 0
    printed = capsys.readouterr().out
    assert "100 features become 400 bits: 60 bytes per node," in printed
    assert "10,952 operations per node, once, when it is packed" in printed
    assert main(["cost", *sizes, "--input-bits", "sign"]) == 0
    assert "bytes per node" not in capsys.readouterr().out
    assert main(["cost", *sizes, "--input-bits", "rotate"]) == 2
    assert "--input-bits must be 'auto', 'sign', 'learned:K', 'rotate:K'" in capsys.readouterr().err


def test_machines(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--nodes", "1000000", "--edges", "5000000", "--features", "602", "--classes", "4"]
    layers = ["--model", "bi-gcn", "--hidden", "128", "--layers", "2"]
    found = run(capsys, *sizes, *layers, "--machines", "4", "--halo-rows", "200000")["machines"]
    sent = 50_000 * (602 / 8 + 0.75 + 4 + 128 / 8 + 4)  # whole bytes
    assert found["binary"]["sent_bytes"] == sent
    assert found["float"]["sent_bytes"] == 50_000 * 4 * (602 + 128)
    assert found["binary"]["seconds"] == pytest.approx(8 * sent / 10e9)
    assert found["float"]["memory_bytes"] > 10 * found["binary"]["memory_bytes"]
    found = run(capsys, *sizes, *layers, "--machines", "4")["machines"]
    assert found["halo_rows"] == pytest.approx(1e6 * 3 * (1 - 0.75**10))
    alone = run(capsys, *sizes, *layers, "--machines", "1", "--link", "1")["machines"]
    assert alone["binary"]["sent_bytes"] == 0
    assert main(["cost", *sizes, *layers, "--machines", "4"]) == 0
    assert "4 machines, 2,831," in capsys.readouterr().out
    for flags, line in (
        (["--halo-rows", "5"], "--halo-rows must be left out without --machines"),
        (["--machines", "0"], "--machines must be a number from 1"),
        (["--machines", "2", "--link", "0"], "--link must be Gbit/s, more than 0"),
        (["--machines", "2", "--halo-rows", "2000000"], "--halo-rows must be a number from 0"),
    ):
        assert main(["cost", *sizes, *layers, *flags]) == 2
        assert line in capsys.readouterr().err
