"""The page of PyG's table: written from the ledger of its runs alone."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
WAYS = ("float", "binary", "distilled")
KINDS = {"convolution": "Convolutions", "model": "Models", "norm": "Norms"}
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
#: Most characters of a reason in a row.
_LONGEST = 110


def newest(records: Sequence[Record]) -> dict[tuple[Any, ...], Record]:
    """Return the newest record of each run, and of each row that has a reason and no runs."""
    keys = ("row", "graph", "way", "seed")
    found = {tuple(record.get(key) for key in keys): record for record in records}
    without = {record["row"] for record in found.values() if "reason" in record}
    # A class that could once not be trained, or can no longer be: what came last counts.
    last = {record["row"]: "reason" in record for record in records}
    return {
        key: record
        for key, record in found.items()
        if record["row"] not in without or last[record["row"]] == ("reason" in record)
    }


def with_table(page: str, records: Sequence[Record]) -> str:
    """Return a page with the table between its two marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table(records)}\n{END}{rest.split(END)[1]}"


def write_page(path: Path, records: Sequence[Record]) -> None:
    """Put the table into a page."""
    path.write_text(with_table(path.read_text(), records))


def table(records: Sequence[Record]) -> str:
    """Render all rows: how they were measured, then a table per kind."""
    runs = list(newest(records).values())
    longest: dict[str | None, int] = {}
    for run in runs:
        graph = run.get("graph")
        longest[graph] = max(longest.get(graph, 0), run.get("epochs", 0))
    # Shorter runs show that a class trains and packs; their accuracy would mean nothing.
    runs = [run | {"is_short": run.get("epochs", 0) < longest[run.get("graph")]} for run in runs]
    graphs = sorted({run["graph"] for run in runs if "graph" in run}, key=_graph_order)
    parts = [_how(runs, graphs)]
    for kind, title in KINDS.items():
        of_kind = [run for run in runs if run["kind"] == kind]
        names = sorted({run["row"] for run in of_kind}, key=lambda name: (name.lower(), name))
        if not names:
            continue
        head = [
            "",
            "trains",
            "packs",
            "packed = torch",
            "smaller",
            *(f"{graph}, %" for graph in graphs),
            "remarks",
        ]
        lines = [f"### {title}", "", _line(head), _line(["---"] * len(head))]
        lines += [
            _row(name, [run for run in of_kind if run["row"] == name], graphs, runs)
            for name in names
        ]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _graph_order(name: str) -> tuple[bool, str]:
    return name != "cora", name


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _how(runs: Sequence[Record], graphs: Sequence[str]) -> str:
    measured = [run for run in runs if "test" in run and not run["is_short"]]
    short = {run["row"] for run in runs if run["is_short"]} - {run["row"] for run in measured}
    seeds = []
    for graph in graphs:
        epochs = _listed({run["epochs"] for run in measured if run["graph"] == graph})
        seeds.append(f"{_most_seeds(runs, graph)} of {graph} ({epochs} epochs at most)")
    version = _listed({run["pyg"] for run in runs})
    hours = sum(run["seconds"] for run in measured) / 3600
    rows = len({run["row"] for run in runs})
    tried = (
        f" {len(short)} rows without accuracies were tried for a few epochs only." if short else ""
    )
    return (
        f"PyG {version}: {rows} rows. Seeds: {', '.join(seeds)}; fewer are in brackets. All "
        f"{len(measured)} runs took {hours:.1f} hours of one core.{tried} {_packed_alike(measured)}"
    )


def _packed_alike(measured: Sequence[Record]) -> str:
    """Say how many nodes packed models give another class than torch does, and in which rows."""
    packed = [run for run in measured if run.get("nodes")]
    differing: dict[str, int] = {}
    for run in packed:
        if other := run["nodes"] - run["equal"]:
            differing[run["row"]] = differing.get(run["row"], 0) + other
    total = f"{sum(run['nodes'] for run in packed):,}"
    if not differing:
        return f"Packed models predict torch's class on all of {total} nodes."
    listed = ", ".join(f"{row} {count}" for row, count in sorted(differing.items()))
    count = sum(differing.values())
    return f"Packed models predict torch's class on all but {count} of {total} nodes ({listed})."


def _listed(values: set[Any]) -> str:
    return " and ".join(str(value) for value in sorted(values))


def _most_seeds(runs: Sequence[Record], graph: str) -> int:
    return max((_num_seeds(runs, graph, row) for row in {run["row"] for run in runs}), default=0)


def _num_seeds(runs: Sequence[Record], graph: str, row: str, way: str = "float") -> int:
    ours = [r for r in runs if r.get("graph") == graph and r["row"] == row and r["way"] == way]
    return sum("test" in run and not run["is_short"] for run in ours)


def _row(name: str, own: Sequence[Record], graphs: Sequence[str], runs: Sequence[Record]) -> str:
    remarks = list(dict.fromkeys(run["remark"] for run in own if run.get("remark")))
    if reason := next((run["reason"] for run in own if "reason" in run), None):
        empty = ["–"] * (4 + len(graphs))
        return _line([f"`{name}`", *empty, reason.replace("|", "/")])
    binary = [run for run in own if run["way"] != "float" and "test" in run]
    packed = [run for run in binary if run.get("nodes")]
    trains, packs = ("yes" if some else "no" for some in (binary, packed))
    equal = "–"
    if packed:
        equal = f"{sum(run['equal'] for run in packed):,} / {sum(run['nodes'] for run in packed):,}"
    smaller = [run["smaller"] for run in binary]
    cells = [
        _scores([run for run in own if run.get("graph") == graph], _most_seeds(runs, graph))
        for graph in graphs
    ]
    for run in own:
        what = run.get("error") or run.get("obstacle")
        if what:
            where = f"{run['graph']}: " if run.get("error") and binary else ""
            remarks.append(f"{where}{shortened(what)}")
    ratio = f"{statistics.mean(smaller):.1f}x" if smaller else "–"
    noted = "; ".join(dict.fromkeys(remarks))
    return _line([f"`{name}`", trains, packs, equal, ratio, *cells, noted])


def _scores(runs: Sequence[Record], most: int) -> str:
    cells = []
    for way in WAYS:
        full = [run for run in runs if "test" in run and not run["is_short"]]
        tests = [run["test"] for run in full if run["way"] == way]
        few = f" ({len(tests)})" if 0 < len(tests) < most else ""
        cells.append(f"{statistics.mean(tests):.1f}{few}" if tests else "–")
    return " / ".join(cells)


def shortened(message: str) -> str:
    """Shorten a message to what a row needs: no names of modules, no advice."""
    text = message.splitlines()[0].replace("|", "/")
    text = text.removeprefix("the model cannot be packed: ").split("; ")[0]
    text = re.sub(r"([A-Z]\w*) '(?:\w+\.)*\w+'", r"\1", text)
    text = re.sub(r"^that of ", "the forward of ", text)
    text = re.sub(r" \(line \d+ of \w+\.py\)", "", text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rsplit(' ', 1)[0]} …"
