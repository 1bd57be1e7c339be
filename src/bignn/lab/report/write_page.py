"""Writes a document as one page, where the extra ``lab`` is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bignn.errors import input_error
from bignn.files import atomic_path, check_writable
from bignn.lab.report.document import Document, Picture, Table
from bignn.lab.report.packages import check_lab


def write(document: Document, out: Path) -> dict[str, Any]:
    """Write the page to ``out`` and return what it holds."""
    check_ending("out", str(out))
    check_lab()
    from bignn.lab.report.page import page

    check_writable(out)
    parts = [part for section in document.sections for part in section.parts]
    figures = sum(isinstance(part, Picture) for part in parts)
    if figures:
        plural = "figure" if figures == 1 else "figures"
        print(f"bignn report: drawing {figures} {plural}", file=sys.stderr, flush=True)
    # A name from a damaged file may hold half a character; the rest is shown all the same.
    text = page(document).encode("utf-8", "replace")
    with atomic_path(out) as temporary:
        temporary.write_bytes(text)
    return {
        "out": str(out),
        "bytes": len(text),
        "sections": len(document.sections),
        "tables": sum(isinstance(part, Table) for part in parts),
        "figures": figures,
    }


def checked_page(path: str | None) -> Path | None:
    """Refuse a page that could not be written, before the work whose result it would show."""
    if path is None:
        return None
    check_ending("page", path)
    check_lab()
    check_writable(path)
    return Path(path)


def check_ending(argument: str, path: str) -> None:
    """Refuse a file name that does not end in .html."""
    if not path.lower().endswith((".html", ".htm")):
        raise input_error(argument, "a file name ending in .html", repr(path))


def write_if_possible(document: Document, out: Path, *, required: bool) -> str | None:
    """Write the page; where the extra ``lab`` is missing and it is not required, warn instead."""
    try:
        return str(write(document, out)["out"])
    except ImportError as error:
        if required:
            raise
        print(f"bignn: no page is written: {error}", file=sys.stderr, flush=True)
        return None


def describe(report: dict[str, Any]) -> str:
    """Describe the written page in one line."""
    return (
        f"{report['out']}: {report['sections']} sections, {report['tables']} tables, "
        f"{report['figures']} figures, {report['bytes'] / 1024:.0f} KiB"
    )
