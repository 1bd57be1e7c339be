"""Counts and times of requests, and their text for Prometheus."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path

import numpy as np

#: Upper bounds of a histogram's bins, in seconds.
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
#: Requests whose times the page's percentiles are of.
_RECENT = 1000

Labels = Mapping[str, str]


class Timings:
    """Times of one kind of request: a histogram, and the last of them."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0
        self.recent: deque[float] = deque(maxlen=_RECENT)

    def add(self, seconds: float) -> None:
        """Count a request."""
        number = next((n for n, bound in enumerate(BOUNDS) if seconds <= bound), len(BOUNDS))
        self.counts[number] += 1
        self.total += seconds
        self.recent.append(seconds)

    def percentiles(self) -> dict[str, float]:
        """Return the median and the 99th percentile of recent requests, in milliseconds."""
        if not self.recent:
            return {}
        p50, p99 = 1e3 * np.percentile(self.recent, [50, 99])
        return {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}


class Metrics:
    """Requests since the start, by endpoint and status."""

    def __init__(self) -> None:
        self.started = time.time()
        self.requests: Counter[tuple[str, int]] = Counter()
        self.timings: dict[str, Timings] = {}

    def add(self, endpoint: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.requests[endpoint, status] += 1
        if endpoint not in self.timings:
            self.timings[endpoint] = Timings()
        self.timings[endpoint].add(seconds)

    def seconds(self) -> float:
        """Return the time since the start."""
        return time.time() - self.started

    def latency(self) -> dict[str, dict[str, float]]:
        """Return counts and percentiles of each endpoint."""
        return {
            endpoint: {"requests": sum(some.counts), **some.percentiles()}
            for endpoint, some in sorted(self.timings.items())
        }

    def text(self, gauges: Mapping[str, tuple[str, float]], counters: Mapping[str, int]) -> str:
        """Format all of it, and further numbers, in Prometheus's text format.

        Args:
            gauges: names with their description and value.
            counters: names, which say what is counted, with their value.

        """
        lines = _family(
            "bignn_requests_total",
            "counter",
            "Requests answered, by endpoint and HTTP status.",
            (
                ("", {"endpoint": endpoint, "status": str(status)}, count)
                for (endpoint, status), count in sorted(self.requests.items())
            ),
        )
        lines += _family(
            "bignn_request_seconds",
            "histogram",
            "Time from a request's head to its answer.",
            (
                sample
                for endpoint, some in sorted(self.timings.items())
                for sample in _histogram(endpoint, some)
            ),
        )
        for name, (about, value) in gauges.items():
            lines += _family(name, "gauge", about, [("", {}, value)])
        for name, count in counters.items():
            about = name.removeprefix("bignn_").removesuffix("_total").replace("_", " ")
            lines += _family(name, "counter", f"Number of {about}.", [("", {}, count)])
        return "".join(f"{line}\n" for line in lines)


def resident_bytes() -> int:
    """Return the memory that the process has in use; 0 where Linux does not tell."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _histogram(endpoint: str, some: Timings) -> Iterable[tuple[str, Labels, float]]:
    names = [*(format(bound, "g") for bound in BOUNDS), "+Inf"]
    for name, count in zip(names, accumulate(some.counts), strict=True):
        yield "_bucket", {"endpoint": endpoint, "le": name}, count
    yield "_sum", {"endpoint": endpoint}, some.total
    yield "_count", {"endpoint": endpoint}, sum(some.counts)


def _family(
    name: str, kind: str, about: str, samples: Iterable[tuple[str, Labels, float]]
) -> list[str]:
    """Format one metric; labels and descriptions hold nothing that would need escaping."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    for suffix, labels, value in samples:
        shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
        number = format(value, ".10g") if isinstance(value, float) else str(value)
        lines.append(f"{name}{suffix}{f'{{{shown}}}' if shown else ''} {number}")
    return lines
