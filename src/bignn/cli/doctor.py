"""The command ``bignn doctor``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from bignn.cli.command import Report, add_threads, command, set_threads


def add_doctor(commands: Any) -> None:
    """Add ``bignn doctor``."""
    parser = command(
        commands,
        "doctor",
        _doctor,
        "Show versions, CPU features, the kernels in use and the planner's unit costs.",
    )
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure the unit costs that ways are chosen by, in some five seconds, and keep them "
        "for this machine and number of threads; results do not depend on them",
    )
    add_threads(parser.add_argument)


def _doctor(options: argparse.Namespace) -> Report:
    from bignn.runtime import doctor

    set_threads(options.threads)
    if options.calibrate:
        from bignn import kernels
        from bignn.cost import calibrate
        from bignn.kernels.threads import get_num_threads
        from bignn.runtime import unit_costs

        print("bignn doctor: measuring unit costs", file=sys.stderr, flush=True)
        backend = kernels.checked_backend(None)
        units = calibrate(backend).units
        path = unit_costs.keep(backend, get_num_threads(), units)
        print(f"bignn doctor: kept in {path}", file=sys.stderr, flush=True)
    return doctor.examine(), doctor.describe
