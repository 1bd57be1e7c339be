"""The speeds that a results folder shows: of every measurement the newest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Rows that measure the same thing agree in these.
_SAME = ("suite", "shape", "model", "threads")


def measured_speeds(files: Mapping[Path, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of what ``bignn bench --json`` has printed to files, each with ``file``, and ``machine``
    and ``version`` (None where that was not recorded).

    Of rows of the same suite, graph, model and number of threads the newest counts, by the date
    that ``bignn bench --json`` records; documents without a date are of earlier versions, hence
    older than those with one, and among themselves go by the files' times.
    """
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in sorted(files, key=lambda path: _age(path, files[path])):
        known = {key: files[path].get(key) for key in ("machine", "version")}
        for row in files[path]["rows"]:
            newest[tuple(row.get(key) for key in _SAME)] = {**row, **known, "file": path.name}
    # In the order of the files' names, whatever their age.
    return sorted(newest.values(), key=lambda row: str(row["file"]))


def _age(path: Path, document: Mapping[str, Any]) -> tuple[bool, str, float, str]:
    date = document.get("date")
    return date is not None, str(date), path.stat().st_mtime, path.name
