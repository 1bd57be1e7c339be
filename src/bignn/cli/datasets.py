"""The command ``bignn datasets``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, command


def add_datasets(commands: Any) -> None:
    """Add ``bignn datasets``."""
    command(
        commands,
        "datasets",
        _datasets,
        "List the graphs known by name, and where each is or how to get it.",
    )


def _datasets(options: argparse.Namespace) -> Report:
    from bignn.graph import datasets

    return datasets.survey(), datasets.describe
