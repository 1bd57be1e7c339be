"""Times contenders in the same rounds as ours, as far as memory allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bignn.kernels.threads import get_num_threads
from bignn.lab.bench.contenders import Contender
from bignn.lab.bench.other_load import OtherLoad
from bignn.lab.bench.peak_memory import memory_bytes
from bignn.lab.bench.problems import Problem
from bignn.lab.bench.timing import Seconds, measure_sensibly

#: Medians that are so many times the fastest burst are a sign of other processes: a thread that
#: waits for a core delays all that wait for it, torch's more than ours.
_HELD_UP = 3.0

#: What one contender may take of the memory, and what several at once may, by their lower bounds.
_ONE, _TOGETHER = 0.6, 0.4


@dataclass(frozen=True)
class Timed:
    """Seconds by name, and whether other processes used the cores.

    If they did, the fastest bursts are better than medians, but neither is reliable.
    """

    seconds: dict[str, Seconds]
    machine_was_busy: bool


def time_beside(
    ours: Mapping[str, Contender],
    kinds: Mapping[str, type[Contender]],
    problem: Problem,
    *,
    log: Callable[[str], None],
    after_group: Callable[[Mapping[str, Contender]], None] | None = None,
) -> Timed:
    """Time ours, loaded already, and other kinds of contenders, by their names.

    All run in the same rounds where they fit memory together; otherwise each beside ours, whose
    time is the median of those rounds. What cannot fit is left out.

    Args:
        ours: name -> contender.
        kinds: name -> what to make and load.
        problem: what they are made of.
        log: called with a line on what is being done.
        after_group: called with a group's contenders while they are there.

    """
    needed = {key: kind.bytes_needed(problem) for key, kind in kinds.items()}
    chosen = [key for key, size in needed.items() if size <= _ONE * memory_bytes()]
    for key in needed.keys() - set(chosen):
        log(f"{key} left out, it would need {needed[key] / 1e9:.0f} GB")
    at_once = sum(needed[key] for key in chosen) < _TOGETHER * memory_bytes()
    taken: dict[str, list[Seconds]] = {}
    busy = False
    for group in [chosen] if at_once else [[key] for key in chosen]:
        runners = {**ours, **{key: kinds[key](problem) for key in group}}
        for key in group:
            runners[key].load()
        log(f"timing {', '.join(runners)}")
        with OtherLoad(get_num_threads()) as others:
            calls = {key: runner.run for key, runner in runners.items()}
            measured = measure_sensibly(calls, log)
        busy |= others.is_in_the_way
        for key, found in measured.items():
            taken.setdefault(key, []).append(found)
            busy |= found.median > _HELD_UP * found.fastest
        if after_group is not None:
            after_group(runners)
        del runners
    seconds = {key: sorted(several)[len(several) // 2] for key, several in taken.items()}
    return Timed(seconds, busy)
