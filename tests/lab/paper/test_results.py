"""What a results folder holds, and how it compares with the paper."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bignn.errors import FileError
from bignn.lab.paper.results import _OF_CAPACITY, Results, Summary
from bignn.lab.paper.significance import verdict, welch
from bignn.lab.study.ledger import Ledger
from bignn.lab.study.run import RUNS, Run

ROW = Run("cora", "gcn")


def record(seed: int, test: float | None, recipe: str = "a", **more: Any) -> dict[str, Any]:
    return {
        **{"row": ROW.row, "dataset": "cora", "seed": seed, "recipe": recipe},
        **{"val_acc": 80.0 + seed, "test_acc": test, **more},
        **{"machine": "m", "version": "0", "torch": "2"},
    }


def results(folder: Path, *records: dict[str, Any]) -> Results:
    for one in records:
        Ledger(folder / RUNS).append(one)
    return Results(folder)


def test_a_row_is_the_mean_of_its_seeds(tmp_path: Path) -> None:
    found = results(tmp_path, record(1, 82.0), record(0, 81.0), record(2, 86.0)).of(ROW)
    assert found is not None
    assert found.mean == 83.0
    assert found.std == statistics.stdev([81, 82, 86])
    assert found.val == 81.0
    assert found.plus_minus() == "83.0 ± 2.6"
    assert found.plus_minus(2) == "83.00 ± 2.65"
    assert Summary((81.0,), 0.0).plus_minus() == "81.0"
    assert Results(tmp_path).of(Run("cora", "bi-gcn")) is None


def test_the_newest_recipe_of_a_row_counts_alone(tmp_path: Path) -> None:
    found = results(tmp_path, record(0, 50.0), record(1, 50.0), record(0, 81.0, "b")).of(ROW)
    assert found is not None
    assert found.test == (81.0,)
    again = results(tmp_path, record(0, 82.0, "b")).of(ROW)  # a seed that was run twice
    assert again is not None
    assert again.test == (82.0,)
    back = results(tmp_path, record(0, 51.0)).of(ROW)  # the first recipe is meant again
    assert back is not None
    assert back.test == (51.0, 50.0)


def test_without_a_test_split_there_is_nothing_to_compare(tmp_path: Path) -> None:
    assert results(tmp_path, record(0, None)).of(ROW) is None


def test_welch_is_that_of_samples() -> None:
    """The test from means and deviations is the one that SciPy makes of the samples themselves."""
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(81, 0.5, 20), rng.normal(81.5, 1.0, 10)
    expected = stats.ttest_ind(ours, theirs, equal_var=False).pvalue
    paper = (float(theirs.mean()), float(theirs.std(ddof=1)))
    assert welch(Summary(tuple(ours), 0.0), paper, runs=10) == pytest.approx(expected)


def test_verdicts() -> None:
    for test, paper, expected, tone in (
        ((83.0, 83.4, 83.2), (81.0, 0.5), "higher (p = ", "good"),
        ((82.5, 80.0, 81.9), (81.0, 0.5), "within noise (p = ", "even"),
        ((80.0, 82.5, 79.0), (81.0, 0.5), "within noise (p = ", "even"),
        ((79.0, 79.1, 79.05), (81.0, 0.5), "lower (p = ", "poor"),
        ((81.0, 81.0), (81.0, 0.0), "equal as printed", "even"),
        ((80.96, 80.96), (81.0, 0.0), "equal as printed", "even"),
        ((81.03, 81.031, 81.032), (81.0, 0.01), "equal as printed", "even"),
        ((81.06, 81.061, 81.062), (81.0, 0.01), "higher (p = ", "good"),
        ((80.9, 80.9), (81.0, 0.0), "lower; nothing varies", "poor"),
        ((81.1, 81.1), (81.0, 0.0), "higher; nothing varies", "good"),
        ((80.0,), (81.0, 0.5), "lower; one seed", "even"),
    ):
        found = verdict(Summary(test, 0.0), paper)
        assert found.startswith(expected)
        assert getattr(found, "tone", None) == tone


def test_what_is_missing_has_no_verdict() -> None:
    assert verdict(None, (81.0, 0.5)) == verdict(Summary((81.0,), 0.0), None) == ""


def test_documents_of_other_commands(tmp_path: Path) -> None:
    (tmp_path / "bench-1.json").write_text(json.dumps({"rows": [{"shape": "a"}]}))
    (tmp_path / "bench-2.json").write_text(json.dumps({"rows": [{"shape": "b"}]}))
    capacity = {**dict.fromkeys(_OF_CAPACITY), "widths": [4]}
    (tmp_path / "capacity-cora.json").write_text(json.dumps(capacity))
    found = Results(tmp_path)
    assert [row["shape"] for row in found.bench] == ["a", "b"]
    assert found.capacity == [capacity]
    assert not found.is_empty


def test_what_is_broken_is_named(tmp_path: Path) -> None:
    for number, (name, text, line) in enumerate(
        (
            ("bench.json", "{", "is not a JSON document"),
            ("bench.json", "[]", "is not what this version's 'bignn bench --json' prints"),
            (
                "capacity.json",
                '{"dataset": "a"}',
                "'bignn capacity --json' prints .it has no 'name'",
            ),
            (RUNS, '{"row": "a"}\n', "record 1 has no valid 'dataset'"),
            (RUNS, json.dumps(record(0, float("nan"))) + "\n", "no valid 'test_acc'"),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / name).write_text(text)
        with pytest.raises(FileError, match=line):
            Results(folder)
