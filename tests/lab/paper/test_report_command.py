"""``bignn report``: from a results folder to a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bignn.cli import main
from bignn.lab.study.ledger import Ledger
from bignn.lab.study.run import RUNS, Run

#: No real run has it, so that it must come from the ledger.
ACCURACY = 61.7


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    for seed in (0, 1):
        record = {
            "row": Run("cora", "gcn").row,
            **{"dataset": "cora", "model": "gcn", "distill": False, "changes": {}, "seed": seed},
            **{"recipe": "r", "val_acc": 80.0, "test_acc": ACCURACY, "key": f"k{seed}"},
            **{"machine": "<b>some</b> CPU", "version": "0", "torch": "2"},
        }
        Ledger(folder / RUNS).append(record)
    return folder


def test_a_folder_becomes_a_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder.parent / "new" / "page.html"
    assert main(["report", str(folder), "-o", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    text = out.read_text()
    assert told["out"] == str(out)
    assert told["bytes"] == out.stat().st_size
    assert told["sections"] == text.count("<section ")
    assert told["figures"] == text.count("<svg ")
    assert told["tables"] == text.count("<b>Table ")
    assert f"{ACCURACY} ± 0.0" in text
    assert "&lt;b&gt;some&lt;/b&gt; CPU" in text


def test_the_default_name_and_the_line(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    assert main(["report", "results"]) == 0
    assert capsys.readouterr().out.startswith("report.html: ")
    assert Path("report.html").read_text().startswith("<!DOCTYPE html>")


def test_what_is_no_results_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("broken").mkdir()
    Path("broken/bench.json").write_text("{")
    for given, expected in (
        ("absent", "'absent' is not a folder of results"),
        ("empty", "'empty' has no results"),
        ("broken", "'broken/bench.json' is not a JSON document"),
    ):
        assert main(["report", given]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert expected in captured.err
        assert not Path("report.html").exists()


def test_a_folder_is_no_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "-o", str(folder)]) == 2
    assert "--out must be a file name ending in .html" in capsys.readouterr().err
