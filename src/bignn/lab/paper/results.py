"""A results folder: finished runs, and the documents of other commands.

``runs.jsonl`` is the ledger of :mod:`bignn.lab.study.runs`; ``bench*.json`` and
``capacity*.json`` are what ``bignn bench --json`` and ``bignn capacity --json`` print.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bignn.errors import FileError
from bignn.lab.paper.measured_speeds import measured_speeds
from bignn.lab.study.ledger import Ledger, Record
from bignn.lab.study.run import RUNS, Run
from bignn.train.averages import mean_and_std, plus_minus

#: The page that 'bignn reproduce' writes into a results folder.
PAGE = "results.md"


@dataclass(frozen=True)
class Summary:
    """Test accuracies of the seeds of a row, in percent, and the mean validation accuracy."""

    test: tuple[float, ...]
    val: float

    @property
    def mean(self) -> float:
        """The mean of the test accuracies."""
        return statistics.fmean(self.test)

    @property
    def std(self) -> float | None:
        """The sample standard deviation (n - 1); None for one value."""
        return mean_and_std(self.test)[1]

    def plus_minus(self, digits: int = 1) -> str:
        """Write mean ± standard deviation; one seed has no deviation."""
        return plus_minus(self.mean, self.std, digits)

    def minus(self, other: Summary) -> tuple[float, float | None]:
        """Return the difference of two means, and its standard error if both have one."""
        errors = [s.std / math.sqrt(len(s.test)) for s in (self, other) if s.std is not None]
        return self.mean - other.mean, math.hypot(*errors) if len(errors) == 2 else None


class Results:
    """A folder of results, read whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not folder.is_dir():
            fix = (
                "give a folder"
                if folder.exists()
                else f"'bignn reproduce --out {folder}' makes one"
            )
            raise FileError(f"'{folder}' is not a folder of results; {fix}")
        self.records = Ledger(folder / RUNS).read()
        for number, record in enumerate(self.records, 1):
            _check(record, number, folder)
        #: The newest of every measurement of speed.
        benches = _documents(folder, "bench", ("rows",))
        self.bench = measured_speeds(
            {path: found for path, found in benches.items() if "device" not in found}
        )
        #: What ``bignn bench --device cuda --json`` printed.
        self.gpu = [found for found in benches.values() if "device" in found]
        self.capacity = list(_documents(folder, "capacity", _OF_CAPACITY).values())
        #: What benchmarks/store_scale.py recorded.
        self.store = next(iter(_documents(folder, "store", ()).values()), {})
        # A row that was run under several recipes: that of its newest record counts, and it alone.
        newest = {record["row"]: record["recipe"] for record in self.records}
        self._rows: dict[str, dict[int, Record]] = {}
        for record in self.records:
            if record["recipe"] == newest[record["row"]]:
                self._rows.setdefault(record["row"], {})[record["seed"]] = record

    @property
    def shown_folder(self) -> Path:
        """The folder as a command names it: relative to the working folder where it is below it."""
        here = Path.cwd()
        return self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.records or self.bench or self.gpu or self.capacity)

    def of(self, run: Run) -> Summary | None:
        """Summarise all seeds of a run's row; None if there are none, or no test split."""
        records = self.seeds(run)
        test = [record["test_acc"] for record in records if record["test_acc"] is not None]
        if not test or len(test) < len(records):
            return None
        return Summary(tuple(test), statistics.fmean(record["val_acc"] for record in records))

    def seeds(self, run: Run) -> list[Record]:
        """Return the records of a run's row, ordered by seed."""
        found = self._rows.get(run.row, {})
        return [found[seed] for seed in sorted(found)]


def _check(record: Record, number: int, folder: Path) -> None:
    """Refuse a line of the ledger that lacks what pages show."""
    names = dict.fromkeys(("row", "dataset", "recipe", "machine", "version", "torch"), str)
    needed = {**names, "seed": int, "val_acc": float | int, "test_acc": float | int | None}
    for name, kind in needed.items():
        value = record.get(name, ...)
        if not isinstance(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
            raise FileError(
                f"'{folder / RUNS}': record {number} has no valid '{name}', so this version did "
                "not write it; remove its line, or use another folder"
            )


#: The fields of a document of ``bignn capacity`` that are shown.
_OF_CAPACITY = (
    *("name", "dataset", "model", "bins", "as_paper", "distill", "heads", "bi_heads", "bi_model"),
    *("widths", "float_acc", "float_std", "bi_acc", "bi_std", "min_width", "entropy_bits"),
    *("entropy_std", "lower_bound", "bi_min_width", "bi_peak_width", "holds", "holds_share"),
    *("needed", "size_ratio", "estimates", "paper", "at_papers_width"),
)


def _documents(folder: Path, kind: str, needed: Sequence[str]) -> dict[Path, dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob(f"{kind}*.json")):
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise FileError(f"'{path}' is not a JSON document ({error}); remove it") from error
        if not isinstance(document, dict):
            document = {}
        if missing := [name for name in needed if name not in document]:
            raise FileError(
                f"'{path}' is not what this version's 'bignn {kind} --json' prints (it has no "
                f"'{missing[0]}'); make it anew, or remove it"
            )
        found[path] = document
    return found
