"""Independent pieces of work by several processes, each on its share of the threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import numpy as np

from bignn.errors import InputError, wrong
from bignn.threads import get_num_threads, set_num_threads

T = TypeVar("T")
R = TypeVar("R")


def in_processes(task: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """What ``task`` makes of each item, in their order, as soon as it is there.

    With one job (or one item) it runs here. Otherwise the task and its items travel to other
    processes, so they must be picklable, and a script that calls this needs the usual
    ``if __name__ == "__main__":``.
    """
    jobs = min(checked_jobs(jobs), len(items))
    if jobs <= 1:
        yield from map(task, items)
        return
    # Not forked: torch's threads and CUDA do not survive that.
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(task, max(1, get_num_threads() // jobs)),
    )
    try:
        yield from pool.map(_do, items)
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {jobs} processes died: for want of memory (then take fewer 'jobs'), or "
            "because the calling script has no 'if __name__ == \"__main__\":'"
        ) from error
    except BaseException:
        # An error or Ctrl-C: nobody waits for what the others are doing.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def checked_jobs(jobs: int) -> int:
    """A number of processes, if it is one."""
    is_number = isinstance(jobs, int | np.integer) and not isinstance(jobs, bool)
    if not is_number or not 1 <= jobs <= 1024:
        raise wrong("jobs", "a number from 1 to 1024", repr(jobs))
    return int(jobs)


_task: Callable[[Any], Any]


def _start(task: Callable[[Any], Any], threads: int) -> None:
    """Makes a process ready. The task comes once, since it may hold a whole graph."""
    import torch  # noqa: F401 - so that its threads are set as well

    global _task
    _task = task
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends at once, without a word
    threading.Thread(target=_end_with_parent, daemon=True).start()
    set_num_threads(threads)


def _end_with_parent() -> None:
    """A parent that was killed leaves nobody to tell the others, who would train on and on."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _do(item: Any) -> Any:
    return _task(item)
