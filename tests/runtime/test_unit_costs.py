"""Unit costs: built-in ones, and those that were measured on this machine and kept."""

import json
import math
from pathlib import Path

import pytest

from bignn.cli import main
from bignn.cost import units
from bignn.errors import FileError
from bignn.kernels import native
from bignn.runtime import unit_costs
from bignn.runtime.unit_costs import BUILT_IN, UNITS, are_kept, keep, kept_path, units_of


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    unit_costs._kept.cache_clear()


def test_every_instruction_set_has_every_unit() -> None:
    assert set(BUILT_IN) == set(native.KNOWN_INSTRUCTION_SETS)
    for built_in in BUILT_IN.values():
        assert tuple(built_in) == UNITS
        assert all(0 < cost < 1e-6 for cost in built_in.values())


def test_measured_costs_are_kept_per_instruction_set_and_threads() -> None:
    assert units_of("avx2", 2) == BUILT_IN["avx2"]
    measured = {unit: 2 * cost for unit, cost in BUILT_IN["avx2"].items()}
    assert keep("avx2", 2, measured) == kept_path()
    assert units_of("avx2", 2) == measured
    assert are_kept("avx2", 2)
    for other in (("avx2", 1), ("avx512", 2)):
        assert not are_kept(*other)
        assert units_of(*other) == BUILT_IN[other[0]]
    keep("avx512", 2, BUILT_IN["portable"])
    assert units_of("avx2", 2) == measured


def test_costs_of_another_cpu_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {unit: 2 * cost for unit, cost in BUILT_IN["avx2"].items()}
    keep("avx2", 2, measured)
    monkeypatch.setattr(unit_costs, "_cpu", lambda: "another CPU, the same home folder")
    assert not are_kept("avx2", 2)
    assert units_of("avx2", 2) == BUILT_IN["avx2"]
    keep("avx2", 2, BUILT_IN["avx2"])
    assert len(json.loads(kept_path().read_text())) == 2


def test_damaged_costs_count_as_not_measured() -> None:
    good = BUILT_IN["avx2"]
    kept_path().parent.mkdir(parents=True)
    cases: tuple[object, ...] = (
        {**good, "xnor": math.nan},
        {**good, "xnor": -1.0},
        {**good, "xnor": 0},
        {"xnor": 1.0},
        {**good, "more": 1.0},
        [],
        None,
    )
    for wrong in cases:
        of_threads = {unit_costs._key("avx2", 2): wrong, unit_costs._key("avx2", 1): good}
        kept_path().write_text(json.dumps(of_threads))
        unit_costs._kept.cache_clear()
        assert not are_kept("avx2", 2)
        assert are_kept("avx2", 1)
    for text in ("", "[]", "{", "[" * 100_000):
        kept_path().write_text(text)
        unit_costs._kept.cache_clear()
        assert units_of("avx2", 2) == good


def test_costs_that_cannot_be_kept_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    match = r"cache/bignn' cannot be made, to keep unit costs in: Not a directory; set XDG_CACHE"
    with pytest.raises(FileError, match=match):
        keep("avx2", 2, BUILT_IN["avx2"])


@pytest.mark.skipif(not native.is_available(), reason="there is nothing to measure")
def test_the_doctor_measures_keeps_and_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = (units._Shape(300, 5, (150, 64, 8), ("TT", "ST"), ones=10),)
    monkeypatch.setattr(units, "_SHAPES", small)
    assert main(["doctor", "--threads", "1"]) == 0
    assert "unit costs for 1 threads, in ns (built in)" in capsys.readouterr().out
    assert not kept_path().exists()
    assert main(["doctor", "--threads", "1", "--calibrate", "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["unit_costs_are_measured"]
    assert report["unit_costs"] == units_of(report["backend"], 1) != BUILT_IN[report["backend"]]
    assert f"kept in {kept_path()}" in captured.err
