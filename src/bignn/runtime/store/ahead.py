"""Reading ahead and writing behind: other threads do both while a block is computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


def read_ahead(blocks: Iterator[T]) -> Iterator[T]:
    """Yield blocks while another thread reads the next one."""
    found: queue.Queue[Any] = queue.Queue(maxsize=1)
    stopped = threading.Event()
    end = object()

    def put(item: Any) -> bool:
        while not stopped.is_set():
            try:
                found.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def read() -> None:
        try:
            for block in blocks:
                if not put(block):
                    return
            put(end)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while (item := found.get()) is not end:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


@contextmanager
def write_behind(write: Callable[[T], object]) -> Iterator[Callable[[T], None]]:
    """Yield a function that hands a block to ``write``, which another thread calls, in order.

    One block is written at a time; who brings the next one waits for it. What ``write`` raised is
    raised by the next call, or at the end of the block, where everything has been written. Where
    the block itself fails, what is under way is ended first.
    """
    pending: queue.Queue[Any] = queue.Queue()
    end = object()
    failed: list[BaseException] = []

    def work() -> None:
        while (item := pending.get()) is not end:
            try:
                write(item)
            except BaseException as error:
                failed.append(error)
            item = None  # its memory goes before the next one comes
            pending.task_done()

    def bring(item: T) -> None:
        pending.join()
        if failed:
            raise failed[0]
        pending.put(item)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield bring
    finally:
        pending.put(end)
        thread.join()
    if failed:
        raise failed[0]
