"""How many cores other processes use while something is timed."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType

_STAT = Path("/proc/stat")

#: Cores that others may take of those that the timed threads need before times are distrusted.
_TOLERATED = 0.25


class OtherLoad:
    """A ``with`` block that counts how many cores other processes and other tenants keep busy.

    ``cores`` stays None on systems without ``/proc/stat``.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self.cores: float | None = None

    def __enter__(self) -> OtherLoad:
        self._before = _now()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        before, after = self._before, _now()
        if before is None or after is None or after[0] <= before[0]:
            return
        wall, busy, own = (b - a for a, b in zip(before, after, strict=True))
        self.cores = max(0.0, (busy - own) / wall)

    @property
    def is_in_the_way(self) -> bool:
        """Whether other processes left fewer cores than the timed threads could use."""
        return self.cores is not None and (
            self._threads + self.cores > len(os.sched_getaffinity(0)) + _TOLERATED
        )


def _now() -> tuple[float, float, float] | None:
    """Return seconds: of the clock, of all work on the usable cores, and of this process's work."""
    try:
        lines = _STAT.read_text().splitlines()
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    ticks = 0
    for line in lines:
        name, *counts = line.split()
        if name in allowed:
            user, nice, system, _, _, irq, soft_irq, steal = map(int, counts[:8])
            ticks += user + nice + system + irq + soft_irq + steal
    own = os.times()
    return (
        time.perf_counter(),
        ticks / os.sysconf("SC_CLK_TCK"),
        own.user + own.system,
    )
