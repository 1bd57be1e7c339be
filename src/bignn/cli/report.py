"""``bignn report``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bignn.cli.command import Report, command


def add_report(commands: Any) -> None:
    """Adds ``bignn report``."""
    parser = command(
        commands, "report", _report, "Make one page, to open in a browser, of a results folder."
    )
    add = parser.add_argument
    add("folder", metavar="DIR", help="what 'bignn reproduce --out DIR' has filled")
    add("-o", "--out", default="report.html", metavar="FILE", help="(default: report.html)")


def _report(options: argparse.Namespace) -> Report:
    from bignn.experiments import report
    from bignn.experiments.sections import document_of

    document = document_of(Path(options.folder))
    return report.write(document, Path(options.out)), report.describe
