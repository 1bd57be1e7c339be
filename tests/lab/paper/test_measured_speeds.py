"""Of speeds measured more than once the newest counts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from bignn.lab.paper.results import Results


def write(
    folder: Path, name: str, rows: list[tuple[str, str, int, float]], time: int, **known: Any
) -> None:
    """A document with rows of (shape, model, threads, packed_ms), in a file of that age."""
    keys = ("shape", "model", "threads", "packed_ms")
    made = [{"suite": "shapes", **dict(zip(keys, row, strict=True))} for row in rows]
    (folder / name).write_text(json.dumps({"rows": made, **known}))
    os.utime(folder / name, (time, time))


def found(folder: Path) -> list[tuple[str, str, int, float]]:
    return [
        (row["shape"], row["model"], row["threads"], row["packed_ms"])
        for row in Results(folder).bench
    ]


def test_the_newest_file_counts_where_none_has_a_date(tmp_path: Path) -> None:
    write(tmp_path, "bench-a.json", [("arxiv", "bi-gcn", 2, 1.0), ("flickr", "bi-gcn", 2, 2.0)], 20)
    write(tmp_path, "bench.json", [("arxiv", "bi-gcn", 2, 3.0), ("arxiv", "bi-gat", 2, 4.0)], 10)
    assert found(tmp_path) == [
        ("arxiv", "bi-gcn", 2, 1.0),
        ("flickr", "bi-gcn", 2, 2.0),
        ("arxiv", "bi-gat", 2, 4.0),
    ]
    os.utime(tmp_path / "bench.json", (30, 30))
    assert ("arxiv", "bi-gcn", 2, 3.0) in found(tmp_path)
    assert len(found(tmp_path)) == 3


def test_a_recorded_date_counts_before_the_times_of_files(tmp_path: Path) -> None:
    row = ("arxiv", "bi-gcn", 2)
    write(tmp_path, "bench-1.json", [(*row, 1.0)], 30, date="2026-01-01T00:00:00+00:00")
    write(tmp_path, "bench-2.json", [(*row, 2.0)], 10, date="2026-01-02T00:00:00+00:00")
    write(tmp_path, "bench-3.json", [(*row, 3.0)], 40)  # of a version that recorded none
    assert found(tmp_path) == [(*row, 2.0)]


def test_other_threads_are_another_measurement(tmp_path: Path) -> None:
    rows = [("arxiv", "bi-gcn", 1, 1.0), ("arxiv", "bi-gcn", 2, 2.0)]
    write(tmp_path, "bench.json", rows, 10)
    assert found(tmp_path) == rows


def test_rows_know_where_they_come_from(tmp_path: Path) -> None:
    write(tmp_path, "bench-1.json", [("a", "bi-gcn", 2, 1.0)], 10, machine="M", version="1")
    write(tmp_path, "bench-2.json", [("b", "bi-gcn", 2, 1.0)], 10)
    known = [(row["file"], row["machine"], row["version"]) for row in Results(tmp_path).bench]
    assert known == [("bench-1.json", "M", "1"), ("bench-2.json", None, None)]
