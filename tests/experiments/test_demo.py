import json
from pathlib import Path

import pytest

import bignn
from bignn.cli import main


def test_demo_prints_its_table_and_writes_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    for folder in report["written"]["checkpoints"]:
        assert bignn.load_model(Path(folder) / "seed-0.safetensors") is not None
    assert main(["demo", "--out", str(out), "--seeds", "1", "--epochs", "3"]) == 0
    table = capsys.readouterr().out
    assert "GCN (float)" in table
    assert "[81.2 ± 0.8]" in table
    assert "equal torch's on every node" in table
    assert "Without torch" in table
