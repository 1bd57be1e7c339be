"""The command ``bignn doctor``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, command


def add_doctor(commands: Any) -> None:
    """Add ``bignn doctor``."""
    command(commands, "doctor", _doctor, "Show versions, CPU features and the kernels in use.")


def _doctor(options: argparse.Namespace) -> Report:
    from bignn.runtime import doctor

    return doctor.examine(), doctor.describe
