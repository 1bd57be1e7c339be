"""Reading ahead: the next block is read by another thread while this one is computed."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
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
