"""A process that dies at a random moment: a line, a restart, and the result of a run without it."""

import random
from pathlib import Path

import failures


def test_a_restart_gives_the_same_result_whenever_a_process_dies(tmp_path: Path) -> None:
    """In prediction, in training, and while the leader writes a checkpoint."""
    failures.make_problem(tmp_path)
    of_train = failures.straight(tmp_path, failures.TRAIN)
    times = {"predict": failures.straight(tmp_path, failures.PREDICT)}
    rng = random.Random(0)
    for moment in ("predict", "train", "checkpoint"):
        failure = failures.kill(tmp_path, moment, times.get(moment, of_train), rng)
        assert failure.is_same, failure.told
        assert failure.is_reported, failure.told
    assert not list(tmp_path.rglob("*.tmp"))
