"""A comparison as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from bignn.lab.compare.verdict import verdict
from bignn.lab.compare.wording import count, graph_line, next_commands, remarks, table_of
from bignn.lab.report.document import NOTE_MARK, Table


def describe(report: dict[str, Any]) -> str:
    """Describe the comparison for a terminal."""
    seeds, threads = count(len(report["seeds"]), "seed"), count(report["threads"], "thread")
    table = table_of(report)
    notes = (f"[{number}] {text}" for number, text in enumerate(table.notes, 1))
    lines = [
        f"{report['dataset']}: {graph_line(report['graph'])}; {seeds}, {threads}",
        *textwrap.wrap(_plain(verdict(report)), 100),
        "",
        *_aligned(table),
        "",
        *(line for note in notes for line in _folded(note, "    ")),
        "",
        *(line for remark in remarks(report) for line in _folded(remark, "")),
        "",
        *(f"{what:<10}{command}" for what, command in next_commands(report)),
        *([f"{'page':<10}{report['page']}"] if report.get("page") else []),
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return text.replace("`", "")


def _aligned(table: Table) -> list[str]:
    """Align a table: the first and the last column to the left, numbers to the right."""
    rows: Sequence[Sequence[str]] = [
        [NOTE_MARK.sub(r" [\1]", cell) for cell in row] for row in (table.columns, *table.rows)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    lines = []
    for row in rows:
        cells = (
            cell.ljust(width) if number in (0, last) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * (sum(widths) + 2 * last))
    return lines


def _folded(text: str, indent: str) -> list[str]:
    return textwrap.wrap(_plain(text), 100, subsequent_indent=indent)
