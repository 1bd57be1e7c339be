"""Do commands of a store that are killed at random moments end with the same bytes?

    python benchmarks/store_kills.py --folder /big/disk [--kills 100] [--seed 0]

Each of pack-features, pack-edges, synth and predict runs once undisturbed. Then it is killed (-9)
at a random moment of its work and started again, and again, until it comes to an end; all files
that it leaves, and no others, must be those of the first run. That is repeated until there were so
many kills. Blocks are small and recorded every 20 ms, so that there is always something to go on
from and something to throw away.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from store_common import untrained_model

JOBS = ("pack-features", "pack-edges", "synth", "predict")
#: The command with small blocks; it says when its imports are over.
_SCRIPT = """
import sys
from bignn.cli import main
from bignn.runtime.store import pack_edges, pack_features, predict_store, synthetic, unfinished
unfinished._RECORD_EVERY = 0.02
pack_features._BLOCK_BYTES = 1
pack_edges._MOST_AT_ONCE = pack_edges._FEWEST_AT_ONCE = 10_000
pack_edges.memory_bytes = lambda *_, **__: 300_000
synthetic._BLOCK_ROWS = 2048
predict_store._BLOCK_ROWS = 2048
print("ready", flush=True)
sys.exit(main(sys.argv[1:]))
"""


def prepare(folder: Path) -> dict[str, list[str]]:
    """Write the inputs of all jobs; return their arguments, which end where the output follows."""
    rng = np.random.default_rng(0)
    np.save(folder / "x.npy", rng.standard_normal((60_000, 40), dtype=np.float32))
    np.save(folder / "e.npy", rng.integers(0, 5000, (400_000, 2)))
    store = folder / "store"
    synth = ["synth", "ogbn-arxiv", "--scale", "0.3", "-o"]
    subprocess.run([sys.executable, "-m", "bignn", *synth, str(store)], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    model = untrained_model(store, folder / "sage.bignn")
    return {
        "pack-features": ["pack-features", str(folder / "x.npy"), "-o"],
        "pack-edges": ["pack-edges", str(folder / "e.npy"), "--nodes", "5000", "-o"],
        "synth": synth,
        "predict": ["predict", str(model), str(store), "--memory", "300M", "--out"],
    }


class Job:
    """One command, run in a folder of its own.

    Args:
        arguments: those of the command, but for its output.
        folder: where it writes.

    """

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.folder = folder
        out = folder / ("p.npy" if arguments[0] == "predict" else "store")
        self._command = [sys.executable, "-c", _SCRIPT, *arguments, str(out)]

    def run(self, seconds: float | None = None) -> float | None:
        """Run it, and kill it after some seconds; return how long it took if it came to an end."""
        self.folder.mkdir(exist_ok=True)
        errors = self.folder.with_suffix(".log").open("w+")
        with errors, subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors) as made:
            assert made.stdout is not None
            made.stdout.readline()
            start = time.perf_counter()
            try:
                made.wait(seconds)
            except subprocess.TimeoutExpired:
                made.kill()
            if made.wait() == 0:
                return time.perf_counter() - start
            if made.returncode != -signal.SIGKILL:
                errors.seek(0)
                raise SystemExit(f"{' '.join(self._command[3:])} failed: {errors.read()}")
        return None

    def contents(self) -> dict[str, bytes]:
        """Return all files that it has left."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in files}


def kill_often(arguments: list[str], folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """Kill a command at so many moments or more; return the kills and how often it came to an end.

    Raises ``SystemExit`` where a run that was killed ends with other files than one that was not.
    """
    rng, name = np.random.default_rng(seed), arguments[0]
    whole = Job(arguments, folder / f"{name}-whole")
    seconds = whole.run()
    assert seconds is not None
    expected, killed, ended = whole.contents(), 0, 0
    while killed < kills:
        job = Job(arguments, folder / f"{name}-killed")
        while job.run(rng.uniform(0, seconds)) is None:
            killed += 1
        found = job.contents()
        if found.keys() != expected.keys():
            raise SystemExit(f"{name} left {sorted(found)}, expected {sorted(expected)}")
        if different := [name for name in found if found[name] != expected[name]]:
            raise SystemExit(f"{name}: {different} are not those of a run that was not killed")
        ended += 1
        shutil.rmtree(job.folder)
    shutil.rmtree(whole.folder)
    return killed, ended


def main() -> None:
    """Kill every job often."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    folder = Path(options.folder) / "store-kills"
    folder.mkdir()
    jobs = prepare(folder)
    for name in JOBS:
        killed, ended = kill_often(jobs[name], folder, options.kills, options.seed)
        print(f"{name}: killed {killed} times, ended {ended} times, always the same files",
              flush=True)  # fmt: skip
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
