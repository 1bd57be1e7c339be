"""Times contenders side by side, so that noise hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

# Thread pools keep spinning for a while after their last job, and caches hold the last contender's
# data. So each contender is called for this long in a row, at least twice, and the first half is
# not counted; only calls so long that none of this shows are made once.
_BURST_SECONDS = 0.02
_BURST_CALLS = 200
_LONG_CALL = 2.0


class Seconds(NamedTuple):
    """Seconds of a call: the median, and that of the fastest burst, nearer to an idle machine."""

    median: float
    fastest: float


def measure(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 11,
    warm_up: int = 2,
    budget: float = float("inf"),
) -> dict[str, Seconds]:
    """Measure the seconds per call of each contender; they take turns, a burst of calls each.

    Args:
        contenders: name -> call.
        rounds: how many turns each gets.
        warm_up: turns before that.
        budget: seconds after which no further round begins (there are at least three).

    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    bursts: dict[str, list[float]] = {name: [] for name in contenders}
    start = time.perf_counter()
    for number in range(-warm_up, rounds):
        if number == 0:
            start = time.perf_counter()
        if number >= 3 and time.perf_counter() - start > budget:
            break
        for name, call in contenders.items():
            taken = _burst(call)
            if number >= 0:
                samples[name] += taken
                bursts[name].append(statistics.median(taken))
    return {
        name: Seconds(statistics.median(taken), min(bursts[name]))
        for name, taken in samples.items()
    }


def measure_sensibly(contenders: Mapping[str, Callable[[], object]]) -> dict[str, Seconds]:
    """Call :func:`measure` with as many rounds as fit in some seconds, three at least."""
    begin = time.perf_counter()
    for call in contenders.values():
        call()
    once = time.perf_counter() - begin
    if once > 20:
        return measure(contenders, rounds=3, warm_up=0)
    return measure(contenders, rounds=41, warm_up=1, budget=max(10.0, 4 * once))


def _burst(call: Callable[[], object]) -> list[float]:
    """Return the seconds of each call in the second half of a burst, or of its only call."""
    taken: list[float] = []
    begin = time.perf_counter()
    while len(taken) < _BURST_CALLS and (
        time.perf_counter() - begin < (_BURST_SECONDS if len(taken) > 1 else _LONG_CALL)
    ):
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
    return taken[len(taken) // 2 :]
