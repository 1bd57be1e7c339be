"""Every convolution, model and norm of the installed PyG, float and binary: docs/models.md.

``python benchmarks/pyg_table.py --write`` trains what is missing and writes the table into the
page. Each class becomes a node classifier (``pyg_rows.py``) that is trained in floats, binary (in
the same plain loop) and binary by ``bignn.fit`` with the float model as its teacher. Epochs are
chosen by validation accuracy; test accuracy is reported. The packed binary models then classify
all nodes.

Every finished run is a line of docs/results/pyg-models.jsonl, so the command may be stopped in any
way and called again. Graphs come one after the other, and seeds of a graph; where ``--minutes``
ends it, all rows of the last graph have fewer seeds. ``--only`` chooses classes, ``--again``
repeats what is there, and ``--seeds 0 --write`` writes the page alone.

On another machine ``--ledger NEW.jsonl`` begins a file of its own, which may be continued too;
``--merge NEW.jsonl`` takes its runs into the ledger, in place of all runs of the same row, graph
and way, so that no mean is over runs of two versions.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import gc
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch_geometric
from plain_loop import accuracies, nodes_packed_alike, train
from pyg_networks import with_types
from pyg_page import WAYS, Record, newest, write_page
from pyg_rows import Row, missing_package, rows
from torch import nn
from torch_geometric.data import Data

import bignn
from bignn.files import atomic_path
from bignn.lab.study.ledger import Ledger
from bignn.train.jobs import in_processes

DOCS = Path(__file__).parent.parent / "docs"
LEDGER, PAGE = DOCS / "results" / "pyg-models.jsonl", DOCS / "models.md"
#: Epochs between evaluations, and those without a better one after which students go on alone, or
#: end. Plain loops run to their end: binary models learn less steadily, and no number of epochs
#: without a better one tells which of them will not learn any more.
EVERY, PATIENCE = 5, 100
#: Seconds to wait for a GPU's memory, before each further try.
_WAITS = (2.0, 5.0, 10.0)
T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """A row, a graph and a seed, and the ways that are to be trained."""

    row: str
    graph: str
    seed: int
    ways: tuple[str, ...]


@dataclass(frozen=True)
class Trainer:
    """Trains items, and appends a record of each way as soon as it is done.

    Attributes:
        ledger: the file of records.
        epochs: epochs of every way.
        slow: seconds of an epoch from which a row is left out on a graph.
        deadline: the time from which nothing new is begun.
        device: where models are trained; packed ones always run on the CPU.

    """

    ledger: Path
    epochs: int
    slow: float
    deadline: float
    device: str = "cpu"

    def __call__(self, item: Item) -> str:
        """Train an item; return what there is to say about it."""
        bignn.set_num_threads(1)
        keep_memory()
        row, data = rows()[item.row], graph_data(item.graph, self.device)
        said, teacher = [], None
        for way in item.ways:
            if time.time() > self.deadline:
                return ""
            began = time.process_time()
            record: Record = {
                **{"row": row.name, "kind": row.kind, "graph": item.graph, "way": way},
                **{"seed": item.seed, "epochs": self.epochs, "remark": row.remark},
                **{"pyg": torch_geometric.__version__, "version": bignn.__version__},
            }
            try:
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("always")
                    if way == "float" or (way == "distilled" and teacher is None):
                        teacher, scores = self._patiently(
                            lambda: self._trained(row, data, item.seed)
                        )
                    if way != "float":
                        assert way == "binary" or teacher is not None
                        taught_by = teacher if way == "distilled" else None
                        scores = self._patiently(
                            partial(self._binary, row, data, item.seed, taught_by, record)
                        )
                record |= {"val": round(scores[0], 2), "test": round(scores[1], 2)}
                said.append(f"{way} {scores[1]:.1f}")
            except torch.OutOfMemoryError:  # other processes had it; another call may have it
                said.append(f"{way}: no memory left on {self.device}, not recorded")
                break
            except Exception as error:  # of any of PyG's classes, whatever it may be
                record["error"] = str(error) or type(error).__name__
                said.append(f"{way}: {record['error'].splitlines()[0]}")
            if own := [str(warning.message) for warning in warned if _is_ours(warning)]:
                record["warning"] = own[0]
            record["seconds"] = round(time.process_time() - began, 2)
            Ledger(self.ledger).append(record)
            if "error" in record and way == "float":
                break
        give_memory_back()
        return ", ".join(said)

    def _patiently(self, task: Callable[[], T]) -> T:
        """Run a task; where a GPU that processes share has no memory left, wait and try again."""
        for seconds in _WAITS:
            try:
                return task()
            except torch.OutOfMemoryError:
                pass
            give_memory_back()
            time.sleep(seconds)
        return task()

    def _made(self, row: Row, data: Data, seed: int) -> nn.Module:
        assert row.build is not None
        torch.manual_seed(seed)
        return row.build(on_cpu(data)).to(self.device)

    def _loop(self, model: nn.Module, data: Data) -> tuple[float, float]:
        return train(model, data, self.epochs, every=EVERY)

    def _trained(self, row: Row, data: Data, seed: int) -> tuple[nn.Module, tuple[float, float]]:
        """Train a float model, if its epochs are not too slow."""
        model = self._made(row, data, seed)
        train(model, data, 1)  # what is only needed once
        began = time.process_time()
        train(model, data, 1)
        seconds = time.process_time() - began
        if seconds > self.slow:
            raise RuntimeError(f"not measured: {seconds:.1f} s per epoch")
        model = self._made(row, data, seed)
        return model, self._loop(model, data)

    def _binary(
        self, row: Row, data: Data, seed: int, teacher: nn.Module | None, record: Record
    ) -> tuple[float, float]:
        """Train a binary model, and pack it where that is possible."""
        model = self._made(row, data, seed)
        report = bignn.binarize_(model, **row.conversion)
        record["smaller"] = round(report.bytes_before / report.bytes_after, 2)
        if teacher is None:
            scores = self._loop(model, data)
        else:
            changes = {"epochs": self.epochs, "patience": PATIENCE}
            bignn.fit(model, data, changes, teacher=teacher, seed=seed, progress=False)
            scores = accuracies(model, data)
        if report.obstacle is not None:
            record["obstacle"] = report.obstacle
            return scores
        try:
            alike = nodes_packed_alike(model.cpu(), with_types(on_cpu(data)))
            record |= {"equal": alike, "nodes": data.num_nodes}
        except bignn.InputError as error:
            record["obstacle"] = str(error)
        return scores


def _is_ours(warning: warnings.WarningMessage) -> bool:
    return "bignn" in warning.filename or "bignn" in str(warning.message)


def give_memory_back() -> None:
    """Free what this process keeps of a GPU's memory, which others need."""
    gc.collect()
    torch.cuda.empty_cache()  # does nothing without a GPU


def keep_memory() -> None:
    """Keep freed memory for the next tensors: with glibc, a fourth to a half of the time."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option, value in ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, 2**31 - 1)):
            libc.mallopt(option, value)


# As in glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


@cache
def graph_data(name: str, device: str) -> Data:
    """Load a graph onto a device, once per process."""
    return bignn.to_pyg(bignn.load(name)).to(device)


def on_cpu(data: Data) -> Data:
    """Copy a graph to the CPU; PyG's own ``data.cpu()`` would move the graph itself."""
    return copy.copy(data).cpu()


def items_to_do(
    chosen: Sequence[Row],
    graphs: Sequence[str],
    num_seeds: int,
    epochs: int,
    done: dict[tuple[Any, ...], Record],
) -> list[Item]:
    """List what the ledger lacks: the first seed of all rows on a graph, the next, other graphs."""
    done = {key: record for key, record in done.items() if record.get("epochs") == epochs}
    failed = {key[:2] for key, record in done.items() if key[2] == "float" and "error" in record}
    items = []
    for graph in graphs:
        for seed in range(num_seeds):
            for row in chosen:
                if row.build is None or (row.name, graph) in failed:
                    continue
                ways = tuple(way for way in WAYS if (row.name, graph, way, seed) not in done)
                if ways:
                    items.append(Item(row.name, graph, seed, ways))
    return items


def main() -> None:
    """Train what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--graphs", nargs="+", default=["cora", "amazon-photo"])
    parser.add_argument("--only", nargs="+", help="names of classes; all by default")
    parser.add_argument("--again", action="store_true", help="repeat runs that are there")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--slow", type=float, default=1.0, help="seconds of an epoch to leave out")
    parser.add_argument("--jobs", type=int, default=1, help="processes, each of one thread")
    parser.add_argument("--device", default="cpu", help="where models are trained")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin nothing later")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--merge", type=Path, help="take in the runs of another ledger first")
    parser.add_argument("--write", action="store_true", help="write the table into docs/models.md")
    args = parser.parse_args()
    chosen = [row for row in rows().values() if args.only is None or row.class_name in args.only]
    if missing := set(args.only or ()) - {row.class_name for row in chosen}:
        parser.error(f"PyG {torch_geometric.__version__} has no {sorted(missing)}")
    chosen = [
        replace(row, build=None, reason=needed) if (needed := missing_package(row)) else row
        for row in chosen
    ]
    if args.merge is not None:
        if not (runs := Ledger(args.merge).read()):
            parser.error(f"--merge '{args.merge}' has no runs")
        merge(args.ledger, runs)
    done = newest(Ledger(args.ledger).read())
    write_reasons(chosen, args.ledger, done)
    here = {} if args.again else done
    items = items_to_do(chosen, args.graphs, args.seeds, args.epochs, here)
    deadline = time.time() + 60 * args.minutes
    trainer = Trainer(args.ledger, args.epochs, args.slow, deadline, args.device)
    run(trainer, items, args.jobs)
    if args.write:
        write_page(PAGE, Ledger(args.ledger).read())


def merge(ledger: Path, runs: Sequence[Record]) -> None:
    """Put runs into a ledger, in place of those of the same row, graph and way."""

    def cell(record: Record) -> tuple[Any, ...]:
        return tuple(record.get(key) for key in ("row", "graph", "way"))

    newer = {cell(run) for run in runs}
    kept = [record for record in Ledger(ledger).read() if cell(record) not in newer]
    with atomic_path(ledger) as path:
        path.write_text("".join(f"{json.dumps(record)}\n" for record in [*kept, *runs]))
    print(f"{len(runs)} records merged into {ledger}, {len(kept)} kept", file=sys.stderr)


def write_reasons(chosen: Sequence[Row], ledger: Path, done: dict[tuple[Any, ...], Record]) -> None:
    """Record why rows have no runs, where that is not there yet."""
    for row in chosen:
        known = done.get((row.name, None, None, None), {}).get("reason")
        if row.build is None and known != row.reason:
            reason = {"row": row.name, "kind": row.kind, "reason": row.reason}
            Ledger(ledger).append({**reason, "pyg": torch_geometric.__version__})


def run(trainer: Trainer, items: Sequence[Item], jobs: int) -> None:
    """Train all items, with progress and the time left on stderr."""
    began, spent = time.time(), {item.graph: [0.0, 0] for item in items}
    last = began
    for number, (item, said) in enumerate(
        zip(items, in_processes(trainer, items, jobs), strict=True), 1
    ):
        now = time.time()
        if not said:  # past the deadline
            continue
        spent[item.graph][0] += now - last
        spent[item.graph][1] += 1
        last = now
        rest = sum(_expected(spent, other.graph) for other in items[number:])
        print(
            f"[{number}/{len(items)}] {item.row} {item.graph} seed {item.seed}: {said} "
            f"({(now - began) / 60:.1f} minutes, {rest / 60:.0f} left)",
            file=sys.stderr,
            flush=True,
        )


def _expected(spent: dict[str, list[float]], graph: str) -> float:
    """Estimate the seconds of an item by the mean of its graph so far, or of all."""
    seconds, count = spent[graph]
    if not count:
        seconds, count = map(sum, zip(*spent.values(), strict=True))
    return seconds / max(1, count)


if __name__ == "__main__":
    main()
