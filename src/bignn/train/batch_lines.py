"""Progress of training on stderr: a line about batches or epochs every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

T = TypeVar("T")

#: Seconds between lines about a run where there is no terminal for a bar.
REPORT_EVERY = 10.0


class BatchLines:
    """Lines about a run's batches, and about its epochs, each ten seconds or more apart.

    Args:
        label: what the lines begin with.
        is_shown: whether there are lines at all.

    """

    def __init__(self, label: str, *, is_shown: bool) -> None:
        self.label, self.is_shown = label, is_shown
        self._last_batch = self._last_epoch = time.monotonic()

    def watched(self, batches: Iterable[T], what: str, size_of: object = None) -> Iterator[T]:
        """Yield batches, and count them on stderr; ``size_of`` has their number if they do not."""
        counted = batches if size_of is None else size_of
        count = len(counted) if isinstance(counted, Sized) else None
        total = "" if count is None else f" of {count}"
        for number, batch in enumerate(batches, 1):
            yield batch
            now = time.monotonic()
            if self.is_shown and number != count and now - self._last_batch >= REPORT_EVERY:
                self._print(f"{what}, batch {number}{total}")
                self._last_batch = now

    def epoch_ended(self, line: str) -> None:
        """Write a line about an epoch, unless the one before it is less than ten seconds old."""
        now = time.monotonic()
        if self.is_shown and now - self._last_epoch >= REPORT_EVERY:
            self._print(line)
            self._last_batch = self._last_epoch = now

    def _print(self, line: str) -> None:
        print(f"{self.label}: {line}", file=sys.stderr, flush=True)
