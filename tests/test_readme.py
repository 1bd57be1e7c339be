"""The programs of the README and the guide run as printed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_packed_model

import bignn
from bignn.cli import main

README = Path(__file__).parent.parent / "README.md"
GUIDE = README.parent / "docs" / "guide.md"


def programs(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


QUICKSTART, CONVERSION, WIDTH = programs(README)
LIBRARIES, MANY_GRAPHS, LIVE, SAMPLING, SAMPLED_FIT, STORE = programs(GUIDE)


@pytest.fixture
def short_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three epochs instead of the recipe's."""
    fit = bignn.fit

    def short(model: Any, graph: Any) -> bignn.FitResult:
        return fit(model, graph, replace(bignn.Settings(), epochs=3), progress=False)

    monkeypatch.setattr(bignn, "fit", short)


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


def test_graphs_of_other_libraries(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(LIBRARIES, names)
    assert capsys.readouterr().out == "('Mr. Hi', 'Officer')\n"
    assert names["graph"].num_nodes == 100


def test_many_graphs_are_learned_and_packed(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(MANY_GRAPHS.replace("val=0.2", "bignn.Settings(lr=0.01, epochs=20), val=0.2"), names)
    assert float(capsys.readouterr().out.split()[0]) > 60
    assert names["many"].num_graphs == 50


def test_a_graph_changes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    make_packed_model([1433, 16, 7]).save("cora.bignn")
    names: dict[str, Any] = {}
    exec(LIVE, names)
    live = names["live"]
    assert live.num_nodes == 2709
    assert live.removed.tolist() == [12]
    fresh = names["packed"].predict(live.packed_graph())
    fresh[12] = -1
    assert (live.predict() == fresh).all()


def test_sampling_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(SAMPLING, names)
    assert "n_id" in capsys.readouterr().out
    assert names["h"].shape == (names["batch"].batch_size, 1433)
    torch.manual_seed(0)
    exec(SAMPLED_FIT.replace("epochs=40", "epochs=10"), names)
    assert float(capsys.readouterr().out.split()[-1]) > 50  # far above the largest class's 30 %


def test_the_loader_over_a_store_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["synth", "papers100M", "--scale", "1e-5", "-o", "papers"]) == 0
    names: dict[str, Any] = {}
    exec(STORE, names)
    batch = next(iter(names["loader"]))
    assert batch.x.shape == (batch.num_nodes, 128)
