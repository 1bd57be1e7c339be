import json
from html import unescape
from pathlib import Path

import pytest

import bignn
from bignn.cli import main
from bignn.lab import demo
from bignn.lab.bench import timing


def test_demo_prints_its_table_and_writes_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whether other processes are busy decides nothing here; a round has one burst, its fastest.
    monkeypatch.setattr("bignn.lab.bench.other_load.OtherLoad.is_in_the_way", False)
    monkeypatch.setattr(
        "bignn.lab.bench.rounds.measure_sensibly",
        lambda contenders, log: timing.measure(contenders, rounds=1, warm_up=0),
    )
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--seeds", "1", "--epochs", "3", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["predictions_equal"]
    packed = bignn.open(report["written"]["packed"])
    assert isinstance(packed, bignn.PackedModel)
    plain, binary = report["rows"]
    # 64 columns of 23 words and 7 of one, each with a float32 scale.
    assert binary["model_bytes"] == 64 * (23 * 8 + 4) + 7 * (8 + 4)
    assert binary["data_bytes"] == 2708 * (23 * 8 + 4)
    graph = bignn.load("cora")
    sparse = bignn.pack_graph(graph, like=packed).feature_bytes
    assert report["sparse_kib"] == sparse / 1024 < binary["data_bytes"] / 1024
    assert plain["model_bytes"] == 4 * (1433 * 64 + 64 * 7) == 360 * 1024
    # Every ratio is of the rounds that its numbers are from, and the page has the same ones.
    ours, best, pyg = report["speeds"]
    ways = report["comparison"]["models"][0]["ways"]
    mine = report["comparison"]["models"][1]["ways"]["packed"]
    key = "fastest_ms" if report["machine_was_busy"] else "ms"
    fastest = min(ways, key=lambda way: float(ways[way][key]))
    for row, way in ((ours, mine), (best, ways[fastest]), (pyg, ways["pyg"])):
        assert (row["ms"], row["fastest_ms"]) == (way["ms"], way["fastest_ms"])
        assert row["times"] == way["ms"] / mine["ms"]
        assert row["fastest_times"] == way["fastest_ms"] / mine["fastest_ms"]
    page = unescape(Path(report["written"]["page"]).read_text())
    text = demo.describe(report)
    than = {"GCN's fastest float way": best, "PyG's layers on an edge index": pyg}
    for what, row in than.items():
        better = round(row["times"], 1) >= 1
        ratio = row["times"] if better else 1 / row["times"]
        card = f"{'faster' if better else 'slower'} than {what}</dt><dd>{ratio:.1f}x</dd>"
        assert card in page
        assert row["what"] in text
        assert f"{row['times']:.1f}x" in text and f"{row['fastest_times']:.1f}x" in text
    for busy in (True, False):
        told = demo.describe({**report, "machine_was_busy": busy})
        assert ("measure again when the machine is idle" in told) == busy
    many = [{**row, "test_acc": 81.26, "test_acc_std": 0.34} for row in report["rows"]]
    assert "81.3 ± 0.3 [81.4" in demo.describe({**report, "seeds": 3, "rows": many})
    for folder in report["written"]["checkpoints"]:
        assert bignn.load_model(Path(folder) / "seed-0.safetensors") is not None
    assert main(["demo", "--out", str(out), "--seeds", "1", "--epochs", "3"]) == 0
    table = capsys.readouterr().out
    assert "GCN (float)" in table
    assert "1 seed;" in table
    (accuracies,) = [line for line in table.splitlines() if line.startswith("test accuracy, %")]
    assert accuracies.count("±") == 2  # the paper's; one seed has no deviation
    assert "[81.2 ± 0.8]" in table
    assert "equal torch's on every node" in table
    assert "Without torch" in table
