"""PyG's table: a row for each class, written from the ledger, resumed where it was stopped."""

import inspect
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyg_page
import pyg_table
import pytest
import torch
import torch_geometric
import torch_geometric.nn as pyg
from pyg_page import BEGIN, END, newest, shortened, table, with_table
from pyg_rows import Row, missing_package, rows
from torch_geometric.data import Data

import bignn
from bignn.lab.study.ledger import Ledger

NODES = 40


def make_data() -> Data:
    """A graph whose first column tells the class."""
    random = np.random.default_rng(0)
    y = torch.from_numpy(random.integers(0, 2, NODES))
    x = torch.from_numpy(random.random((NODES, 20))).float()
    x[:, 0] = y
    data = Data(x, torch.from_numpy(random.integers(0, NODES, (2, 120))), y=y)
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.arange(NODES) % 3 == number
    return data


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = bignn.get_num_threads()
    bignn.set_num_threads(1)
    yield
    bignn.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore:Sparse")  # torch's, of GraphUNet
def test_every_class_of_pyg_has_a_row_that_runs_or_says_why_not() -> None:
    kinds = {"convolution": pyg.conv, "model": pyg.models, "norm": pyg.norm}
    for kind, module in kinds.items():
        classes = {name for name in module.__all__ if inspect.isclass(getattr(module, name))}
        assert classes == {row.class_name for row in rows().values() if row.kind == kind}
    data = make_data()
    for row in rows().values():
        assert (row.build is None) == bool(row.reason), row.name
        if row.build is None:
            continue
        with suppress(ImportError):  # of packages that some classes need
            assert row.build(data)(data.x, data.edge_index).shape == (NODES, 2), row.name


def test_a_new_class_has_a_row_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    class NewConv(pyg.GCNConv):  # type: ignore[misc]
        pass

    class OddConv(pyg.GCNConv):  # type: ignore[misc]
        def __init__(self, in_channels: int, out_channels: int, spin: float) -> None:
            super().__init__(in_channels, out_channels)

    for kind in (NewConv, OddConv):
        monkeypatch.setattr(pyg.conv, kind.__name__, kind, raising=False)
    monkeypatch.setattr(pyg.conv, "__all__", [*pyg.conv.__all__, "NewConv", "OddConv"])
    found = rows.__wrapped__()
    data = make_data()
    build = found["NewConv"].build
    assert build is not None
    assert build(data)(data.x, data.edge_index).shape == (NODES, 2)
    assert found["OddConv"].reason == "needs 'spin'"


def test_a_package_that_a_class_needs_is_named() -> None:
    def build(_: Data) -> Any:
        raise ModuleNotFoundError("'SomeConv' requires 'some-package'")

    some = Row("SomeConv", "convolution", build)
    assert missing_package(some) == "'SomeConv' requires 'some-package'"
    assert missing_package(rows()["GCNConv"]) == missing_package(rows()["XConv"]) == ""


def test_the_page_has_the_table_of_the_ledger() -> None:
    records = Ledger(pyg_table.LEDGER).read()
    page = pyg_table.PAGE.read_text()
    assert page == with_table(page, records), "python benchmarks/pyg_table.py --seeds 0 --write"
    names = {record["row"] for record in records}
    if {record["pyg"] for record in records} == {torch_geometric.__version__}:
        assert names == set(rows())


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command on a small graph, with a page of its own."""
    page = tmp_path / "models.md"
    page.write_text(f"above\n{BEGIN}\nold\n{END}\nbelow\n")
    monkeypatch.setattr(pyg_table, "PAGE", page)
    monkeypatch.setattr(pyg_table, "graph_data", lambda name, device: make_data())
    monkeypatch.setattr(pyg_table, "keep_memory", lambda: None)  # of this process, for good

    def run(*arguments: str) -> list[dict[str, Any]]:
        ledger = tmp_path / "runs.jsonl"
        given = ["pyg_table.py", "--graphs", "small", "--ledger", str(ledger), *arguments]
        monkeypatch.setattr(sys, "argv", given)
        pyg_table.main()
        return Ledger(ledger).read()

    return run


def test_a_row_is_trained_packed_and_written_once(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--only", "GCNConv", "XConv", "--epochs", "2"]
    records = command(*only, "--seeds", "1", "--write")
    reason, *runs = records
    assert reason["reason"] == "needs positions: point clouds"
    assert [run["way"] for run in runs] == ["float", "binary", "distilled"]
    assert [run.get("equal") for run in runs] == [None, NODES, NODES]
    assert "GCNConv small seed 0: float" in capsys.readouterr().err
    page = (tmp_path / "models.md").read_text()
    means = " / ".join(f"{run['test']:.1f}" for run in runs)
    smaller = f"{runs[1]['smaller']:.1f}x"
    assert f"| `GCNConv` | yes | yes | 80 / 80 | {smaller} | {means} |  |" in page
    assert "| `XConv` | – | – | – | – | – | needs positions: point clouds |" in page
    assert page.startswith("above\n") and page.endswith("\nbelow\n")

    ledger = tmp_path / "runs.jsonl"
    ledger.write_bytes(ledger.read_bytes().rstrip()[:-9])  # killed while it wrote the last run
    records = command(*only, "--seeds", "1")
    assert [run["way"] for run in records[3:]] == ["distilled"]
    assert {**records[3], "seconds": 0} == {**runs[2], "seconds": 0}
    assert command(*only, "--seeds", "1") == records
    assert command(*only, "--seeds", "2", "--minutes", "-1") == records
    assert [run["seed"] for run in command(*only, "--seeds", "2")[4:]] == [1, 1, 1]


def test_what_does_not_work_is_a_record_too(
    command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise bignn.InputError("'model' is not liked; do something else")

    monkeypatch.setattr(bignn, "fit", broken)
    records = command("--only", "EdgeConv", "--seeds", "1", "--epochs", "1", "--write")
    assert records[2]["error"] == "'model' is not liked; do something else"
    [line] = [x for x in (tmp_path / "models.md").read_text().splitlines() if "EdgeConv" in x]
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[2:5] == ["yes", "no", "–"]
    assert cells[-2].endswith(
        "no packed operation does what EdgeConv does; small: 'model' is not liked"
    )
    slow = command("--only", "GCNConv", "--seeds", "2", "--slow", "0", "--epochs", "1")[3:]
    assert [record["error"].split(":")[0] for record in slow] == ["not measured"] * 2
    assert len(command("--only", "GCNConv", "--seeds", "3", "--epochs", "1")) == 5


def test_runs_of_another_machine_replace_those_of_their_cells(
    command: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--only", "GCNConv", "XConv", "--epochs", "1"]
    old = command(*only, "--seeds", "2")
    newer = [run | {"test": 99.0} for run in old if run.get("way") == "binary"][:1]
    (tmp_path / "new.jsonl").write_text(f"{json.dumps(newer[0])}\n")
    merged = command("--seeds", "0", "--merge", str(tmp_path / "new.jsonl"), "--write", *only)
    assert merged == [*(run for run in old if run.get("way") != "binary"), *newer]
    assert "1 records merged" in capsys.readouterr().err
    assert " / 99.0 (1) / " in (tmp_path / "models.md").read_text()
    with pytest.raises(SystemExit):
        command("--merge", str(tmp_path / "none.jsonl"))


def test_a_run_waits_for_memory_of_a_gpu(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that gets none is no record: it is left to do."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    fit = bignn.fit
    calls: list[int] = []

    def full(*args: Any, **options: Any) -> Any:
        calls.append(len(calls))
        if len(calls) <= 2:
            raise torch.OutOfMemoryError("none left")
        return fit(*args, **options)

    monkeypatch.setattr(bignn, "fit", full)
    only = ["--only", "GCNConv", "--seeds", "1", "--epochs", "1"]
    assert [run["way"] for run in command(*only)] == ["float", "binary", "distilled"]
    assert waited == list(pyg_table._WAITS[:2])

    def never(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(bignn, "fit", never)
    assert len(command("--only", "SAGEConv", "--seeds", "1", "--epochs", "1")) == 5
    monkeypatch.setattr(bignn, "fit", fit)
    again = command("--only", "SAGEConv", "--seeds", "1", "--epochs", "1")
    assert [run["way"] for run in again[3:]] == ["float", "binary", "distilled"]


def test_the_newest_record_counts_and_fewer_seeds_are_told() -> None:
    def record(seed: int, test: float, way: str = "float", graph: str = "cora") -> dict[str, Any]:
        names = {"row": "AConv", "kind": "convolution", "graph": graph, "way": way, "seed": seed}
        return {**names, "test": test, "epochs": 5, "pyg": "9", "seconds": 1, "smaller": 2.0}

    runs = [record(0, 1.0), record(0, 80.0), record(1, 90.0), record(0, 70.0, "binary")]
    text = table(runs)
    assert "| 85.0 / 70.0 (1) / – |" in text
    assert "Seeds: 2 of cora" in text
    gone = {"row": "AConv", "kind": "convolution", "reason": "needs a package", "pyg": "9"}
    assert "| needs a package |" in table([*runs, gone])
    assert len(newest([gone, *runs])) == 3
    assert "needs a package" not in table([gone, *runs])
    # Of a row that has only shorter runs, no accuracy is told.
    tried = [run | {"row": "BConv", "epochs": 2} for run in runs]
    text = table([*tried, *runs])
    assert "| `BConv` | yes | no | – | 2.0x | – / – / – |" in text
    assert "1 rows without accuracies" in text
    assert "| 85.0 / 70.0 (1) / – |" in text


def test_messages_are_shortened() -> None:
    long = "the model cannot be packed: no packed operation does what EdgeConv 'a.conv2' of x | y"
    assert shortened(f"{long} does; it runs in torch\nmore") == (
        "no packed operation does what EdgeConv of x / y does"
    )
    assert shortened("what 'detach' in B 'a' (line 3 of file.py) does; sums do") == (
        "what 'detach' in B does"
    )
    cut = shortened("word " * 50)
    assert len(cut) <= pyg_page._LONGEST + 2 and cut.endswith("word …")
