"""Shared by the measurements of stores: records, commands under watch, and stores to measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bignn.lab.bench.other_load import OtherLoad
from bignn.runtime.store.memory import resident_memory

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "results" / "store.json"
HIDDEN, LAYERS = 256, 3
SHAPE = "papers100M"


def recorded() -> dict[str, Any]:
    """Return the records so far."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def record(kind: str, key: str, value: dict[str, Any]) -> None:
    """Write a record."""
    found = recorded()
    found.setdefault(kind, {})[key] = value
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(kind, key, json.dumps(value), flush=True)


@dataclass
class Spent:
    """What a command took, over all its continuations.

    Attributes:
        seconds: by the clock.
        processor_seconds: its processor time.
        other_seconds: the processor time of others meanwhile; None where the system does not tell.
        kills: how often it was killed and continued.

    """

    seconds: float = 0.0
    processor_seconds: float = 0.0
    other_seconds: float | None = 0.0
    kills: int = 0

    @property
    def other_cores(self) -> float | None:
        """The cores that others used meanwhile."""
        return None if self.other_seconds is None else self.other_seconds / self.seconds

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Add what a command takes that begins and ends in this ``with`` block."""
        start, before = time.perf_counter(), _children_seconds()
        with OtherLoad(1) as load:
            yield
        seconds, own = time.perf_counter() - start, _children_seconds() - before
        self.seconds += seconds
        self.processor_seconds += own
        # The load counts commands as others, since they are other processes.
        if load.cores is None or self.other_seconds is None:
            self.other_seconds = None
        else:
            self.other_seconds += max(0.0, load.cores * seconds - own)


def _children_seconds() -> float:
    """Return the processor time of all commands that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def bignn(
    *arguments: str,
    limit: float | None = None,
    partial: Path | None = None,
    group: Path | None = None,
) -> tuple[dict[str, Any], Spent]:
    """Run a command, killed and continued where it takes long: its report and what it took.

    With ``partial``, the file that keeps what it took so far, this process ends after a kill and
    the same call continues. With ``group`` the command runs in that control group.
    """
    command = [sys.executable, "-m", "bignn", *arguments, "--json"]
    if group is not None:
        joined = 'echo $$ > "$0" && exec "$@"'
        command = ["sh", "-c", joined, str(group / "cgroup.procs"), *command]
    spent = Spent()
    if partial is not None and partial.exists():
        spent = Spent(**json.loads(partial.read_text()))
    while (out := _ended(command, limit, spent)) is None:
        spent.kills += 1
        if partial is not None:
            partial.write_text(json.dumps(asdict(spent)))
            raise SystemExit(f"killed after {spent.seconds:.0f} s; run it again to go on")
    if partial is not None:
        partial.unlink(missing_ok=True)
    return json.loads(out), spent


def _ended(command: list[str], limit: float | None, spent: Spent) -> str | None:
    """Run a command and return what it printed; None if it was killed at the limit."""
    with spent.counted():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            out = None
    if out is not None and process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return out


def store_of(folder: Path, scale: int) -> Path:
    """Return the store of 1/scale, written unless it is there."""
    path = folder / f"{SHAPE}-{scale}"
    if not (path / "labels.json").exists():
        bignn("synth", SHAPE, "--scale", str(1 / scale), "-o", str(path))
    return path


def untrained_model(store: Path, path: Path) -> Path:
    """Write an untrained model for a store."""
    import torch

    import bignn as library
    from bignn.nn import GraphSAGE
    from bignn.runtime.store import Store

    opened = Store(store)
    torch.manual_seed(0)
    sizes = opened.num_features, HIDDEN, LAYERS, opened.num_classes
    model = GraphSAGE(*sizes, binarize="both", norm="batch")
    model.load_input_stage(opened.stage)
    library.pack(model.eval()).save(path)
    return path


def drop_caches() -> None:
    """Write what is unwritten and empty the page cache, so that reads come from the disk."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        print("the page cache could not be emptied: reads may come from memory", file=sys.stderr)


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """Note this process's most resident memory so far, its own and of files, in the yielded."""
    peak, stopped = resident_memory(), threading.Event()

    def watch() -> None:
        while not stopped.wait(0.05):
            for kind, size in resident_memory().items():
                peak[kind] = max(peak[kind], size)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stopped.set()
        thread.join()
