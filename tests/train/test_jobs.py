"""Tasks in several processes: the same results, in order, and clear errors."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from conftest import make_arrays

import bignn
from bignn.cli import main
from bignn.errors import FileError, InputError
from bignn.graph import Graph
from bignn.kernels.threads import get_num_threads, set_num_threads
from bignn.train.jobs import in_processes
from bignn.train.recipes import recipe
from bignn.train.seeds import train_seeds


def describe(number: int) -> tuple[int, int, int]:
    import torch

    return number * number, os.getpid(), max(get_num_threads(), torch.get_num_threads())


def die(number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_one_job_runs_here_one_item_after_the_other() -> None:
    assert [process for _, process, _ in in_processes(describe, [3, 4], 1)] == [os.getpid()] * 2
    assert [process for _, process, _ in in_processes(describe, [3], 8)] == [os.getpid()]
    assert list(in_processes(describe, [], 2)) == []


def test_results_come_in_order_from_processes_that_share_the_threads() -> None:
    before = get_num_threads()
    set_num_threads(6)
    try:
        found = list(in_processes(describe, range(5), 2))
    finally:
        set_num_threads(before)
    assert [square for square, _, _ in found] == [0, 1, 4, 9, 16]
    assert os.getpid() not in {process for _, process, _ in found}
    assert {threads for _, _, threads in found} == {3}


def refuse_or_hang(number: int) -> int:
    """Task 0 is done, task 1 fails, the others never end by themselves."""
    print(os.getpid(), flush=True)
    if number == 1:
        raise FileError("file 1 is not whole")
    if number > 1:
        threading.Event().wait()
    return number


def hang(number: int) -> int:
    print(os.getpid(), flush=True)
    threading.Event().wait()
    return number


def test_an_error_comes_through_as_it_is_and_ends_the_other_tasks() -> None:
    with pytest.raises(FileError, match=r"^file 1 is not whole$"):
        list(in_processes(refuse_or_hang, [0, 1, 2, 3], 2))


def test_workers_end_with_their_parent_in_the_middle_of_a_task(tmp_path: Path) -> None:
    """By Ctrl-C, which reaches all processes, and by signals to the parent alone."""
    script = tmp_path / "script.py"
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    script.write_text(
        "import signal, sys\n"
        f"sys.path[:0] = {folders}\n"
        "from test_jobs import hang, in_processes\n"
        "if __name__ == '__main__':\n"  # workers import the rest, and must ignore Ctrl-C
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    list(in_processes(hang, range(5), 2))\n"
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(
            [sys.executable, str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as parent:
            assert parent.stdout is not None
            workers = {int(parent.stdout.readline()) for _ in range(2)}
            assert len(workers) == 2
            if number == signal.SIGINT:
                os.killpg(parent.pid, number)
            else:
                parent.send_signal(number)
            # Ends when the last process that holds the pipe does: the workers too.
            assert parent.stdout.read() == b""
            assert parent.wait() != 0


def test_a_process_that_dies_ends_the_work_with_a_clear_line() -> None:
    with pytest.raises(InputError, match=r"one of 2 processes died.*fewer 'jobs'.*__main__"):
        list(in_processes(die, range(4), 2))


def test_numbers_of_jobs_that_make_no_sense() -> None:
    for jobs in (0, -1, 1025, True, 1.5):
        with pytest.raises(InputError, match="'jobs' must be a number from 1 to 1024"):
            list(in_processes(describe, [1, 2], jobs))  # type: ignore[arg-type]


@pytest.fixture
def graph() -> Graph:
    return Graph(**make_arrays(), name="toy")


def test_seeds_give_the_same_results_in_processes(graph: Graph, tmp_path: Path) -> None:
    settings = recipe("bi-gcn", epochs=6, hidden_channels=8)
    alone = train_seeds(settings, graph, [0, 1, 5], tmp_path / "a", progress=False)
    together = train_seeds(settings, graph, [0, 1, 5], tmp_path / "b", progress=False, jobs=2)
    assert together.seeds == [0, 1, 5]
    for one, other in zip(alone.results, together.results, strict=True):
        assert one.test_acc == other.test_acc
        assert one.val_loss == pytest.approx(other.val_loss, rel=1e-5)
    names = [path.name for path in together.checkpoints]
    assert names == ["seed-0.safetensors", "seed-1.safetensors", "seed-5.safetensors"]
    assert all(path.exists() for path in together.checkpoints)


def test_students_and_teachers_by_the_command(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "toy.npz"
    bignn.save(graph, file)
    command = ["train", str(file), "--distill", "--seeds", "2", "--epochs", "4", "--json"]
    reports = []
    for jobs in ("1", "2"):
        out = tmp_path / jobs
        assert main([*command, "--jobs", jobs, "--out", str(out)]) == 0
        captured = capsys.readouterr()
        reports.append(json.loads(captured.out))
        assert captured.err.count("teacher on") == 2
    assert reports[0]["test_acc"] == reports[1]["test_acc"]
    assert reports[0]["teacher_test_acc_mean"] == reports[1]["teacher_test_acc_mean"]
    assert main([*command, "--jobs", "0"]) == 2
    assert "--jobs must be a number from 1 to 1024, got 0" in capsys.readouterr().err
