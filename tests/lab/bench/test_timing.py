"""What is counted of bursts, and which float way is the best."""

import time
from collections.abc import Callable
from itertools import chain, repeat

import pytest

from bignn.lab.bench.suites import _speeds
from bignn.lab.bench.timing import Seconds, _burst, measure, measure_sensibly


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only the test moves: its first entry."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


def test_the_first_half_of_a_burst_is_not_counted(clock: list[float]) -> None:
    turns = chain([0.009], repeat(0.001))  # a burst lasts 20 ms: a slow call, then fast ones

    def call() -> None:
        clock[0] += next(turns)

    # One burst, so that what is counted of it is all there is.
    found = measure({"one": call}, rounds=1, warm_up=0)["one"]
    assert found.median == pytest.approx(0.001)
    assert found.fastest == pytest.approx(0.001)
    assert max(_burst(call)) == pytest.approx(0.001)


def test_a_call_that_is_long_is_made_once(clock: list[float]) -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        clock[0] += 5.0

    assert measure({"one": call}, rounds=3, warm_up=0)["one"] == (5.0, 5.0)
    assert len(calls) == 3


def rounds_of(clock: list[float], seconds: dict[str, float]) -> tuple[dict[str, int], list[str]]:
    """Calls of each contender after the first, and what was said."""
    calls = dict.fromkeys(seconds, -1)
    said: list[str] = []

    def caller(name: str) -> Callable[[], None]:
        def call() -> None:
            calls[name] += 1
            clock[0] += seconds[name]

        return call

    found = measure_sensibly({name: caller(name) for name in seconds}, said.append)
    assert {name: taken.median for name, taken in found.items()} == pytest.approx(seconds)
    return calls, said


def test_who_is_far_behind_takes_part_in_two_rounds(clock: list[float]) -> None:
    seconds = {"packed": 0.6, "pyg": 30.0, "pyg_sparse": 1.0, "torch_sparse": 0.9}
    calls, said = rounds_of(clock, seconds)
    assert calls.pop("pyg") == 2
    assert said[-1] == "far behind, hence 2 rounds: pyg"
    # 10 seconds of rounds of the others, who all take part in each.
    assert set(calls.values()) == {5}
    assert clock[0] < 3 * 30 + 6 * 2.5 + 1


def test_nobody_is_far_behind_by_a_call_in_which_libraries_load(clock: list[float]) -> None:
    calls, said = rounds_of(clock, {"packed": 0.1, "torch_sparse": 0.2, "pyg": 1.9})
    assert calls["pyg"] > 3
    assert len(said) == 1


def test_two_long_contenders_have_three_rounds(clock: list[float]) -> None:
    calls, said = rounds_of(clock, {"packed": 10.0, "torch_sparse": 90.0})
    assert calls == {"packed": 3, "torch_sparse": 3}
    assert said == ["first calls: packed 10 s, torch_sparse 90 s"]


def test_speeds_are_against_the_fastest_float_way() -> None:
    row = _speeds(
        {
            "packed": Seconds(0.001, 0.0005),
            "pyg": Seconds(0.009, 0.004),
            "pyg_sparse": Seconds(0.004, 0.003),
            "torch_sparse": Seconds(0.003, 0.0025),
            "simulated": Seconds(0.002, 0.001),
        }
    )
    assert row["best_float"] == "torch_sparse"  # a simulation of the binary model is none
    assert row["best_float_ms"] == pytest.approx(3.0)
    assert row["speedup_vs_best_float"] == pytest.approx(3.0)
    assert row["fastest_speedup_vs_best_float"] == pytest.approx(5.0)
    assert row["speedup_vs_pyg"] == pytest.approx(9.0)
    assert row["fastest_speedup_vs_pyg"] == pytest.approx(8.0)
    assert row["speedup_vs_simulated"] == pytest.approx(2.0)
