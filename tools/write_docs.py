"""Writes the pages of docs/ that come from the code: ``make docs``."""

from __future__ import annotations

from pathlib import Path

from api_page import api_page
from cli_page import cli_page

DOCS = Path(__file__).parent.parent / "docs"
PAGES = {"api.md": api_page, "cli.md": cli_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
