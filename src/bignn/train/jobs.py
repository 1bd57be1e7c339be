"""Independent tasks in several processes, each on its share of the threads."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import TypeVar

import numpy as np

from bignn.errors import InputError, input_error
from bignn.kernels.threads import get_num_threads, set_num_threads
from bignn.train.distributed import under_torchrun

T = TypeVar("T")
R = TypeVar("R")


def in_processes(task: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Yield ``task(item)`` for each item, in their order, as soon as it is there.

    With one job (or one item) it runs here. Otherwise the task and its items travel to other
    processes, so they must be picklable, and a script that calls this needs the usual
    ``if __name__ == "__main__":``.
    """
    jobs = min(checked_jobs(jobs), len(items))
    if jobs <= 1:
        yield from map(task, items)
        return
    # Not forked: torch's threads and CUDA do not survive that.
    context = multiprocessing.get_context("spawn")
    # Workers wait for the end of this pipe, which comes when the writing end is closed here, or
    # with the end of this process, however it ends. Nothing is ever written.
    reading, writing = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=context,
        initializer=_start_worker,
        initargs=(max(1, get_num_threads() // jobs), reading),
    )
    try:
        with _without_interrupts():
            futures = [pool.submit(task, item) for item in items]
        while futures:
            # In short waits: Ctrl-C may reach another thread than this one, which would sleep on.
            while not wait(futures[:1], timeout=1).done:
                pass
            yield futures.pop(0).result()
    except BrokenProcessPool as error:
        raise InputError(
            f"one of {jobs} processes died: for want of memory (then take fewer 'jobs'), or "
            "because the calling script has no 'if __name__ == \"__main__\":'"
        ) from error
    except BaseException:
        # An error or Ctrl-C ends the workers in the middle of their tasks. The pool then ends those
        # that are still starting, as it does whenever it loses a worker.
        writing.close()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        writing.close()
        reading.close()


def checked_jobs(jobs: int) -> int:
    """Return a number of processes if it can be had."""
    is_number = isinstance(jobs, int | np.integer) and not isinstance(jobs, bool)
    if not is_number or not 1 <= jobs <= 1024:
        raise input_error("jobs", "a number from 1 to 1024", repr(jobs))
    if jobs > 1 and under_torchrun():
        raise input_error(
            "jobs", "1 under torchrun, whose processes train each seed together", jobs
        )
    return int(jobs)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Let processes that are started inside ignore Ctrl-C: the parent handles it for all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _start_worker(num_threads: int, pipe: Connection) -> None:
    threading.Thread(target=_exit_at_end_of, args=(pipe,), daemon=True).start()
    import torch  # noqa: F401 - so that its threads are set as well
    from tqdm import tqdm

    tqdm.set_lock(threading.RLock())  # its own would be left behind by a process that is ended
    set_num_threads(num_threads)


def _exit_at_end_of(pipe: Connection) -> None:
    pipe.poll(None)
    os._exit(1)
