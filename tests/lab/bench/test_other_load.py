"""Cores that others take while something is timed."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from bignn.lab.bench import other_load
from bignn.lab.bench.other_load import OtherLoad


def stat(busy: int, idle: int, cpus: int) -> str:
    """As Linux tells it: ticks of user, nice, system, idle, iowait, irq, softirq, steal, guest."""
    line = f"{busy} 0 0 {idle} 7 0 0 0 0 0"
    return f"cpu  {line}\n" + "".join(f"cpu{number} {line}\n" for number in range(cpus))


def test_others_are_all_work_less_our_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "stat"
    clock = iter([10.0, 12.0])
    own = iter([(1.0, 0.5), (2.0, 0.5)])
    monkeypatch.setattr(other_load, "_STAT", file)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(os, "times", lambda: os.times_result((*next(own), 0.0, 0.0, 0.0)))
    file.write_text(stat(1000, 500, 8))
    with OtherLoad(threads=2) as others:
        # 1.5 s more on each of the two cores that may be used; 1 s of it is ours, in 2 s.
        file.write_text(stat(1150, 550, 8))
    assert others.cores == pytest.approx((3.0 - 1.0) / 2.0)
    assert others.is_in_the_way


@pytest.mark.parametrize(
    ("threads", "cores", "expected"), [(1, 0.9, False), (2, 0.2, False), (2, 0.3, True)]
)
def test_they_are_in_the_way_of_threads_that_need_their_cores(
    monkeypatch: pytest.MonkeyPatch, threads: int, cores: float, expected: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    others = OtherLoad(threads)
    others.cores = cores
    assert others.is_in_the_way == expected


def test_where_the_system_does_not_tell_nobody_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(other_load, "_STAT", tmp_path / "none")
    with OtherLoad(threads=64) as others:
        pass
    assert others.cores is None
    assert not others.is_in_the_way


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux tells")
def test_a_process_that_spins_is_seen() -> None:
    with OtherLoad(threads=1) as before:
        time.sleep(2.0)
    others = [
        multiprocessing.get_context("spawn").Process(target=_spin, args=(30.0,))
        for _ in os.sched_getaffinity(0)
    ]
    for other in others:
        other.start()
    time.sleep(1.0)  # they have to import first
    try:
        with OtherLoad(threads=1) as after:
            time.sleep(2.0)
    finally:
        for other in others:
            other.terminate()
            other.join()
    assert before.cores is not None and after.cores is not None
    # All cores are busy now; where they were before, there is nothing to see.
    assert after.cores > 0.5 * len(others)
    assert before.cores > 0.5 * len(others) or after.cores > before.cores
