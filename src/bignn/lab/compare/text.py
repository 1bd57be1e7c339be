"""A comparison as lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from bignn.lab.compare.wording import (
    cells_of,
    columns_of,
    count,
    graph_line,
    next_commands,
    notes,
    remarks,
)


def describe(report: dict[str, Any]) -> str:
    """The comparison for a terminal."""
    facts = report["graph"]
    lines = [
        f"{report['dataset']}: {graph_line(facts)}; {count(len(report['seeds']), 'seed')}, "
        f"{count(report['threads'], 'thread')}"
        + ("; binary models distilled" if report["distilled"] else ""),
        "",
        *_aligned([columns_of(report), *(cells_of(row) for row in report["models"])]),
        "",
        *_folded(notes(report)),
        *_folded(remarks(report)),
        "",
        *(f"{what:<10}{command}" for what, command in next_commands(report)),
        *([f"{'page':<10}{report['page']}"] if report.get("page") else []),
    ]
    return "\n".join(lines)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table: the first and the last column to the left, numbers to the right."""
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


def _folded(paragraphs: Sequence[str]) -> list[str]:
    return [line for text in paragraphs for line in textwrap.wrap(text, 100)]
