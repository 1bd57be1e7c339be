"""Shared by the measurements of stores: records, commands under watch, and stores to measure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

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


def bignn(
    *arguments: str,
    limit: float | None = None,
    partial: Path | None = None,
    group: Path | None = None,
) -> tuple[dict[str, Any], float, int]:
    """Run a command, killed and continued where it takes long: report, seconds, kills.

    With ``partial``, the file that seconds so far are kept in, this process ends after a kill and
    the same call continues. With ``group`` the command runs in that control group.
    """
    command = [sys.executable, "-m", "bignn", *arguments, "--json"]
    if group is not None:
        joined = 'echo $$ > "$0" && exec "$@"'
        command = ["sh", "-c", joined, str(group / "cgroup.procs"), *command]
    seconds, kills = 0.0, 0
    if partial is not None and partial.exists():
        seconds, kills = json.loads(partial.read_text())
    while True:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            seconds += time.perf_counter() - start
            if partial is not None:
                partial.write_text(json.dumps([seconds, kills]))
                raise SystemExit(f"killed after {seconds:.0f} s; run it again to go on") from None
            continue
        seconds += time.perf_counter() - start
        if partial is not None:
            partial.unlink(missing_ok=True)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed")
        return json.loads(out), seconds, kills


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


class PeakMemory:
    """A ``with`` block that notes this process's most resident memory, its own and of files."""

    def __init__(self) -> None:
        self.bytes = {"anonymous": 0, "file": 0}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._stopped.wait(0.05):
            for kind, size in resident_memory().items():
                self.bytes[kind] = max(self.bytes[kind], size)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()
