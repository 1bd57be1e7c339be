"""What is counted of bursts, and which float way is the best."""

import time
from itertools import chain, repeat

import pytest

from bignn.lab.bench.suites import _speeds
from bignn.lab.bench.timing import Seconds, _burst, measure


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
