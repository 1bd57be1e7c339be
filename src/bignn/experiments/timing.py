"""Timing contenders side by side: warmed up, interleaved, medians, so that noise hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 21,
    warm_up: int = 3,
    budget: float = float("inf"),
) -> dict[str, float]:
    """Median seconds per call of each contender.

    Args:
        contenders: name -> call.
        rounds: how often each is called and timed.
        warm_up: how often before that.
        budget: seconds after which no further round begins (there are at least three).

    """
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(warm_up):
        for call in contenders.values():
            call()
    start = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - start > budget:
            break
        for name, call in contenders.items():
            begin = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - begin)
    return {name: statistics.median(taken) for name, taken in samples.items()}
