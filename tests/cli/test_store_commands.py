"""The commands of stores, and processes that are killed in the middle of them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from small_stores import dense_features, file_bytes

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
    np.savez("labels.npz", y=y, train_idx=np.array([5, 100]))
    fails(capsys, "labels.npz': 'train_idx' names node 100 in row 1, expected 0..99",
          "pack-features", "x.npy", "-o", "s", "--labels", "labels.npz")  # fmt: skip
    run(capsys, "pack-edges", "edges.npy", "-o", "s", "--nodes", "101")
    fails(capsys, "has features of 100 nodes and edges of 101", "train", "s")


@pytest.mark.parametrize("kind", ["pack-features", "pack-edges", "synth"])
def test_killed_at_random_it_ends_with_the_same_bytes(tmp_path: Path, kind: str) -> None:
    """Kill the process some times; blocks are small and every one is recorded."""
    np.save(tmp_path / "x.npy", dense_features(60_000, 40))
    np.save(tmp_path / "e.npy", np.random.default_rng(0).integers(0, 5000, (400_000, 2)))
    commands = {
        "pack-features": ["pack-features", str(tmp_path / "x.npy")],
        "pack-edges": ["pack-edges", str(tmp_path / "e.npy"), "--nodes", "5000"],
        "synth": ["synth", "ogbn-arxiv", "--scale", "0.3"],
    }
    script = (
        "import sys\n"
        "from bignn.runtime.store import pack_features, pack_edges, synthetic, unfinished\n"
        "unfinished._RECORD_EVERY = 0.0\n"
        "pack_features._BLOCK_BYTES = 1\n"
        "pack_edges._MOST_AT_ONCE = pack_edges._FEWEST_AT_ONCE = 10_000\n"
        "pack_edges.memory_bytes = lambda *_, **__: 300_000\n"
        "synthetic._BLOCK_ROWS = 2048\n"
        "from bignn.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    def start(out: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", script, *commands[kind], "-o", str(tmp_path / out)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    assert start("whole").wait() == 0
    journal = "features" if kind == "pack-features" else "edges"
    rng, kills = np.random.default_rng(1), 0
    for _ in range(3):
        process = start("parts")
        # Wait until it works, then a random moment.
        place = tmp_path / "parts" / f"{journal}.journal.json"
        before = place.stat().st_mtime_ns if place.exists() else 0
        while process.poll() is None:
            if place.exists() and place.stat().st_mtime_ns != before:
                time.sleep(rng.uniform(0, 0.05))
                break
            time.sleep(0.002)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
    assert kills
    assert start("parts").wait() == 0
    assert file_bytes(tmp_path / "parts") == file_bytes(tmp_path / "whole")
