"""The speeds of a results folder: the newest of every measurement."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: Rows that measure the same thing agree in these.
_SAME = ("suite", "shape", "model", "threads", "backend")

#: The backend of all rows of versions that did not record it.
_FIRST_BACKEND = "avx512"


def measured_speeds(files: Mapping[Path, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows that ``bignn bench --json`` printed to files.

    Each has ``file``, ``machine`` and ``version`` added (None where these were not recorded). Of
    rows of the same suite, graph, model, number of threads and backend the newest counts, by the
    recorded date; documents without a date are of earlier versions, hence older than those with
    one, and are ordered by the files' times.
    """
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in sorted(files, key=lambda path: _age(path, files[path])):
        about = {key: files[path].get(key) for key in ("machine", "version")}
        for recorded in files[path]["rows"]:
            row = {"backend": _FIRST_BACKEND, **recorded, **about, "file": path.name}
            newest[tuple(row.get(key) for key in _SAME)] = row
    # In the order of the files' names, whatever their age.
    return sorted(newest.values(), key=lambda row: str(row["file"]))


def _age(path: Path, document: Mapping[str, Any]) -> tuple[bool, str, float, str]:
    date = document.get("date")
    return date is not None, str(date), path.stat().st_mtime, path.name
