"""Cores that others take while something is timed."""

import os
import subprocess
import sys
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


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux has it")
def test_the_work_of_another_process_is_counted() -> None:
    """The other process ends by its CPU time, so that a busy machine changes nothing."""
    before = other_load._now()
    spin = "import time\nwhile time.process_time() < 1.0: pass"
    subprocess.run([sys.executable, "-c", spin], check=True)
    after = other_load._now()
    assert before is not None and after is not None
    _, busy, own = (b - a for a, b in zip(before, after, strict=True))
    assert busy - own > 0.8
