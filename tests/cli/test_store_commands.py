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
    for flags in (["--order", "locality"], ["--nodes", "0,5"], ["--device", "cuda"]):
        fails(capsys, f"{flags[0]} must be left out for a store, got '{flags[1]}'",
              "predict", "m.bignn", "store", *flags)  # fmt: skip
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
    run(capsys, "pack-edges", "edges.npy", "-o", "s", "--nodes", "101")
    fails(capsys, "has features of 100 nodes and edges of 101", "train", "s")


def test_what_is_replaced_gets_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def notes(*command: str) -> list[str]:
        assert main([*command, "-o", "s"]) == 0
        lines = capsys.readouterr().err.splitlines()
        return [line for line in lines if line.startswith("note:")]

    def note(kind: str) -> str:
        return f"note: 's' has {kind} of other inputs or options already, which this run replaces"

    np.save("x.npy", dense_features(100, 9))
    np.save("edges.npy", IDS.reshape(50, 2))
    np.savez("labels.npz", y=IDS % 3)
    features = ["pack-features", "x.npy", "--labels", "labels.npz"]
    for _ in range(2):  # the same again is no news
        assert notes(*features) == []
        assert notes("pack-edges", "edges.npy", "--nodes", "100") == []
    np.savez("labels.npz", y=IDS % 4)
    assert notes(*features, "--normalize-rows") == [note("features"), note("labels")]
    assert notes("pack-edges", "edges.npy", "--nodes", "101") == [note("edges")]
    synth = ["synth", "cora", "--scale", "0.1"]
    assert notes(*synth) == [note("features"), note("edges"), note("labels")]
    assert notes(*synth) == []


IDS = np.arange(100)


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        ({"train_idx": np.array([5, 100])}, "'train_idx' must be a node id in 0..99, got 100"),
        ({"y": np.where(IDS == 7, -1, 0), "val_idx": IDS},
         "'val_idx' must be labelled nodes only, got node 7, whose y is -1"),
        ({"train_idx": IDS[:50], "val_idx": IDS[49:]},
         "'val_idx' must be disjoint from the other splits, got node 49 in two of them"),
        ({"train_idx": IDS[[3, 3]]}, "'train_idx' must be free of repetitions, got node 3"),
        ({"train_idx": IDS[:0]}, "'train_idx' must be at least one node"),
        ({"train_idx": IDS / 2}, "'train_idx' must be a vector of node ids, got float64"),
        ({"train_mask": IDS < 50}, "must hold 'train_idx', got 'train_mask'; instead of a mask"),
        ({"y": IDS[:99]}, "'y' must be a class per node (100), got 99"),
        ({"y": IDS - 5}, "'y' is -5 in row 0, expected -1 or more"),
        ({"y": None}, "must hold 'y', a class per node, got none; add it to the file"),
    ],
)  # fmt: skip
def test_wrong_labels_are_refused_when_packed(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arrays: dict[str, object],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", dense_features(100, 9))
    given = {"y": np.zeros(100, dtype=np.int64), **arrays}
    np.savez("labels.npz", **{key: held for key, held in given.items() if held is not None})  # type: ignore[arg-type]
    command = ["pack-features", "x.npy", "-o", "s", "--labels", "labels.npz"]
    fails(capsys, line, *command)
    assert not Path("s").exists()  # refused before anything is packed


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
