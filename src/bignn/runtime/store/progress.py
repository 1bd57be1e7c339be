"""Progress of long work on stderr: a line every few seconds, with the time that is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_EVERY = 5.0


class ProgressLines:
    """Lines about work of a known size.

    Args:
        what: what is done, for the lines.
        total: its size in any unit.
        done: what an earlier run did already.
        is_shown: whether there are lines at all.

    """

    def __init__(self, what: str, total: float, done: float = 0, *, is_shown: bool = True) -> None:
        self.what, self.total, self.done = what, total, done
        self._begun_with, self._is_shown = done, is_shown
        self._start = self._last = time.monotonic()

    def add(self, amount: float) -> None:
        """Count work that is done, and write a line now and then."""
        self.done += amount
        now = time.monotonic()
        if not self._is_shown or now - self._last < _EVERY or not self.total:
            return
        self._last = now
        line = f"{self.what}: {100 * self.done / self.total:.0f} %"
        if (made := self.done - self._begun_with) > 0:
            left = (now - self._start) / made * (self.total - self.done)
            line += f", {duration(left)} left"
        print(line, file=sys.stderr, flush=True)


def files_report(files: Sequence[Path]) -> dict[str, Any]:
    """Return the part of a report that shows in which order files were read."""
    return {"num_files": len(files), "first_file": files[0].name, "last_file": files[-1].name}


def describe_files(report: dict[str, Any]) -> str:
    """Format :func:`files_report` as a line; nothing for one file."""
    if report["num_files"] == 1:
        return ""
    return (
        f"read {report['num_files']} files in natural order, '{report['first_file']}' to "
        f"'{report['last_file']}'\n"
    )


def duration(seconds: float) -> str:
    """Format a duration: ``42 s``, ``3 min 5 s``, ``2 h 10 min``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
