"""The programs of the README and the guide run as printed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import bignn
from bignn.lab.paper.published import ACCURACY
from bignn.lab.paper.results import Results
from bignn.lab.paper.rows import MANY_LABELS, family_rows, twin_rows
from bignn.lab.study.run import Run
from bignn.train import fit as fit_module

README = Path(__file__).parent.parent / "README.md"
GUIDE = README.parent / "docs" / "guide.md"


def programs(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


QUICKSTART, CONVERSION, WIDTH = programs(README)
SAMPLING, SAMPLED_FIT = programs(GUIDE)


@pytest.fixture
def short_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs instead of the recipe's."""
    fit = fit_module.fit

    def short(model: Any, graph: Any) -> bignn.FitResult:
        return fit(model, graph, replace(bignn.Settings(), epochs=3), progress=False)

    monkeypatch.setattr(fit_module, "fit", short)


@pytest.mark.usefixtures("short_fit")
def test_quickstart_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # it writes a file
    names: dict[str, Any] = {}
    exec(QUICKSTART, names)
    assert "test accuracy" in capsys.readouterr().out
    assert names["classes"].shape == (2708,)


def test_conversion_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(CONVERSION.replace("range(60)", "range(3)"), names)
    assert "features+weights" in capsys.readouterr().out
    assert names["classes"].shape == (2708,)


@pytest.mark.usefixtures("short_fit")
def test_width_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(WIDTH, names)
    width = names["binary"].config["hidden_channels"]
    assert f"width {width} (robust)" in capsys.readouterr().out


def test_sampling_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(SAMPLING, names)
    assert "n_id" in capsys.readouterr().out
    assert names["h"].shape == (names["batch"].batch_size, 1433)
    torch.manual_seed(0)
    exec(SAMPLED_FIT.replace("epochs=40", "epochs=10"), names)
    assert float(capsys.readouterr().out.split()[-1]) > 50  # far above the largest class's 30 %


def test_accuracies_are_those_of_the_results() -> None:
    results = Results(README.parent / "docs" / "results")
    lines = README.read_text().splitlines()
    for dataset, start in (
        ("cora", "| Cora, test"),
        ("citeseer", "| CiteSeer"),
        ("pubmed", "| PubM"),
        *((name, f"| {name}") for name in MANY_LABELS),
    ):
        (cells,) = [line.split(" | ")[1:] for line in lines if line.startswith(start)]
        gcn, wide, student, narrow, binary = map(results.of, twin_rows(dataset))
        for cell, found in zip(cells, (gcn, student, binary, narrow, wide), strict=False):
            assert found is not None and len(found.test) == 20
            assert cell == found.plus_minus()
        papers = [ACCURACY[dataset][model] for model in ("gcn", "bi-gcn") if dataset in ACCURACY]
        assert cells[5] == (" / ".join(f"{mean} ± {std}" for mean, std in papers) or "–") + " |"


def test_the_family_is_within_what_is_told() -> None:
    results = Results(README.parent / "docs" / "results")

    def above_twin(twin: Run, student: Run) -> float:
        found, float_found = results.of(student), results.of(twin)
        assert found and float_found
        return found.mean - float_found.mean

    differences = []
    for dataset in MANY_LABELS:
        gcn, _, _, same_width, _ = twin_rows(dataset)
        differences.append(above_twin(gcn, same_width))
        for model in ("gat", "sage", "saint"):
            twin, distilled, _ = family_rows(dataset, model)
            differences.append(above_twin(twin, distilled))
    below, above = -min(differences), max(differences)
    assert f"between {below:.1f} points below and {above:.1f} above" in README.read_text()


def test_speeds_are_those_of_the_results() -> None:
    found = {
        (row["shape"], row["model"]): row
        for row in Results(README.parent / "docs" / "results").bench
        if row["suite"] != "gemm"
    }
    text = README.read_text()
    names = ("cora", "citeseer", "pubmed", "flickr", "arxiv", "reddit", "products")
    rows = {
        "best float": "speedup_vs_best_float",
        "the same, by the fastest": "fastest_speedup_vs_best_float",
        "PyG GCN, edge_index": "speedup_vs_pyg",
        "Bi-GCN simulated": "speedup_vs_simulated",
        "memory, less than best": "memory_ratio",
        "and with the graph's": "memory_ratio_with_graph",
    }
    for start, key in rows.items():
        (line,) = re.findall(rf"^\| {re.escape(start)}.*$", text, re.MULTILINE)
        told = line.strip("| ").split(" | ")[1:]
        missing = "–" if key.startswith("fastest") else "does not fit"
        assert told == [times(found[name, "bi-gcn"].get(key), missing) for name in names]
    sage, gat = found["arxiv", "bi-sage"], found["arxiv", "bi-gat"]
    for row in (sage, gat):
        for key in ("speedup_vs_best_float", "memory_ratio"):
            assert times(row[key], "") in text.split("The rest of the family")[1].split("## ")[0]


def times(ratio: float | None, missing: str) -> str:
    if ratio is None:
        return missing
    return f"{ratio:.1f}x" if ratio < 9.95 else f"{ratio:.0f}x"
