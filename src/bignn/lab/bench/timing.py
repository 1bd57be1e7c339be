"""Times contenders side by side, so that noise hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

# Thread pools keep spinning for a while after their last job, and caches hold the last contender's
# data. So a contender begins after a pause in which all pools fall asleep (on a virtual machine of
# two cores torch's take over 40 ms, and the next contender then has one core), and is called for
# this long in a row, at least twice, and the first half is not counted; only calls so long that
# none of this shows are made once.
_PAUSE_SECONDS = 0.15
_BURST_SECONDS = 0.02
_BURST_CALLS = 200
_LONG_CALL = 0.5

# A contender that takes so many times what the second fastest takes is far behind: its ratio needs
# no third digit, and its calls would take most of the time. Shorter first calls than so many
# seconds do not tell: libraries allocate and choose their code in them.
_FAR_BEHIND = 4.0
_TELLING_SECONDS = 2.0
_ROUNDS_FAR_BEHIND = 2

# Seconds of the rounds of those who are not, unless three rounds take longer.
_BUDGET = 10.0


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
    most_rounds: Mapping[str, int] = MappingProxyType({}),
    pause: float = 0.0,
) -> dict[str, Seconds]:
    """Measure the seconds per call of each contender; they take turns, a burst of calls each.

    Args:
        contenders: name -> call.
        rounds: how many turns each gets.
        warm_up: turns before that.
        budget: seconds after which no further round begins (there are at least three).
        most_rounds: name -> turns of a contender that gets fewer, no warm-up, and no part of the
            budget.
        pause: seconds of sleep before each turn.

    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    bursts: dict[str, list[float]] = {name: [] for name in contenders}
    spent = 0.0
    for number in range(-warm_up, rounds):
        if number >= 3 and spent > budget:
            break
        for name, call in contenders.items():
            if name in most_rounds and not 0 <= number < most_rounds[name]:
                continue
            begin = time.perf_counter()
            time.sleep(pause)
            taken = _burst(call)
            if number >= 0:
                spent += 0.0 if name in most_rounds else time.perf_counter() - begin
                samples[name] += taken
                bursts[name].append(statistics.median(taken))
    return {
        name: Seconds(statistics.median(taken), min(bursts[name]))
        for name, taken in samples.items()
    }


def measure_sensibly(
    contenders: Mapping[str, Callable[[], object]], log: Callable[[str], None]
) -> dict[str, Seconds]:
    """Call :func:`measure` with as many rounds as fit in some seconds.

    There are three rounds at least; contenders that are far behind in their first calls take part
    in two of them. ``log`` is called with a line on what is to come.
    """
    first: dict[str, float] = {}
    for name, call in contenders.items():
        begin = time.perf_counter()
        call()
        first[name] = time.perf_counter() - begin
    log("first calls: " + ", ".join(f"{name} {took:.3g} s" for name, took in first.items()))
    few = dict.fromkeys(_far_behind(first), _ROUNDS_FAR_BEHIND)
    if few:
        log(f"far behind, hence {_ROUNDS_FAR_BEHIND} rounds: {', '.join(few)}")
    close = [took for name, took in first.items() if name not in few]
    # Calls that long have been warmed up by the first.
    warm_up = 0 if max(close) > _LONG_CALL else 1
    pause = _PAUSE_SECONDS if max(close) < _LONG_CALL else 0.0
    return measure(
        contenders, rounds=41, warm_up=warm_up, budget=_BUDGET, most_rounds=few, pause=pause
    )


def _far_behind(seconds: Mapping[str, float]) -> list[str]:
    """Name the contenders that are far behind the second fastest."""
    if len(seconds) < 2:
        return []
    limit = max(_TELLING_SECONDS, _FAR_BEHIND * sorted(seconds.values())[1])
    return [name for name, taken in seconds.items() if taken > limit]


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
