"""A series of predictions from stores that is killed goes on, and counts all that it took."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import store_common
import store_scale
import store_training

OPTIONS = {"scales": "64,32", "repeats": 2, "limit": 1.0, "model": "m.bignn", "memory": "1G"}
REPORT = dict.fromkeys(("num_nodes", "num_edges", "layers", "memory", "test_acc"), 1)
PEAKS = {"peak_anonymous_bytes": 1, "peak_file_bytes": 1}


def test_a_series_whose_predictions_are_all_killed_once_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[int] = []

    def ended(command: list[str], limit: float | None, spent: store_common.Spent) -> str | None:
        calls.append(1)
        spent.seconds += 10.0 * len(calls)
        spent.processor_seconds += 20.0
        if len(calls) % 2:
            return None
        Path(command[command.index("--out") + 1]).write_bytes(b"")
        return json.dumps(REPORT | PEAKS)

    def store_of(folder: Path, scale: int) -> Path:
        store = folder / f"store-{scale}"
        store.mkdir(exist_ok=True)
        return store

    recorded: dict[str, dict[str, Any]] = {}
    monkeypatch.setattr(store_common, "_ended", ended)
    monkeypatch.setattr(store_scale, "store_of", store_of)
    monkeypatch.setattr(store_scale, "drop_caches", lambda: None)
    monkeypatch.setattr(store_scale, "record", lambda _, key, row: recorded.update({key: row}))
    options = Namespace(folder=str(tmp_path), note="", remove=True, **OPTIONS)
    for _ in range(4):
        with pytest.raises(SystemExit, match="run it again"):
            store_scale.run_scales(options)
    store_scale.run_scales(options)
    assert list(recorded) == ["64", "32"]
    assert recorded["64"]["all_seconds"] == [30.0, 70.0]  # 10 + 20 and 30 + 40
    assert recorded["64"]["all_processor_seconds"] == [40.0, 40.0]
    assert recorded["32"]["seconds"] == 110.0
    assert recorded["32"]["kills"] == 1
    assert not list(tmp_path.iterdir())
    assert "max/min" in capsys.readouterr().out


def test_a_killed_command_counts_with_its_processor_time() -> None:
    spent = store_common.Spent()
    endless = [sys.executable, "-c", "while True: pass"]
    assert store_common._ended(endless, 0.5, spent) is None
    assert spent.seconds >= 0.5
    assert spent.processor_seconds > 0


def test_a_peak_is_never_replaced_by_a_smaller_one(tmp_path: Path) -> None:
    path = tmp_path / "0.peak.json"
    store_training._keep_peak(path, {"anonymous": 9, "file": 1})
    most = store_training._keep_peak(path, {"anonymous": 3, "file": 2})
    assert most == json.loads(path.read_text()) == {"anonymous": 9, "file": 2}
