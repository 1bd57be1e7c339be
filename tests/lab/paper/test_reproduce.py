"""``bignn reproduce``: rows are run, resumed, skipped where data is missing, and shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import make_arrays

import bignn
from bignn.cli import main
from bignn.graph import Graph
from bignn.lab.paper import reproduce
from bignn.lab.paper import rows as paper
from bignn.lab.paper.rows import EXPERIMENTS, Experiment, Sweep
from bignn.lab.study.ledger import Ledger
from bignn.lab.study.run import RUNS, Run
from bignn.lab.study.runs import do_runs


@pytest.fixture
def toy(tmp_path: Path) -> str:
    path = tmp_path / "toy.npz"
    bignn.save(Graph(**make_arrays(), name="toy"), path)
    return str(path)


@pytest.fixture
def short(toy: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two experiments on a toy graph, three epochs each, one of whose graphs is nowhere."""
    rows = (
        Run(toy, "gcn", changes=(("epochs", 3),)),
        Run(toy, "bi-gcn", changes=(("epochs", 3),)),
        Run("reddit", "gcn", changes=(("epochs", 3),)),
    )
    changed = {
        "transductive": Experiment("transductive", "", rows, 2),
    }
    monkeypatch.setattr(reproduce, "EXPERIMENTS", {**EXPERIMENTS, **changed})
    monkeypatch.setattr(paper, "EXPERIMENTS", {**EXPERIMENTS, **changed})
    yield


@pytest.mark.usefixtures("short")
def test_rows_are_run_once_and_missing_data_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["reproduce", "transductive", "--out", str(tmp_path / "out"), "--json"]
    assert main(command) == 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    assert report["runs"] == 4
    assert list(report["skipped"]) == ["reddit"]
    assert "rows on reddit are skipped" in told.err
    assert [row["seeds"] for row in report["rows"]] == [2, 2]
    assert Path(report["page"]).read_text().startswith("# Results")
    ledger = Ledger(Path(report["ledger"]))
    before = ledger.read()
    assert [record["seed"] for record in before] == [0, 0, 1, 1]  # seed by seed
    assert main([*command, "--resume", "--seeds", "3"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 6
    assert ledger.read()[:4] == before
    assert len(ledger.read()) == 6


@pytest.mark.usefixtures("short")
def test_anew_puts_what_is_there_aside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["reproduce", "transductive", "--out", str(tmp_path / "out"), "--seeds", "1"]
    assert main(command) == 0
    first = (tmp_path / "out" / RUNS).read_text()
    (tmp_path / "out" / "teachers").mkdir()
    (tmp_path / "out" / "measured-1").mkdir()
    assert main([*command, "--anew", "--write", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "out" / "runs-1.jsonl").read_text() == first
    assert (tmp_path / "out" / "teachers-1").exists()
    assert not (tmp_path / "out" / "teachers").exists()
    assert len(Ledger(tmp_path / "out" / RUNS).read()) == 2
    assert "(page-figures/overview-size.svg)" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "page-figures" / "overview-size.svg").exists()


def test_only_some() -> None:
    rows = [Run(dataset, model) for dataset in ("cora", "pubmed") for model in ("gcn", "bi-gcn")]
    assert reproduce._kept(rows, ["cora"]) == rows[:2]
    assert reproduce._kept(rows, ["bi-gcn"]) == rows[1::2]
    assert reproduce._kept(rows, ["pubmed", "gcn"]) == [rows[2]]
    assert reproduce._kept(rows, []) == rows


def test_bad_arguments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, line in (
        (["transductive", "--only", "corra"], "--only must be some of ['amazon-computers'"),
        (["transductive", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["transductive", "--jobs", "0"], "--jobs must be a number from 1 to 1024"),
    ):
        assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2
        error = capsys.readouterr().err
        assert line in error
        assert error.count("\n") == 1
        assert not (tmp_path / "out").exists()


def test_every_row_of_every_experiment_trains(toy: str, tmp_path: Path) -> None:
    """An epoch each, narrow, on a toy graph: no name or value in the tables is a slip."""
    rows = [row for experiment in EXPERIMENTS.values() for row in experiment.rows]
    tried = {}
    for row in rows:
        changes = {**dict(row.changes), "epochs": 1}
        if changes.get("hidden_channels", 0) > 8:
            changes["hidden_channels"] = 8
        key = (row.model, row.distill, row.paper, tuple(changes.items()))
        teachers = min(row.teachers, 2)
        file = tmp_path / f"{row.dataset if row.paper else 'toy'}.npz"
        if not file.exists():  # the paper's settings go by the name
            shutil.copy(toy, file)
        tried[key] = replace(
            row, dataset=str(file), teachers=teachers, changes=tuple(changes.items())
        )
    records = do_runs(list(tried.values()), tmp_path / "out", progress=False)
    assert len(records) == len(tried) > 40


def test_widths_are_measured(toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(toy, swept=(4,))
    monkeypatch.setattr(reproduce, "SWEEPS", (sweep,))
    changed = {**EXPERIMENTS, "width": Experiment("width", "", tuple(sweep.rows()), 1)}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", changed)
    out = tmp_path / "out"
    report = reproduce.run(["width"], out)
    assert report["runs"] == 2
    (found,) = out.glob("capacity-*.json")
    document = json.loads(found.read_text())
    assert document["widths"] == [4]
    text = Path(report["page"]).read_text()
    assert f"| {document['entropy_bits']:.1f}" in text
    assert "enough" in text


def test_what_was_not_measured_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["reproduce", "gpu", "speed", "store", "--out", "runs/paper"]) == 0
    gpu, speed, store = sorted(capsys.readouterr().err.splitlines())
    assert gpu.startswith("note: nothing was measured for gpu: this machine has no GPU")
    assert "'bignn bench --json > runs/paper/bench.json' measures it" in speed
    assert store.startswith("note: nothing was measured for store: 'benchmarks/store_scale.py'")
    page = Path("runs/paper/results.md").read_text()
    assert page.count("bignn bench --json > runs/paper/bench.json") == 2
    assert "> paper/" not in page
    assert main(["reproduce", "datasets", "--out", "runs/paper"]) == 0
    assert "nothing was measured" not in capsys.readouterr().err


def test_sections_that_need_no_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new"
    assert main(["reproduce", "datasets", "cora-cost", "extraction", "--out", str(out)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told if line.endswith((".md", ".jsonl"))] == ["page"]
    page = tmp_path / "page.html"
    assert main(["report", str(out), "-o", str(page)]) == 0  # what needs no runs is shown
    assert "249,954,739" in page.read_text()
    capsys.readouterr()
    assert "249,954,739" in (out / "results.md").read_text()
    assert main(["reproduce", "datasets", "--out", str(out), "--write", str(tmp_path)]) == 1
    assert "it is a folder; give a file name" in capsys.readouterr().err
    assert main(["reproduce", "transductive", "--out", str(out), "--only", ""]) == 2
    assert "--only must be some of" in capsys.readouterr().err
