"""The command ``bignn report``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bignn.cli.command import Report, command


def add_report(commands: Any) -> None:
    """Add ``bignn report``."""
    parser = command(
        commands, "report", _report, "Write the results in a folder as one self-contained page."
    )
    add = parser.add_argument
    add(
        "folder",
        metavar="DIR",
        help="folder that 'bignn reproduce --out' wrote, such as runs/paper",
    )
    add("-o", "--out", metavar="FILE", default="report.html", help="page to write (default: "
        "report.html)")  # fmt: skip


def _report(options: argparse.Namespace) -> Report:
    from bignn.lab.paper.sections import document_of
    from bignn.lab.report import write_page

    write_page.check_ending("out", options.out)
    return write_page.write(
        document_of(Path(options.folder)), Path(options.out)
    ), write_page.describe
