"""The accurate path: the recommended width, several teachers, and whichever validates better."""

from __future__ import annotations

import json
from functools import partial
from operator import itemgetter
from pathlib import Path

import pytest
import torch

import bignn
from bignn import Graph, InputError
from bignn.cli import main
from bignn.train import quality
from bignn.train.checkpoint import load_model
from bignn.train.fit import FitResult
from bignn.train.quality import fit_best, train_best
from bignn.train.recipes import teacher_recipe
from bignn.train.seeds import SeedResults, fit_model

SHORT = {"epochs": 3, "hidden_channels": 24}


def _signed_loss(result: FitResult, sign: int) -> float:
    return sign * result.val_loss


def test_validation_decides_whether_teachers_are_followed(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(out: Path) -> quality.BestResults:
        return train_best("bi-gcn", graph, [0, 1], out, num_teachers=2, changes=SHORT, resume=True,
                          progress=False)  # fmt: skip

    first = train(tmp_path)
    assert len(first.teachers.results) == 3  # of seeds 0 and 1, and 1 and 2
    assert {path.parent.name for path in first.chosen.checkpoints} == {first.students.kind}
    assert load_model(first.chosen.checkpoints[0]).config["hidden_channels"] == 24
    for better in ("distilled", "alone"):

        def validation(trained: SeedResults, better: str = better) -> float:
            return float(trained.checkpoints[0].parent.name == better)

        monkeypatch.setattr(SeedResults, "val_acc", property(validation))
        students = train(tmp_path).students
        assert students.kind == better
        assert students.chosen is getattr(students, better)
        assert [r.epochs for r in students.chosen.results] == [3, 3]


def test_the_first_seed_decides_for_students(
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "toy.npz"
    bignn.save(graph, path)
    command = ["train", str(path), "--distill", "--epochs", "2", "--hidden", "8", "--seeds", "2"]
    for better in ("distilled", "alone"):
        out = tmp_path / f"{better}-is-better"

        def validation(trained: SeedResults, better: str = better) -> float:
            return float(trained.checkpoints[0].parent.name == better)

        monkeypatch.setattr(SeedResults, "val_acc", property(validation))
        assert main([*command, "--out", str(out), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["distilled"] == (better == "distilled")
        assert report["seeds"] == [0, 1]
        trained = sorted(p.relative_to(out).as_posix() for p in out.rglob("seed-*.safetensors"))
        both = ["alone/seed-0.safetensors", "distilled/seed-0.safetensors"]
        chosen = [f"{better}/seed-1.safetensors", "seed-0.safetensors", "seed-1.safetensors"]
        students = [p for p in trained if not p.startswith("teacher")]
        assert students == sorted([*both, *chosen])
        assert Path(report["checkpoint"]).parent == out
        for name in ("seed-0.safetensors", "seed-1.safetensors"):
            assert (out / name).read_bytes() == (out / better / name).read_bytes()
        assert main([*command, "--out", str(out), "--resume", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["test_acc"] == report["test_acc"]
    # Told to, it follows; and nothing is tried.
    assert main([*command, "--out", str(tmp_path / "o"), "--always-follow", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["distilled"] is True
    assert not (tmp_path / "o" / "alone").exists()
    assert main([*command[:2], "--always-follow"]) == 2
    assert "--always-follow needs --distill" in capsys.readouterr().err


def test_fit_keeps_the_better_of_both(graph: Graph) -> None:
    """What it returns is the model that learned from the teachers, or the one that did not."""
    settings = bignn.Settings(epochs=8, lr=0.02)

    def built() -> bignn.nn.GNN:
        torch.manual_seed(3)
        return bignn.recipe("bi-gcn", graph=graph, hidden_channels=16).build(graph)

    teachers = [fit_model(teacher_recipe("bi-gcn", graph), graph, seed, progress=False)[0]
                for seed in (1, 2)]  # fmt: skip
    ways = {}
    for kind, teacher in (("distilled", teachers), ("alone", None)):
        model = built()
        found = bignn.fit(model, graph, settings, seed=1, teacher=teacher, progress=False)
        ways[kind] = (found.val_loss, model.state_dict())
    for sign in (1, -1):  # either counts as the better one
        model = built()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FitResult, "val_acc", property(partial(_signed_loss, sign=sign)))
            found = fit_best(model, graph, settings, seed=1, num_teachers=2, progress=False)
        loss, state = (max if sign > 0 else min)(ways.values(), key=itemgetter(0))
        assert found.val_loss == loss
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert ways["distilled"][0] != ways["alone"][0]


def test_one_name_in_fit(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(quality, "fit_best", lambda *given, **more: asked.update(more) or "best")
    model = bignn.recipe("bi-gcn", graph=graph).build(graph)
    assert bignn.fit(model, graph, quality="best", seed=5, progress=False) == "best"  # type: ignore[comparison-overlap]
    assert (asked["seed"], asked["progress"]) == (5, False)
    with pytest.raises(InputError, match="'teacher' must be left out with quality 'best'"):
        bignn.fit(model, graph, quality="best", teacher=model)
    with pytest.raises(InputError, match="'quality' must be one of"):
        bignn.fit(model, graph, quality="worst")  # type: ignore[arg-type]
    monkeypatch.undo()
    with pytest.raises(InputError, match=r"'model' must be a binary model of bignn.nn.*got 'gcn'"):
        bignn.fit(bignn.recipe("gcn", graph=graph).build(graph), graph, quality="best")


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
    for is_told in (False, True):
        assert main(command) == 0
        captured = capsys.readouterr()
        assert ("seed-0.safetensors already, which this run replaces" in captured.err) == is_told
    report = json.loads(captured.out)
    assert report["hidden_channels"] == 16
    assert report["input_bits"] == "sign"
    kind = "distilled" if report["distilled"] else "alone"
    assert Path(report["checkpoint"]).parent.name == kind
    assert report["val_acc_mean"] == report[f"val_acc_mean_{kind}"]
    assert main([*command, "--teacher", "other.safetensors"]) == 2
    assert "--teacher must be left out with --quality best" in capsys.readouterr().err
