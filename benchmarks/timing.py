"""Timing contenders side by side: warmed up, interleaved, medians, so that noise hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def medians(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int = 21, warm_up: int = 3
) -> dict[str, float]:
    """Median seconds per call of each contender."""
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for round_number in range(warm_up + rounds):
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            if round_number >= warm_up:
                samples[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in samples.items()}
