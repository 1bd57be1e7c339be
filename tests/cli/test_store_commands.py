"""The commands of stores, and processes that are killed in the middle of them."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_stores import dense_features
from store_kills import JOBS, kill_often, prepare

from bignn.cli import main
from bignn.runtime.store import Store


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def fails(capsys: pytest.CaptureFixture[str], line: str, *arguments: str) -> None:
    assert main([*arguments]) in (1, 2)
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert line in error, error


def test_from_synth_to_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = run(capsys, "synth", "papers100M", "--scale", "0.00002", "-o", "store")
    assert report["num_nodes"] == 2221
    options = ["--layers", "2", "--hidden", "16", "--epochs", "1", "--batch-size", "64"]
    trained = run(capsys, "train", "store", "--model", "bi-sage", *options)
    assert main(["pack", str(trained["checkpoint"]), "m.bignn"]) == 0
    capsys.readouterr()
    found = run(capsys, "predict", "m.bignn", "store", "--out", "p.npy", "--memory", "300M")
    assert np.load("p.npy").shape == (2221,)
    assert found["test_acc"] is not None
    assert main(["predict", "m.bignn", "store", "--out", "p.npy"]) == 0
    assert "2221 nodes and" in capsys.readouterr().out
    fails(capsys, "--out must be a file name ending in .npy", "predict", "m.bignn", "store")
    fails(capsys, "--memory must be left out but for a store", "predict", "m.bignn", "cora",
          "--memory", "1G")  # fmt: skip
    fails(capsys, "--order must be left out for a store", "predict", "m.bignn", "store",
          "--order", "locality")  # fmt: skip
    fails(capsys, "--distill must be left out for a store", "train", "store", "--distill")
    fails(capsys, "is a store, which is not read into memory", "capacity", "store")
    fails(capsys, "--scale must be above 0", "synth", "papers100M", "--scale", "0", "-o", "t")
    fails(capsys, "must be one of cora", "synth", "nothing", "-o", "t")


def test_own_features_edges_and_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", dense_features(100, 9))
    np.save("edges.npy", np.random.default_rng(0).integers(0, 100, (500, 2)))
    y = np.arange(100) % 3
    np.savez("labels.npz", y=y, train_idx=np.arange(50), val_idx=np.arange(50, 100))
    run(capsys, "pack-features", "x.npy", "-o", "s", "--labels", "labels.npz")
    run(capsys, "pack-edges", "edges.npy", "-o", "s", "--nodes", "100", "--memory", "64M")
    store = Store("s", verify=True)
    assert (store.y == y).all()
    assert store.num_edges == 500
    few = ["--model", "bi-sage", "--layers", "2", "--hidden", "8", "--epochs", "1"]
    run(capsys, "train", "s", *few)  # half of the nodes have labels
    fails(capsys, "--inductive must be left out for a store", "train", "s", *few, "--inductive")
    np.savez("labels.npz", y=y, train_idx=np.array([5, 100]))
    fails(capsys, "labels.npz': 'train_idx' names node 100 in row 1, expected 0..99",
          "pack-features", "x.npy", "-o", "s", "--labels", "labels.npz")  # fmt: skip
    run(capsys, "pack-edges", "edges.npy", "-o", "s", "--nodes", "101")
    fails(capsys, "has features of 100 nodes and edges of 101", "train", "s")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return prepare(tmp_path_factory.mktemp("inputs"))


@pytest.mark.parametrize("name", JOBS)
def test_killed_at_random_it_ends_with_the_same_files(
    tmp_path: Path, jobs: dict[str, list[str]], name: str
) -> None:
    killed, ended = kill_often(jobs[name], tmp_path, kills=3, seed=1)
    assert killed >= 3
    assert ended >= 1
