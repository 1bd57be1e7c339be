"""Processes killed and links cut at random moments: how runs in parts end, and how they continue.

    python benchmarks/failures.py --kills 20
    sudo python benchmarks/failures.py --kills 0 --cuts 6     # network namespaces, see two_hosts.py

Two processes predict or train Cora in parts under ``torchrun --max-restarts 1``. The kernel ends
one of them (by a timer, in the middle of whatever it does) at a moment that is drawn from all of
its work, from its start, or, in the process that writes, from the writing of a checkpoint. Each
kill must give one line of the process that is left, and the restarted run the very predictions or
weights of a run that nothing happened to. A cut link has no torchrun beside it: both processes
must end with a line after ``--timeout``, and the same command must continue once the link is back.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import bignn
from bignn.nn import GCN
from bignn.runtime.parts.part_files import write_parts
from bignn.train import checkpoint

PREDICT = ["predict", "model.bignn", "parts", "--out"]
TRAIN = ["train", "parts", "--hidden", "64", "--epochs", "30", "--patience", "30"]
TRAIN += ["--save-every", "0", "--resume", "--out"]
#: What a process is doing when it dies, and the command that does it.
MOMENTS = {"start": TRAIN, "predict": PREDICT, "train": TRAIN, "checkpoint": TRAIN}

#: The command, in a process that dies so many seconds after a moment of its first attempt: "start",
#: "work" (it has joined the others) or the writing of checkpoint number N. Times go to files.
WORKER = """
import os, signal, sys, time
began = time.time()
moment, rank, seconds, number, *arguments = sys.argv[1:]
attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
is_victim = os.environ["RANK"] == rank and attempt == "0"

def arm():
    global is_victim
    if is_victim:
        is_victim = False
        open("died", "w").write(str(time.time() + float(seconds)))
        signal.setitimer(signal.ITIMER_REAL, max(float(seconds), 1e-6))

if moment == "start":
    arm()
from bignn.cli import main
from bignn.train import checkpoint, distributed

joined, write, writes, since = distributed.current_world, checkpoint.write, [], []
def join(device):
    world = joined(device)
    since.append(time.time())
    if moment == "work":
        arm()
    return world
def writing(*given):
    writes.append(-time.time())
    if moment == "checkpoint" and len(writes) == int(number):
        arm()
    write(*given)
    writes[-1] += time.time()
distributed.current_world, checkpoint.write = join, writing
code = main(arguments)
if attempt == "0" and code == 0:
    open("done-" + os.environ["RANK"], "w").close()
if os.environ["RANK"] == "0":
    work = time.time() - since[0]
    times = [since[0] - began, work, len(writes), sum(writes) / max(len(writes), 1)]
    open("times", "w").write(" ".join(map(str, times)))
distributed.end_process(code)
"""


@dataclass(frozen=True)
class Times:
    """Of a run that nothing happens to: seconds to join, of its work, and of writing a file."""

    start: float
    work: float
    writes: float
    write: float


@dataclass(frozen=True)
class Failure:
    """What came of a process that was killed.

    Attributes:
        moment: what it was doing.
        seconds: from its death to the end of the other one; None where it was done before.
        lines: errors that processes of bignn reported.
        is_reported: whether the other one reported an error, once; one that has not joined yet, or
            is done, may be silent.
        is_same: whether the result is that of the run that nothing happened to.
        told: all that was printed as errors.

    """

    moment: str
    seconds: float | None
    lines: list[str]
    is_reported: bool
    is_same: bool
    told: str


@dataclass(frozen=True)
class Ended:
    """What torchrun's status and errors were, and when the first attempt's processes were gone."""

    status: int
    told: str
    first_gone: float | None


def make_problem(folder: Path) -> None:
    """Write a model, Cora in two parts, and the script of the processes."""
    graph = bignn.load("cora")
    torch.manual_seed(0)
    model = GCN(graph.num_features, 64, 2, graph.num_classes, binarize="both")
    model.fit_input(torch.from_numpy(graph.dense_x()))
    bignn.pack(model.eval()).save(folder / "model.bignn")
    write_parts(graph, 2, folder / "parts", "ranges")
    (folder / "worker.py").write_text(WORKER)


def torchrun(folder: Path, *arguments: str) -> Ended:
    """Run the script by two processes, which are started again once."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--max-restarts", "1"]
    quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo"}
    first: list[int] = []
    gone = None
    with (folder / "told").open("w+") as told:
        process = subprocess.Popen(
            [*command, "worker.py", *arguments],
            cwd=folder, env={**os.environ, **quiet}, stdout=subprocess.DEVNULL, stderr=told,
        )  # fmt: skip
        while process.poll() is None:
            first = first if len(first) == 2 else workers(process.pid)
            if gone is None and len(first) == 2 and not any(map(is_running, first)):
                gone = time.time()
            time.sleep(0.02)
        told.seek(0)
        return Ended(process.returncode, told.read(), gone)


def workers(parent: int) -> list[int]:
    """Return the processes that torchrun has started."""
    try:
        found = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    return [int(pid) for pid in found if "worker.py" in command_of(int(pid))]


def command_of(pid: int) -> str:
    """Return the command line of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has no command line."""
    return bool(command_of(pid))


def straight(folder: Path, command: list[str]) -> Times:
    """Run a command to its end, to ``straight`` or ``straight.npy``."""
    done = torchrun(folder, "none", "-1", "0", "0", *command, result_of(command, "straight"))
    if done.status:
        raise SystemExit(done.told)
    return Times(*map(float, (folder / "times").read_text().split()))


def result_of(command: list[str], name: str) -> str:
    """Return where a command's result goes."""
    return f"{name}.npy" if command is PREDICT else name


def is_same(folder: Path, command: list[str], name: str) -> bool:
    """Whether a result is there, and that of the run that nothing happened to."""
    paths = [folder / result_of(command, some) for some in (name, "straight")]
    if not paths[0].exists():
        return False
    if command is PREDICT:
        return np.array_equal(np.load(paths[0]), np.load(paths[1]))
    files = [checkpoint.read(path / "seed-0.safetensors") for path in paths]
    (mine, about), (other, of_other) = files
    if about["progress"] | {"seconds": 0} != of_other["progress"] | {"seconds": 0}:
        return False
    return all(torch.equal(mine["model"][key], value) for key, value in other["model"].items())


def kill(folder: Path, moment: str, times: Times, rng: random.Random, number: int = 0) -> Failure:
    """Let a process die at a random moment of the first attempt, and see what comes of it."""
    command, rank = MOMENTS[moment], rng.randrange(2)
    longest = {"start": times.start, "checkpoint": times.write}.get(moment, times.work)
    # The leader alone writes; the last of the files is that of a finished run.
    write = rng.randrange(int(times.writes)) + 1 if moment == "checkpoint" else 0
    rank = 0 if moment == "checkpoint" else rank
    arguments = "work" if moment in ("predict", "train") else moment, str(rank)
    name = f"{moment}-{number}"
    for file in ("died", "done-0", "done-1"):
        (folder / file).unlink(missing_ok=True)
    delay = f"{rng.uniform(0, longest):.6f}"
    done = torchrun(folder, *arguments, delay, str(write), *command, result_of(command, name))
    lines = [
        text for text in done.told.splitlines() if text.startswith("bignn") and "error: " in text
    ]
    died = float((folder / "died").read_text())
    may_be_silent = moment == "start" or (folder / f"done-{1 - rank}").exists()
    return Failure(
        f"{moment} of {rank}",
        None if "(exitcode: " not in done.told else (done.first_gone or time.time()) - died,
        lines,
        len(lines) == 1 or (may_be_silent and not lines),
        done.status == 0 and is_same(folder, command, name),
        done.told,
    )


def kills(folder: Path, count: int, rng: random.Random) -> int:
    """Kill so many processes, print a line for each, and count what went wrong."""
    make_problem(folder)
    times = {"predict": straight(folder, PREDICT), "train": straight(folder, TRAIN)}
    wrong, slowest = 0, 0.0
    for number in range(count):
        moment = list(MOMENTS)[number % len(MOMENTS)]
        of_run = times["predict" if moment == "predict" else "train"]
        failure = kill(folder, moment, of_run, rng, number)
        found = "done before" if failure.seconds is None else f"ended {failure.seconds:.1f} s after"
        is_right = failure.is_same and failure.is_reported
        wrong += not is_right
        slowest = max(slowest, failure.seconds or 0.0)
        print(f"{number:>3} {failure.moment:<16}{found:<20}{len(failure.lines)} lines  "
              f"{'same result' if failure.is_same else 'DIFFERENT'}", flush=True)  # fmt: skip
        if not is_right:
            print(failure.told, flush=True)
    print(f"{count} killed, {wrong} runs wrong, the others ended {slowest:.1f} s after at most")
    return wrong


def cuts(folder: Path, count: int, rng: random.Random) -> int:
    """Cut the link of two hosts that train, and count what went wrong."""
    import two_hosts

    make_problem(folder)
    arguments = ["worker.py", "none", "-1", "0", "0", *TRAIN]
    wrong = 0
    with two_hosts.two_hosts("20mbit"):
        two_hosts.together([*arguments, "straight", "--json"], folder)
        times = Times(*map(float, (folder / "times").read_text().split()))
        for number in range(count):
            name = f"cut-{number}"
            after = rng.uniform(times.start, times.start + times.work)
            limited = [*arguments, name, "--timeout", "5"]
            processes = [two_hosts.start(rank, limited, folder) for rank in (0, 1)]
            time.sleep(after)
            two_hosts.set_link("down")
            began = time.monotonic()
            told = [process.communicate(timeout=300)[1] for process in processes]
            seconds = time.monotonic() - began
            two_hosts.set_link("up")
            codes = [process.returncode for process in processes]
            lines = [line for text in told for line in text.splitlines() if "error: " in line]
            was_done = (folder / name / "seed-0.safetensors").exists() and codes == [0, 0]
            two_hosts.together([*arguments, name, "--json"], folder)
            same = is_same(folder, TRAIN, name)
            is_right = same and (was_done or (codes == [1, 1] and len(lines) == 2))
            wrong += not is_right
            print(f"{number:>3} cut {after:5.2f} s after the start, ended {seconds:4.1f} s later, "
                  f"exit codes {codes}, {len(lines)} lines, "
                  f"{'same result' if same else 'DIFFERENT'} continued", flush=True)  # fmt: skip
            if not is_right:
                print(*told, sep="\n", flush=True)
    print(f"{count} links cut, {wrong} runs wrong")
    return wrong


def main() -> int:
    """Kill and cut; end with status 1 where a run ended or continued wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=0, help="links cut in training; needs root")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    options = parser.parse_args()
    if options.cuts and os.geteuid() != 0:
        raise SystemExit("--cuts makes network namespaces; run it as root")
    wrong, rng = 0, random.Random(options.seed)
    with tempfile.TemporaryDirectory() as name:
        if options.kills:
            wrong += kills(Path(name), options.kills, rng)
        if options.cuts:
            wrong += cuts(Path(name), options.cuts, rng)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
