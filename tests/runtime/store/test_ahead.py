"""Blocks are read ahead and written behind in order, and nobody's failure is lost."""

import threading
from collections.abc import Iterator

import pytest

from bignn.runtime.store.ahead import read_ahead, write_behind


def test_blocks_are_read_in_order_and_failures_arrive_after_what_was_read() -> None:
    def blocks() -> Iterator[int]:
        yield from range(3)
        raise OSError("unplugged")

    seen = []
    with pytest.raises(OSError, match="unplugged"):
        for block in read_ahead(blocks()):
            seen += [block]
    assert seen == [0, 1, 2]


def test_blocks_are_written_in_order_by_another_thread() -> None:
    written: list[int] = []
    threads: set[int] = set()

    def write(item: int) -> None:
        written.append(item)
        threads.add(threading.get_ident())

    with write_behind(write) as bring:
        for item in range(50):
            bring(item)
    assert written == list(range(50))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_at_most_one_block_waits() -> None:
    let_go, begun = threading.Event(), threading.Event()
    brought: list[int] = []

    def write(item: int) -> None:
        begun.set()
        let_go.wait()

    def compute() -> None:
        with write_behind(write) as bring:
            for item in range(3):
                bring(item)
                brought.append(item)

    computing = threading.Thread(target=compute)
    computing.start()
    begun.wait()
    computing.join(timeout=0.1)
    early = list(brought)
    let_go.set()
    computing.join()
    assert early == [0]  # the second is computed, and not taken before the first is written
    assert brought == [0, 1, 2]


@pytest.mark.parametrize("last", [1, 5])
def test_a_failed_write_ends_the_work(last: int) -> None:
    written: list[int] = []

    def write(item: int) -> None:
        if item == 1:
            raise OSError("disk full")
        written.append(item)

    with pytest.raises(OSError, match="disk full"), write_behind(write) as bring:
        for item in range(last + 1):
            bring(item)
    assert written == [0]


def test_a_failure_of_the_work_itself_comes_first() -> None:
    written: list[int] = []
    with pytest.raises(KeyboardInterrupt), write_behind(written.append) as bring:
        bring(1)
        raise KeyboardInterrupt
    assert written == [1]
