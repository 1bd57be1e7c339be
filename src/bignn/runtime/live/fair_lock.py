"""A lock that threads get in turn."""

from __future__ import annotations

import threading


class FairLock:
    """A lock of several threads that none of them can keep from the others.

    Python's own may be taken again by the thread that gives it back, however long another waits: a
    thread that makes one update after the other would never let a reader in. Here whoever waits
    stands in a door that all must pass. A thread that has the lock may take it again.
    """

    def __init__(self) -> None:
        self._door = threading.Lock()
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        if self._owner != threading.get_ident():
            with self._door:
                self._lock.acquire()
            self._owner = threading.get_ident()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            self._lock.release()
