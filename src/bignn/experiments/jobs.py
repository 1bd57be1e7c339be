"""Independent pieces of work by several processes, each on its share of the threads."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

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
        initargs=(max(1, get_num_threads() // jobs),),
    )
    try:
        yield from pool.map(task, items)
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {jobs} processes died, perhaps for want of memory; try fewer --jobs "
            "(with --resume what is finished is kept)"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def checked_jobs(jobs: int) -> int:
    """A number of processes, if it is one."""
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 1 <= jobs <= 1024:
        raise wrong("jobs", "a number from 1 to 1024", repr(jobs))
    return jobs


def _start(threads: int) -> None:
    import torch  # noqa: F401 - so that its threads are set as well

    set_num_threads(threads)
