"""``bignn report``: a document written as one page, and what that page has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bignn.errors import input_error
from bignn.files import atomic_path, check_writable
from bignn.lab.report.document import Document, Figure, Table
from bignn.lab.report.figures import check_matplotlib
from bignn.lab.report.page import page


def write(document: Document, out: Path) -> dict[str, Any]:
    """Writes the page to ``out`` and returns its counts."""
    check_ending("out", str(out))
    check_matplotlib()
    check_writable(out)
    parts = [part for section in document.sections for part in section.parts]
    figures = sum(isinstance(part, Figure) for part in parts)
    if figures:
        told = f"{figures} figure{'s' if figures > 1 else ''} to draw"
        print(f"bignn report: {told}", file=sys.stderr, flush=True)
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
    """Refuses a page that could not be written, before the work whose result it would show."""
    if path is None:
        return None
    check_ending("page", path)
    check_matplotlib()
    check_writable(path)
    return Path(path)


def check_ending(argument: str, path: str) -> None:
    """Refuses a file name that is no page's."""
    if not path.lower().endswith((".html", ".htm")):
        raise input_error(argument, "a file name ending in .html", repr(path))


def write_if_possible(document: Document, out: Path, *, asked: bool) -> str | None:
    """:func:`write`, or one line where matplotlib is missing and nobody asked for a page."""
    try:
        return str(write(document, out)["out"])
    except ImportError as error:
        if asked:
            raise
        print(f"bignn: no page is written: {error}", file=sys.stderr, flush=True)
        return None


def describe(report: dict[str, Any]) -> str:
    """One line: what there is, and where."""
    return (
        f"{report['out']}: {report['sections']} sections, {report['tables']} tables, "
        f"{report['figures']} figures, {report['bytes'] / 1024:.0f} KiB"
    )
