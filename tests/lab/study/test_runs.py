"""Runs as data: what is done is written down and not done again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_arrays

import bignn
from bignn.errors import InputError
from bignn.graph import Graph
from bignn.lab.paper.results import Results
from bignn.lab.study import runs
from bignn.lab.study.ledger import Ledger
from bignn.lab.study.run import _FIRST_DEFAULTS, Run
from bignn.lab.study.runs import do_runs
from bignn.train import seeds
from bignn.train.fit import FitResult
from bignn.train.recipes import RECIPES, Recipe, Settings, recipe, teacher_recipe
from bignn.train.seeds import fit_seed

SHORT = (("epochs", 3),)
RUN = Run("cora", "bi-gcn", changes=SHORT)


def with_seeds(run: Run, seeds: Iterable[int]) -> list[Run]:
    return [replace(run, seed=seed) for seed in seeds]


def test_a_record_is_what_training_gives(tmp_path: Path) -> None:
    (record,) = do_runs([replace(RUN, seed=3)], tmp_path, progress=False)
    graph = bignn.load("cora")
    chosen = recipe("bi-gcn", graph=graph, epochs=3)
    torch.manual_seed(3)
    result = bignn.fit(chosen.build(graph), graph, chosen.settings, seed=3, progress=False)
    assert record["test_acc"] == result.test_acc
    assert record["val_loss"] == result.val_loss
    assert (record["row"], record["seed"], record["epochs"]) == ("cora/bi-gcn/epochs=3", 3, 3)
    assert {"seconds", "version", "machine", "device"} <= set(record)
    assert Ledger(tmp_path / "runs.jsonl").read() == [record]


def test_a_distilled_run_learns_from_the_teacher_of_its_seed(tmp_path: Path) -> None:
    (record,) = do_runs([replace(RUN, seed=1, distill=True)], tmp_path, progress=False)
    graph = bignn.load("cora")
    torch.manual_seed(1)
    taught_by = teacher_recipe("bi-gcn", graph, epochs=3)
    teacher = taught_by.build(graph)
    bignn.fit(teacher, graph, taught_by.settings, seed=1, progress=False)
    torch.manual_seed(1)
    chosen = recipe("bi-gcn", graph=graph, distill=True, epochs=3)
    student = chosen.build(graph)
    result = bignn.fit(student, graph, chosen.settings, seed=1, teacher=teacher, progress=False)
    assert record["val_loss"] == result.val_loss


def test_seeds_of_a_row_that_train_at_the_same_time_are_those_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without dropout, since on a CPU all runs draw from one generator.
    changes = (*SHORT, ("dropout", 0.0), ("input_dropout", 0.0))
    rows = [
        Run("cora", "bi-gcn", distill=True, teachers=2, changes=changes),
        Run("cora", "bi-gcn", changes=changes),
    ]
    wanted = [replace(row, seed=seed) for seed in range(5) for row in rows]
    monkeypatch.setattr(Run, "teacher_recipe", _without_dropout)
    alone = do_runs(wanted, tmp_path / "alone", progress=False)
    for module in (runs, seeds):
        monkeypatch.setattr(module, "can_fit_together", lambda *given: True)
    fitted: list[list[int]] = []
    train_seeds = seeds.train_seeds

    def watched(recipe: Recipe, graph: Graph, some: list[int], *given: Any, **more: Any) -> Any:
        fitted.append(list(some))
        return train_seeds(recipe, graph, some, *given, **more)

    monkeypatch.setattr(runs, "train_seeds", watched)
    together = do_runs(wanted, tmp_path / "together", progress=False)
    told = ("row", "seed", "val_loss", "test_acc", "best_epoch", "recipe")
    assert [[r[k] for k in told] for r in together] == [[r[k] for k in told] for r in alone]
    # Teachers of a group, its students, and the other row; the fifth seeds are by themselves.
    assert fitted == [[0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2, 3]]
    names = {path.name for path in (tmp_path / "together" / "teachers").glob("*.safetensors")}
    assert names == {path.name for path in (tmp_path / "alone" / "teachers").glob("*.safetensors")}


def _without_dropout(run: Run, graph: Graph) -> Recipe | None:
    changes: dict[str, Any] = {"epochs": 3, "dropout": 0.0, "input_dropout": 0.0}
    return teacher_recipe(run.model, graph, **changes) if run.distill else None


def test_a_float_model_that_teaches_is_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where many nodes have labels, the float twin by its own recipe is the teacher."""
    bignn.save(Graph(**make_arrays(), name="toy"), tmp_path / "toy.npz")
    toy = str(tmp_path / "toy.npz")
    plain, taught = Run(toy, "gcn", 1, changes=SHORT), Run(toy, "bi-gcn", 1, True, changes=SHORT)
    (alone,) = do_runs([plain], tmp_path / "alone", progress=False)
    lengths = []

    def fit(*given: Any, **options: Any) -> FitResult:
        found = fit_seed(*given, **options)
        lengths.append(found.seconds)
        return found

    monkeypatch.setattr("bignn.lab.study.runs.fit_seed", fit)
    for name, both in (("first", [plain, taught]), ("last", [taught, plain])):
        lengths.clear()
        records = do_runs(both, tmp_path / name, progress=False)
        found = {record["model"]: record for record in records}
        scores = ("val_loss", "val_acc", "test_acc", "best_epoch", "epochs")
        assert {key: found["gcn"][key] for key in scores} == {key: alone[key] for key in scores}
        assert len(lengths) == 3  # one of them is read again, with the time that it took
        assert len(set(lengths)) == 2


def test_nothing_is_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = do_runs(with_seeds(RUN, [0, 1]), tmp_path, progress=False)
    done = []

    def fit(recipe: object, graph: object, seed: int, **options: object) -> None:
        done.append(seed)
        raise InputError("run again")

    monkeypatch.setattr("bignn.lab.study.runs.fit_seed", fit)
    assert do_runs(with_seeds(RUN, [1, 0]), tmp_path, progress=False) == first[::-1]
    assert done == []
    with pytest.raises(InputError, match=r"1 of 1 runs failed.*seed 2: run again"):
        do_runs(with_seeds(RUN, [0, 2]), tmp_path, progress=False)
    assert done == [2]


def test_the_same_run_under_another_name_is_written_down_not_run(tmp_path: Path) -> None:
    wide = replace(RUN, changes=(*SHORT, ("hidden_channels", 64)))  # what the recipe has anyway
    (first,) = do_runs([RUN], tmp_path, progress=False)
    (second,) = do_runs([wide], tmp_path, progress=False)
    assert second["seconds"] == first["seconds"]
    rows = [record["row"] for record in Ledger(tmp_path / "runs.jsonl").read()]
    assert rows == ["cora/bi-gcn/epochs=3", "cora/bi-gcn/epochs=3/hidden_channels=64"]


def test_another_recipe_is_another_run(tmp_path: Path) -> None:
    graph = bignn.load("cora")
    changed = [
        RUN,
        replace(RUN, seed=1),
        replace(RUN, distill=True),
        replace(RUN, model="gcn"),
        replace(RUN, changes=(("epochs", 4),)),
        replace(RUN, changes=(*SHORT, ("hidden_channels", 65))),
    ]
    assert len({run.key(graph) for run in changed}) == len(changed)
    assert RUN.key(bignn.load("citeseer")) != RUN.key(graph)


def test_a_curve_has_the_loss_of_every_epoch(tmp_path: Path) -> None:
    do_runs([RUN], tmp_path, progress=False)
    (record,) = do_runs([replace(RUN, curve=True)], tmp_path, progress=False)
    assert len(record["curve"]) == 3
    assert min(record["curve"]) == pytest.approx(record["val_loss"], abs=1e-4)


def test_a_full_gpu_is_one_short_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "CUDA out of memory. Tried to allocate 2.16 GiB. GPU 0 has a total capacity of 139 GiB"

    def fit(*args: object, **options: object) -> None:
        raise torch.OutOfMemoryError(said + " of which 1 GiB is free. Process 891 has 66.00 MiB")

    monkeypatch.setattr("bignn.lab.study.runs.fit_seed", fit)
    expected = r"seed 0: OutOfMemoryError: .*allocate 2.16 GiB\. Fewer --jobs take less memory\.$"
    with pytest.raises(InputError, match=expected):
        do_runs([RUN], tmp_path, progress=False)


def test_a_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    bad = replace(RUN, changes=(*SHORT, ("lr", 1e30)))
    with pytest.raises(InputError, match=r"1 of 2 runs failed.*diverged"):
        do_runs([bad, RUN], tmp_path, progress=False)
    assert [record["row"] for record in Ledger(tmp_path / "runs.jsonl").read()] == [RUN.row]


def test_a_name_that_means_an_older_run_again_is_written_down_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recipe is changed and changed back: by name, the newest line is the one that counts."""
    (first,) = do_runs([RUN], tmp_path, progress=False)
    with monkeypatch.context() as patch:
        changed = replace(RECIPES["bi-gcn"], dropout=0.1)
        patch.setitem(RECIPES, "bi-gcn", changed)
        (second,) = do_runs([RUN], tmp_path, progress=False)
    assert second["recipe"] != first["recipe"]
    assert do_runs([RUN], tmp_path, progress=False) == [first]
    lines = Ledger(tmp_path / "runs.jsonl").read()
    assert [line["recipe"] for line in lines] == [
        first["recipe"],
        second["recipe"],
        first["recipe"],
    ]
    ours = Results(tmp_path).of(RUN)
    assert ours is not None
    assert ours.test == (first["test_acc"],)


def test_defaults_that_keys_leave_out_are_what_they_were() -> None:
    """Keys name only what differs from these: to change one would make old runs pass for new."""
    defaults = {
        kind.__name__: {
            field.name: _FIRST_DEFAULTS.get(field.name, field.default)
            for field in fields(kind)
            if field.default is not MISSING
        }
        for kind in (Settings, Recipe, bignn.Sampling)
    }
    assert defaults == {
        "Settings": {
            **{"lr": 0.001, "weight_decay": 0.0, "beta1": 0.9, "last_layer_lr": 1.0},
            **{"epochs": 1000, "patience": 100, "select_by": "loss", "distill_mix": 0.9},
            **{"temperature": 1.0, "leave_teacher": False, "inductive": False, "sampling": None},
        },
        "Recipe": {
            **{"hidden_channels": 64, "num_layers": 2, "conv": "gcn", "heads": 1, "out_heads": 1},
            **{"K": 2, "jk": None, "binarize_head": False, "dropout": 0.0, "input_dropout": None},
            **{"attention_dropout": 0.0, "drop": "all", "balance": False, "scale_gradient": True},
            **{"norm": "none", "activation": "relu", "normalize_rows": True, "ste": "input"},
            **{"edge_bits": None, "input_bits": "sign"},
        },
        "Sampling": {"fan_outs": (), "walk_length": 2, "coverage": 50},
    }


def test_students_in_several_processes_share_a_teacher(tmp_path: Path) -> None:
    students = [replace(RUN, distill=True), replace(RUN, model="gcn", distill=True)]
    apart = do_runs(students, tmp_path / "two", jobs=2, progress=False)
    one_by_one = do_runs(students, tmp_path / "one", progress=False)
    assert [r["test_acc"] for r in apart] == [r["test_acc"] for r in one_by_one]
    assert len(list((tmp_path / "two" / "teachers").glob("*.safetensors"))) == 1


_SCRIPT = """
import sys
from pathlib import Path
from bignn.lab.study.run import _FIRST_DEFAULTS, Run
from bignn.lab.study.runs import do_runs
runs = [Run("cora", "bi-gcn", changes=(("epochs", 30),), seed=seed) for seed in range(6)]
do_runs(runs, Path(sys.argv[1]))
"""


def test_killed_at_any_moment_it_goes_on_where_it_was(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    before: list[str] = []
    for kills in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(tmp_path)], stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline and process.poll() is None:
            if file.exists() and len(file.read_text().splitlines()) > 2 * kills:
                break
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = file.read_text().splitlines()
        assert now[: len(before)] == before
        before = now
    assert 3 <= len(before) <= 6
    subprocess.run([sys.executable, "-c", _SCRIPT, str(tmp_path)], check=True, capture_output=True)
    lines = file.read_text().splitlines()
    assert lines[: len(before)] == before
    assert sorted(json.loads(line)["seed"] for line in lines) == list(range(6))


def test_a_graph_that_cannot_be_trained_on_is_refused_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = make_arrays()
    del arrays["val_idx"]
    bignn.save(Graph(**arrays, name="toy"), tmp_path / "toy.npz")
    with pytest.raises(InputError, match=r"toy.*training needs \['val_idx'\]"):
        do_runs(with_seeds(Run(str(tmp_path / "toy.npz"), "gcn"), range(3)), tmp_path / "out")
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "out").exists()


def test_a_device_that_is_not_there_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="'device' must be 'cpu' here, got 'cuda'"):
        do_runs([Run("cora", "gcn", seed=seed) for seed in range(3)], tmp_path / "o", device="cuda")
    assert capsys.readouterr().err == ""
    assert not (tmp_path / "o").exists()
