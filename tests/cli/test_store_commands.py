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
    assert main(["train", "store", "--distill"]) == 2
    assert capsys.readouterr().err.strip().endswith("--distill must be left out for a store")
    fails(capsys, "a store's folder ('bignn pack-features' makes one)", "predict", "m.bignn", "no")
    fails(capsys, "a store's folder", "predict", "m.bignn", "./no")
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
    fails(capsys, "'s' has features of 100 nodes, got edges of 101; give 100, or another folder, "
          "or remove 's/features.json' to replace both",
          "pack-edges", "edges.npy", "-o", "s", "--nodes", "101")  # fmt: skip
    assert Store("s", verify=True).num_edges == 500  # as it was
    np.save("more.npy", dense_features(101, 9))
    more = ("pack-features", "more.npy", "-o", "s")
    fails(capsys, "'s' has edges of 100 nodes, got features of 101", *more)
    Path("s/edges.json").unlink()  # edges are to be replaced
    run(capsys, *more)
    run(capsys, "pack-edges", "edges.npy", "-o", "s", "--nodes", "101")
    manifest = Path("s/edges.json")
    manifest.write_text(manifest.read_text().replace('"num_nodes": 101', '"num_nodes": 100'))
    fails(capsys, "has features of 101 nodes and edges of 100", "train", "s")


def test_shards_are_read_in_natural_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    x = dense_features(120, 9)
    np.save("x.npy", x)
    Path("shards").mkdir()
    for number in range(12):
        np.save(f"shards/part-{number}.npy", x[10 * number : 10 * (number + 1)])
    run(capsys, "pack-features", "x.npy", "-o", "whole")
    assert main(["pack-features", "shards", "-o", "s"]) == 0
    line = "read 12 files in natural order, 'part-0.npy' to 'part-11.npy'"
    assert line in capsys.readouterr().out
    assert Path("s/bits.npy").read_bytes() == Path("whole/bits.npy").read_bytes()
    assert Path("s/beta.npy").read_bytes() == Path("whole/beta.npy").read_bytes()


def test_text_that_may_be_cut_off_gets_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for end, is_noted in (("", True), ("\n", False), ("\r\n", False)):
        Path("edges.csv").write_bytes(f"1,2\n295,57{end}".encode())
        assert main(["pack-edges", "edges.csv", "-o", "s", "--nodes", "600"]) == 0
        note = "note: 'edges.csv' does not end with a newline: was it cut off?"
        assert (note in capsys.readouterr().err) == is_noted


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
    assert notes("pack-edges", "edges.npy", "--nodes", "100", "--undirected") == [note("edges")]
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
