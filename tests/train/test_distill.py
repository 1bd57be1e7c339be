"""Learning from a teacher."""

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_arrays
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

import bignn
from bignn import FileError, InputError
from bignn.cli import main
from bignn.graph import Graph
from bignn.train.batches import Batch, full_batch
from bignn.train.distill import distillation_loss, soft_targets, weights_digest
from bignn.train.fit import fit
from bignn.train.recipes import (
    MANY_LABELS,
    MANY_LABELS_STUDENTS,
    RECIPES,
    STUDENTS,
    recipe,
    settings_for,
    teacher_recipe,
)


@pytest.fixture
def graph() -> Graph:
    return Graph(**make_arrays(), name="toy")


def model_for(graph: Graph, seed: int = 0) -> bignn.nn.GCN:
    torch.manual_seed(seed)
    return bignn.nn.GCN(graph.num_features, 8, 2, graph.num_classes)


class Constant(nn.Module):
    """The same logits whatever it is asked."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, *rest: object) -> torch.Tensor:
        return self.logits


def test_targets_are_the_mean_of_the_teachers_probabilities(graph: Graph) -> None:
    whole = full_batch(graph, torch.device("cpu"))
    logits = [torch.randn(graph.num_nodes, graph.num_classes) for _ in range(3)]
    teachers = [Constant(values) for values in logits]
    teachers[0].train()
    targets = soft_targets(teachers, whole, 2.0)
    expected = torch.stack([functional.softmax(values / 2, dim=-1) for values in logits]).mean(0)
    assert torch.allclose(targets, expected)
    assert teachers[0].training  # as it was


def test_the_loss_is_the_divergence_from_the_teacher() -> None:
    """As a mean over nodes, or with a weight per node as a sum."""
    generator = torch.Generator().manual_seed(0)
    logits, teachers = (
        torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    temperature, weight = 3.0, torch.tensor([0.5, 0.0, 2.0, 1.0], dtype=torch.float64)
    targets, q = ((z / temperature).softmax(dim=-1) for z in (teachers, logits))
    per_node = temperature**2 * (targets * (targets / q).log()).sum(dim=-1)
    mean = distillation_loss(logits, targets, temperature)
    assert torch.allclose(mean, per_node.mean(), rtol=1e-12)
    found = distillation_loss(logits, targets, temperature, weight)
    assert torch.allclose(found, (weight * per_node).sum(), rtol=1e-12, atol=0)
    assert distillation_loss(targets.log(), targets, 1.0).abs() < 1e-7
    with pytest.raises(
        InputError,
        match="'teacher' must be a model with 4 outputs, as the student has, got one with 3",
    ):
        distillation_loss(torch.randn(4, 4), targets, 1.0)


def test_fit_learns_from_nodes_without_labels(graph: Graph) -> None:
    """One epoch with all of the loss on the teacher: the gradient is that of the divergence."""
    teacher = model_for(graph, seed=5)
    student = model_for(graph)
    student.config["dropout"] = 0
    for conv in student.layers:
        conv.lin.dropout = 0.0
    twin = copy.deepcopy(student)
    settings = replace(settings_for(student), epochs=1, distill_mix=1.0, weight_decay=0.0, lr=0.01)
    fit(student, graph, settings, teacher=teacher, progress=False)
    whole = full_batch(graph, torch.device("cpu"))
    twin.train()
    targets = soft_targets([teacher], whole, 1.0)
    distillation_loss(whole.logits(twin), targets, 1.0).backward()
    for mine, other in zip(student.parameters(), twin.parameters(), strict=True):
        assert other.grad is not None
        moved = other.grad.abs() > 1e-6  # Adam's first step is the sign of the gradient
        assert moved.any()
        assert torch.allclose((other - mine)[moved], 0.01 * other.grad.sign()[moved], atol=1e-4)


def test_resuming_needs_the_same_teacher(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "s.safetensors"
    teacher, other = model_for(graph, 1), model_for(graph, 2)
    assert (
        weights_digest([teacher])
        == weights_digest([copy.deepcopy(teacher)])
        != weights_digest([other])
    )
    settings = replace(settings_for(teacher), epochs=3)
    common: dict[str, Any] = {"checkpoint_path": path, "progress": False}
    first = fit(model_for(graph), graph, settings, teacher=teacher, **common)
    again = fit(model_for(graph), graph, settings, teacher=teacher, resume=True, **common)
    assert again == first
    for another in (other, None):
        with pytest.raises(FileError, match="its 'teachers' is"):
            fit(model_for(graph), graph, settings, teacher=another, resume=True, **common)


def test_teachers_that_cannot_teach_are_refused(graph: Graph) -> None:
    not_a_model = "a trained torch.nn.Module, or several"
    nan = Constant(torch.full((graph.num_nodes, graph.num_classes), torch.nan))
    for teacher, expected in (
        ([], "at least one model"),
        ("gcn", not_a_model),
        (5, not_a_model),
        (nn.Linear, not_a_model),
        (nn.Linear(3, 2), "one that takes the graph's 20 features"),
        (bignn.nn.GCN(99, 4, 2, 2), "a model that takes this graph"),
        (Constant(torch.zeros(3, 2)), "one that returns a tensor of logits"),
        (nan, "a model whose logits are finite"),
    ):
        with pytest.raises(InputError, match=f"'teacher' must be {expected}"):
            fit(model_for(graph), graph, teacher=teacher, progress=False)  # type: ignore[arg-type]


def test_a_model_is_not_its_own_teacher(graph: Graph) -> None:
    model = bignn.nn.GCN(graph.num_features, 4, 2, graph.num_classes)
    with pytest.raises(InputError, match="'teacher' must be another model than 'model'"):
        bignn.fit(model, graph, teacher=model)


def test_batches_must_carry_the_teachers_targets(graph: Graph) -> None:
    batches: list[Batch] = [full_batch(graph, torch.device("cpu"))]
    with pytest.raises(InputError, match="'batches' have no 'targets'"):
        fit(model_for(graph), graph, teacher=model_for(graph, 1), batches=batches, progress=False)


def test_recipes_by_labels_and_teacher(graph: Graph) -> None:
    arrays = make_arrays()
    nodes = np.arange(len(arrays["y"]))
    others = np.concatenate([arrays["val_idx"], arrays["test_idx"]])
    many = Graph(**{**arrays, "train_idx": np.setdiff1d(nodes, others)}, name="many")
    assert many.train_idx is not None
    assert len(many.train_idx) >= 0.1 * many.num_nodes
    few = Graph(**{**arrays, "train_idx": many.train_idx[:1]}, name="few")
    assert few.num_nodes > 10
    for name in RECIPES:
        assert recipe(name) == RECIPES[name]
        assert recipe(name, distill=True) == STUDENTS[name]
        # "auto" is decided where the features are there: these are words.
        taught, plain, rare = (
            replace(table[name], input_bits="sign")
            for table in (MANY_LABELS_STUDENTS, MANY_LABELS, RECIPES)
        )
        assert recipe(name, graph=many, distill=True) == taught
        assert recipe(name, graph=many) == plain
        assert recipe(name, graph=few) == rare
    assert teacher_recipe("bi-gcn", many) == MANY_LABELS["gcn"]
    assert teacher_recipe(hidden_channels=9).hidden_channels == 9


def test_the_command_trains_the_teacher_first_and_reuses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bignn.save(Graph(**make_arrays(), name="toy"), tmp_path / "toy.npz")
    out = tmp_path / "runs"
    command = ["train", str(tmp_path / "toy.npz"), "--distill", "--seeds", "2", "--epochs", "5"]
    command += ["--hidden", "8", "--out", str(out), "--always-follow", "--json"]
    assert main([*command, "--teachers", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["distilled"] is True
    assert report["teacher_test_acc_mean"] > 0
    teachers = sorted(path.name for path in (out / "teacher-epochs-5").glob("*.safetensors"))
    assert teachers == [f"seed-{seed}.safetensors" for seed in range(3)]
    times = {path: path.stat().st_mtime_ns for path in (out / "teacher-epochs-5").iterdir()}
    assert main([*command, "--teachers", "2"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["test_acc"] == report["test_acc"]
    assert times == {path: path.stat().st_mtime_ns for path in (out / "teacher-epochs-5").iterdir()}
    damaged = out / "teacher-epochs-5" / "seed-1.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert main([*command, "--teachers", "2"]) == 0
    captured = capsys.readouterr()
    assert "teacher on toy seed 1 is trained anew" in captured.err
    assert json.loads(captured.out)["test_acc"] == report["test_acc"]
    # A teacher that the run itself writes over teaches all seeds as it was.
    own = str(out / "seed-0.safetensors")
    kept = str(tmp_path / "kept.safetensors")
    shutil.copy(own, kept)
    given = ["--teacher", str(out / "teacher-epochs-5" / "seed-0.safetensors"), "--teacher"]
    assert main([*command, *given, own]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["teacher_test_acc_mean"] is None
    taught = [load_file(out / f"seed-{seed}.safetensors") for seed in range(2)]
    assert main([*command, *given, kept]) == 0
    for seed in range(2):
        again = load_file(out / f"seed-{seed}.safetensors")
        assert all(torch.equal(taught[seed][name], again[name]) for name in again)
    capsys.readouterr()
    assert main([*command[:2], "--distill", "--teachers", "0", "--json"]) == 2
    assert "--teachers must be at least 1" in capsys.readouterr().err
    nowhere = tmp_path / "nowhere"
    for teacher, line in (
        (tmp_path, "is a folder; give a checkpoint"),
        (tmp_path / "no", "does not exist"),
    ):
        assert main([*command[:2], "--teacher", str(teacher), "--out", str(nowhere)]) == 1
        assert line in capsys.readouterr().err
    strange = bignn.nn.GCN(99, 4, 2, 2)
    with pytest.raises(InputError, match="'teacher' must be a model that takes this graph"):
        fit(
            model_for(Graph(**make_arrays(), name="toy")),
            Graph(**make_arrays(), name="toy"),
            teacher=strange,
            checkpoint_path=nowhere / "s.safetensors",
        )
    assert not nowhere.exists()
    assert main([*command[:2], "--temperature", "2", "--json"]) == 2
    assert "--temperature needs --distill or --teacher" in capsys.readouterr().err


def wrong_teacher(graph: Graph) -> Constant:
    """Return a teacher that is sure of the class after the right one."""
    assert graph.y is not None
    wrong = torch.as_tensor((graph.y + 1) % graph.num_classes)
    return Constant(10 * functional.one_hot(wrong, graph.num_classes).float())


def test_a_student_leaves_a_teacher_that_is_wrong(graph: Graph) -> None:
    settings = bignn.Settings(
        lr=0.05, epochs=20, patience=20, select_by="accuracy", distill_mix=1.0
    )
    teacher, scores = wrong_teacher(graph), {}
    for leaves in (False, True):
        chosen = replace(settings, leave_teacher=leaves)
        epochs: list[int] = []
        result = fit(
            model_for(graph),
            graph,
            chosen,
            teacher=teacher,
            progress=False,
            on_epoch=lambda epoch, *_, epochs=epochs: epochs.append(epoch),
        )
        assert epochs == [*range(1, (40 if leaves else 20) + 1)]
        scores[leaves] = result.val_acc
    assert scores[True] > scores[False] + 20


def test_leaving_a_teacher_is_resumed(graph: Graph, tmp_path: Path) -> None:
    """Killed at every epoch around the last one with a teacher."""
    settings = bignn.Settings(
        lr=0.05, epochs=4, patience=4, select_by="accuracy", leave_teacher=True
    )
    common: dict[str, Any] = {"teacher": wrong_teacher(graph), "progress": False}
    straight = model_for(graph)
    expected = fit(straight, graph, settings, **common)
    for last in (3, 4, 5):
        path = tmp_path / f"{last}.safetensors"

        def end(epoch: int, *_: float, last: int = last) -> None:
            if epoch == last + 1:
                raise RuntimeError("killed")

        with pytest.raises(RuntimeError, match="killed"):
            fit(
                model_for(graph),
                graph,
                settings,
                checkpoint_path=path,
                save_every=0,
                on_epoch=end,
                **common,
            )
        model = model_for(graph, seed=1)
        resumed = fit(model, graph, settings, checkpoint_path=path, resume=True, **common)
        assert replace(resumed, seconds=0) == replace(expected, seconds=0)
        for name, value in model.state_dict().items():
            assert torch.equal(value, straight.state_dict()[name]), name
