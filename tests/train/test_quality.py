"""The accurate path: the recommended width, several teachers, and whichever validates better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import bignn
from bignn import Graph, InputError
from bignn.cli import main
from bignn.train import quality
from bignn.train.checkpoint import load_model
from bignn.train.quality import train_best
from bignn.train.seeds import SeedResults

SHORT = {"epochs": 3, "hidden_channels": 24}


def test_validation_decides_whether_teachers_are_followed(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(out: Path) -> quality.BestResults:
        return train_best("bi-gcn", graph, [0, 1], out, num_teachers=2, changes=SHORT, resume=True,
                          progress=False)  # fmt: skip

    first = train(tmp_path)
    assert len(first.teachers.results) == 4
    assert {path.parent.name for path in first.chosen.checkpoints} == {first.kind}
    assert load_model(first.chosen.checkpoints[0]).config["hidden_channels"] == 24
    for better in ("distilled", "alone"):

        def validation(trained: SeedResults, better: str = better) -> float:
            return float(trained.checkpoints[0].parent.name == better)

        monkeypatch.setattr(quality, "_validation", validation)
        again = train(tmp_path)
        assert again.kind == better
        assert again.chosen is (again.distilled if better == "distilled" else again.alone)
        assert [r.epochs for r in again.chosen.results] == [3, 3]


def test_the_width_is_the_recommended_one(graph: Graph, tmp_path: Path) -> None:
    found = train_best("bi-gcn", graph, [0], tmp_path, num_teachers=1, changes={"epochs": 3},
                       progress=False)  # fmt: skip
    teacher = load_model(found.teachers.checkpoints[0])
    advice = int(bignn.recommend_width(teacher, graph))
    own = bignn.train.recipes.recipe("bi-gcn", graph=graph, distill=True).hidden_channels
    assert found.recipe.hidden_channels == max(advice, own)
    with pytest.raises(InputError, match="'model' must be a binary one for the best quality"):
        train_best("gcn", graph, [0], tmp_path)


def test_one_flag_trains_so(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "toy.npz"
    bignn.save(graph, path)
    command = ["train", str(path), "--quality", "best", "--teachers", "1", "--epochs", "2",
               "--hidden", "16", "--out", str(tmp_path / "out"), "--json"]  # fmt: skip
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["hidden_channels"] == 16
    assert report["input_bits"] == "sign"
    kind = "distilled" if report["distilled"] else "alone"
    assert Path(report["checkpoint"]).parent.name == kind
    assert report["val_acc_mean"] == report[f"val_acc_mean_{kind}"]
    assert main([*command, "--teacher", "other.safetensors"]) == 2
    assert "--teacher must be left out with --quality best" in capsys.readouterr().err
